"""What both drivers of the Python library have in common: JSON in, JSON out, and the names in between."""
import json
import logging
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
import belay  # noqa: E402
from belay import txn as t  # noqa: E402

_writing = threading.Lock()


def write(**members):
    line = json.dumps(members) + "\n"
    with _writing:
        sys.stdout.write(line)
        sys.stdout.flush()


class ToLog(logging.Handler):
    def emit(self, record):
        write(event="log", level=record.levelname.lower(), text=record.getMessage())


logger = logging.getLogger("belay")
logger.addHandler(ToLog())
logger.setLevel(logging.INFO)
logger.propagate = False


def seconds(ms):
    return None if ms < 0 else ms / 1000


def client_options(r):
    options = {name: r[name] for name in ("namespace", "token", "owner") if name in r}
    options.update({name: seconds(r[name]) for name in ("session_ttl", "timeout") if name in r})
    if "tls" in r:
        options["tls"] = belay.TLS(**r["tls"])
    return options


def lost_event(held):
    def tell(lost):
        said = {"by": lost.by, "text": lost.text}
        write(event="lost", held=held, name=lost.name, fence=lost.fence, reason=lost.reason,
              **{k: v for k, v in said.items() if v})

    return tell


def lock_options(r):
    names = ("shared", "permits", "of", "body", "owner")
    options = {name: r[name] for name in names if name in r}
    options.update({name: seconds(r[name]) for name in ("ttl", "wait", "grace", "delay", "early") if name in r})
    options["on_place"] = lambda position: write(event="place", id=r["id"], position=position)
    options["on_lost"] = lost_event(r["held"])
    return options


def granted(held, several):
    answer = {"fence": held.fence, "owner": held.owner, "body": held.body.decode()}
    return {**answer, "fences": held.fences} if several else answer


def shown(lock):
    return {
        "state": lock["state"],
        "body": lock["body"].decode(),
        "holders": [{k: h[k] for k in ("owner", "mode", "fence")} for h in lock["holders"]],
        "waiters": [{k: w[k] for k in ("owner", "position")} for w in lock["waiters"]],
    }


def leader(who):
    return who and {"owner": who.owner, "fence": who.fence, "body": who.body.decode()}


def news(watch, event):
    write(event="news", watch=watch, word=event.event, name=event.name, fence=event.fence)


def value(raw):
    if isinstance(raw, list):
        return [value(v) for v in raw]
    if isinstance(raw, dict):
        return {k: value(v) for k, v in raw.items()}
    return raw.decode() if isinstance(raw, bytes) else raw


def result(r):
    return {"status": r.status, "cause": r.cause, "failed": r.failed, "data": r.data}


def builder():
    return {"statements": [
        t.assert_(t.not_(t.exists("t", "a"))),
        t.assert_(t.exists("t", "b", {"n": 1}, with_this_session=True)),
        t.block(
            t.anyway(t.set("t", "c", "v")),
            t.anyway(t.set("t", "d", [1, None, True], ttl=1.5, description="why", allow_duplicates=True,
                           respect_exclusive=True))),
        t.if_(t.and_(t.true(), t.or_(t.false(), t.xor(t.true(), t.false()))), t.select_constant("branch", "then"), t.abort()),
        t.if_(t.delete("t", "c"), t.abort()),
        t.anyway(t.delete("t", "d", 7)),
        t.select("one", "t", "a"),
        t.select("all", "t", "b", many=True, with_this_session=True, abort_if_not_found=True),
        t.select_operator("was", t.unlock("l", owner="o")),
        t.assert_(t.lock("l", into="fence")),
        t.assert_(t.lock("m", owner="o", shared=True, ttl=1, grace=0.01, delay=0.02)),
        t.assert_(t.lock("s", of=5, permits=2)),
        t.assert_(t.unlock("m", fence=9)),
    ]}


def one_more(held, file, log):
    """The guarded step of `count`: False, if the lock was not held any more."""
    number = int(os.pread(file, 20, 0)) + 1
    if not held.held():
        return False
    os.pwrite(file, b"%020d" % number, 0)
    os.write(log, b"%d %d python\n" % (number, held.fence))
    return True


def failure(e):
    """The `error` of an exception."""
    if isinstance(e, belay.Refused):
        holders = [{"owner": h.owner, "mode": h.mode, "fence": h.fence,
                    "expires_in": -1 if h.expires_in is None else round(h.expires_in * 1000)} for h in e.holders]
        return {"type": "refused", "reason": e.reason, "holders": holders}
    if isinstance(e, belay.Deadlock):
        return {"type": "deadlock", "cycle": [{"owner": w.owner, "waits_for": w.waits_for} for w in e.cycle]}
    if isinstance(e, belay.Lost):
        return {"type": "lost", "reason": e.reason, "name": e.name, "fence": e.fence, "by": e.by, "text": e.text}
    if isinstance(e, belay.ServerError):
        return {"type": "server", "code": e.code, "message": e.message}
    types = {belay.TimedOut: "timeout", belay.Unreachable: "unreachable", belay.Closed: "closed", ValueError: "usage"}
    return {"type": types.get(type(e), repr(e)), "message": str(e)}
