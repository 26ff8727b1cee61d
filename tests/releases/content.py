"""content.py - what the directories in this folder hold, and how a server lists it.

    program("0.1.0")           # the path of that release's belay
    kept = fill(server, rnd)   # by commands that any release understands
    listing(server)            # every namespace, lock, line, session, table and variable
    agree(recorded, found)     # what was recorded is found; times may differ by a little
"""
import json
import os
import subprocess
import time

from belay import ROOT, WAIT_S

DAY = 24 * 3600 * 1000
LONGEST_DELAY = 10 * 60 * 1000
SPACES = ("red", "green", "blue", "grey")  # they are in several shards, if there are several
SHORT = 100  # ms: a lease that ends while ops are still written
TIMES = (".expires_in_ms", ".closed_ms", "_ms_ago", ".held_ms", ".waited_ms")
TIMES_MAY_DIFFER = 10 * 60 * 1000  # time goes on while a server runs, and a lease has a margin;
SESSIONS_LAST = 5 / 4  # and with several groups a session is kept for a quarter longer
PAGE = 1000


def program(version):
    p = subprocess.run([os.path.join(ROOT, "tests", "releases", "build"), version], stdout=subprocess.PIPE)
    if p.returncode != 0:
        raise AssertionError("no program of %s" % version)
    return p.stdout.decode().strip()


def transaction(session, *statements, **more):
    return json.dumps({"session": session, "statements": statements, **more})


def set_variable(table, key, value, **more):
    return {"assert": {"set": {"table": table, "key": key, "value": value, **more}}}


def set_once(r, ns, table, key):
    """Sent again, it does not happen again."""
    return r("TXN", transaction("s", set_variable(table, key, {"of": ns, "n": [1, None, "é"]})),
             "REQUEST", "t-%s-%s-%s" % (ns, table, key))


def fill_space(ask, ns):
    """One of each kind in this namespace; what the test uses later."""
    def r(*words):
        answer = ask(*words)
        assert not isinstance(answer, Exception), (words, answer)
        return answer
    r("NAMESPACE", "CREATE", ns, "DESCRIPTION", "the space " + ns)
    r("USE", ns)
    kept = {"plain": r("ACQUIRE", "plain", "me", "TTL", DAY, "BODY", "b " + ns)[1],
            "in-session": r("ACQUIRE", "in-session", "me", "TTL", 0, "SESSION", "s")[1],
            "with-id": r("ACQUIRE", "with-id", "me", "TTL", DAY, "REQUEST", "a-" + ns)[1]}
    for owner in ("you", "she", "they"):
        r("ACQUIRE", "plain", owner, "TTL", DAY, "SESSION", "other", "WAIT", DAY, "NOBLOCK")
    for owner in ("a", "b"):
        kept["shared-" + owner] = r("ACQUIRE", "shared", owner, "MODE", "shared", "TTL", DAY)[1]
    r("ACQUIRE", "shared", "writer", "TTL", DAY, "SESSION", "other", "WAIT", DAY, "NOBLOCK")
    r("ACQUIRE", "shared", "behind", "MODE", "shared", "TTL", DAY, "SESSION", "other", "WAIT", DAY,
      "NOBLOCK")
    r("ACQUIRE", "upgrade", "u", "MODE", "shared", "TTL", DAY)
    up = r("ACQUIRE", "upgrade", "v", "MODE", "shared", "TTL", 0, "SESSION", "other")[1]
    r("CONVERT", "upgrade", up, "MODE", "exclusive", "WAIT", DAY, "NOBLOCK")
    r("ACQUIRE", "permits", "three", "OF", 4, "PERMITS", 3, "TTL", DAY)
    r("ACQUIRE", "permits", "two", "OF", 4, "PERMITS", 2, "TTL", DAY, "SESSION", "s", "WAIT", DAY,
      "NOBLOCK")
    delayed = r("ACQUIRE", "closed", "me", "TTL", SHORT, "DELAY", LONGEST_DELAY)
    kept["closed"] = delayed[1]
    r("ACQUIRE", "graced", "me", "TTL", DAY, "GRACE", DAY)
    for table, key in (("t", "k"), ("t", "l"), ("Other", "k")):
        set_once(r, ns, table, key)
    for session in ("s", "other"):
        r("TXN", transaction(session, set_variable("many", "k", session, allow_duplicates=True),
                             {"assert": {"lock": {"name": "by-" + session}}}))
    r("TXN", transaction("s", set_variable("t", "k", 2)))  # it is set: nothing happens
    return kept


def random_op(r, rnd, fences):
    """Something that happens to a few locks; whatever comes of it is in the log."""
    lock, owner = "r%d" % rnd.randrange(6), "o%d" % rnd.randrange(3)
    fence = rnd.choice(fences[-6:]) if fences else 1
    ttl = rnd.choice((SHORT, SHORT, 10 * SHORT, DAY))
    mode = rnd.choice(("shared", "exclusive"))
    wait = ("WAIT", rnd.choice((SHORT, DAY)), "NOBLOCK") if rnd.random() < 0.4 else ()
    session = ("SESSION", rnd.choice(("s", "other", "brief"))) if rnd.random() < 0.5 else ()
    words = rnd.choice((
        ("ACQUIRE", lock, owner, "MODE", mode, "TTL", ttl, *session, *wait),
        ("ACQUIRE", lock, owner, "TTL", ttl, "BODY", "x" * rnd.randrange(9), *session, *wait),
        ("ACQUIRE", lock, owner, "TTL", ttl, "GRACE", SHORT, "DELAY", SHORT, *session, *wait),
        ("ACQUIRE", "p" + lock, owner, "OF", 3, "PERMITS", rnd.randrange(1, 4), "TTL", ttl, *wait),
        ("RENEW", lock, fence, "TTL", ttl),
        ("CONVERT", lock, fence, "MODE", mode, *wait),
        ("BODY", lock, fence, "changed"),
        ("RELEASE", lock, fence), ("RELEASE", lock, "OWNER", owner),
        ("RELEASE", "p" + lock, "OWNER", owner),
        ("BREAK", lock),
        ("SESSION", "OPEN", "TTL", 10 * SHORT, "ID", "brief"),
        ("SESSION", "CLOSE", "brief"), ("SESSION", "KEEPALIVE", "brief", "s"),
        ("SET", lock, owner, "NX", "PX", ttl), ("DEL", lock), ("PEXPIRE", lock, ttl),
        ("TXN", transaction("other", set_variable("r", lock, rnd.randrange(9), ttl_ms=ttl))),
        ("TXN", transaction("s", {"anyway": {"delete": {"table": "t", "key": lock}}},
                            {"assert": {"unlock": {"name": lock}}})),
        ("TXN", transaction("s", {"anyway": {"lock": {"name": lock, "ttl_ms": ttl}}},
                            set_variable("r", owner, lock, allow_duplicates=True)))))
    answer = r(*words)
    assert not str(answer).startswith(("SYNTAX", "RANGE")), (words, answer)
    if isinstance(answer, list) and len(answer) > 1 and isinstance(answer[1], int):
        fences.append(answer[1])


def fill(server, rnd):
    """All kinds of things, and work beside them; returns fences that are held, by namespace."""
    r = server.resp()
    r("SESSION", "OPEN", "TTL", DAY, "LINGER", DAY, "ID", "s", "DESCRIPTION", "of an old release")
    r("SESSION", "OPEN", "TTL", DAY, "ID", "other")
    r("NAMESPACE", "CREATE", "gone")
    r("USE", "gone")
    r("ACQUIRE", "x", "me", "TTL", DAY)
    r("NAMESPACE", "DELETE", "gone", "FORCE")
    kept = {ns: fill_space(r, ns) for ns in SPACES}
    work(server, rnd)
    return kept


def work(server, rnd):
    r = server.resp()
    for ns in SPACES:
        r("USE", ns)
        fences = []
        for _ in range(60):
            random_op(r, rnd, fences)


def last_fences(server):
    """The newest fence in each namespace: later ones are greater."""
    r, last = server.resp(), {}
    for ns in SPACES:
        r("USE", ns)
        last[ns] = r("ACQUIRE", "last", "me")[1]
        assert r("RELEASE", "last", last[ns]) == 1
    return last


def pages(server, path, field):
    """All rows of a list."""
    rows, after = [], ""
    while True:
        page = server.http("GET", "%s?limit=%d%s" % (path, PAGE, after)).json
        rows += page[field]
        if not page.get("next"):
            return rows
        after = "&after=%s" % page["next"]


def listing(server):
    found = {"sessions": pages(server, "/v1/sessions", "sessions"), "namespaces": {}}
    for row in pages(server, "/v1/namespaces", "namespaces"):
        path = "/v1/namespaces/" + row["name"]
        found["namespaces"][row["name"]] = {
            "itself": server.http("GET", path).json,
            "locks": [server.http("GET", "%s/locks/%s" % (path, lock["name"])).json
                      for lock in pages(server, path + "/locks", "locks")],
            "tables": {t["name"]: pages(server, "%s/tables/%s" % (path, t["name"]), "variables")
                       for t in pages(server, path + "/tables", "tables")}}
    return found


def ends_soon(row):
    """Is there a lease or a delay in it that is short?"""
    if isinstance(row, dict):
        left, closed = row.get("expires_in_ms"), row.get("closed_ms")
        return (left is not None and left < DAY // 2 or closed is not None and closed < LONGEST_DELAY // 2
                or any(map(ends_soon, row.values())))
    return isinstance(row, list) and any(map(ends_soon, row))


def quiet_listing(server):
    """When nothing ends soon any more: what is listed now is also there later."""
    end = time.monotonic() + WAIT_S
    while True:
        found = listing(server)
        if not ends_soon(found):
            return listing(server)  # that one may have begun earlier than the last end
        assert time.monotonic() < end, found
        time.sleep(SHORT / 1000)


def agree(recorded, found, where=""):
    """A later version may tell more."""
    if isinstance(recorded, dict):
        for name, value in recorded.items():
            assert name in found, "%s.%s is not there" % (where, name)
            agree(value, found[name], "%s.%s" % (where, name))
    elif isinstance(recorded, list):
        assert len(recorded) == len(found), (where, recorded, found)
        for i, value in enumerate(recorded):
            agree(value, found[i], "%s[%d]" % (where, i))
    elif where.endswith(TIMES) and recorded is not None and found is not None:
        assert recorded - TIMES_MAY_DIFFER < found < recorded * SESSIONS_LAST + TIMES_MAY_DIFFER, \
            (where, recorded, found)
    else:
        assert recorded == found, (where, recorded, found)
