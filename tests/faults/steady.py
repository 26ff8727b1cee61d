"""steady.py - clients of libbelay (steady.c) that must not notice what happens to the nodes."""
import json
import os
import random
import signal
import subprocess

from nodes import BELAY, ROOT_HISTORY, WAIT_S, Error

STEADY = os.environ.get("BELAY_STEADY", os.path.join(
    os.path.dirname(BELAY), "release", "tests", "faults", "steady"))
SPACES = ("even", "odd")  # each with a counter and locks of its own
SESSION_MS = 3600 * 1000


def call(n, *words):
    """As often as it takes, at whatever node answers."""
    got = []

    def ask():
        for i, p in enumerate(n.processes):
            if not p or p.poll() is not None:
                continue
            r = n.resp(i)
            r("USE", words[0])
            answer = r(*words[1:])
            r.close()
            if not isinstance(answer, Error) or "EXISTS" in str(answer):
                got.append(answer)
                return True
        return False
    n.until(ask)
    return got[-1]


def txn(n, space, session, *statements):
    answer = call(n, space, "TXN", json.dumps({"session": session, "statements": statements}))
    assert answer[0] == b"ok", answer
    return answer[6]


class Steady:
    """with Steady(nodes, 6) as s: ...faults...   At the end everything must add up."""

    def __init__(self, n, clients):
        self.n, self.clients, self.processes = n, clients, []
        self.seed = random.randrange(1 << 30)
        self.added = self.grants = 0
        print("# seed %d" % self.seed)

    def __enter__(self):
        self.sessions = {}
        for space in SPACES:
            call(self.n, "default", "NAMESPACE", "CREATE", space)
            session = call(self.n, "default", "SESSION", "OPEN", "TTL", SESSION_MS)
            self.sessions[space] = (session[0] if isinstance(session, list) else session).decode()
            txn(self.n, space, self.sessions[space],
                {"assert": {"set": {"table": "count", "key": "n", "value": 0}}})
        for i in range(self.clients):
            space = SPACES[i % len(SPACES)]
            ports = self.n.ports[i % self.n.n:] + self.n.ports[:i % self.n.n]
            addrs = ",".join("127.0.0.1:%d" % p for p in ports)
            self.processes.append(subprocess.Popen(
                [STEADY, addrs, space, self.sessions[space], str(self.seed + i), self.history(i)],
                stdout=subprocess.PIPE))
        return self

    def history(self, i):
        return os.path.join(self.n.dir, "history-%d" % i)

    def stop(self):
        for p in self.processes:
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)

    def __exit__(self, kind, value, trace):
        self.stop()
        counts = []
        for p in self.processes:
            try:
                out, _ = p.communicate(timeout=3 * WAIT_S)
            except subprocess.TimeoutExpired:
                p.kill()
                out, _ = p.communicate()
            lines = out.decode().splitlines()
            for line in lines[:-1][:10]:
                print(line)
            counts.append(dict(zip(lines[-1].split()[::2], map(int, lines[-1].split()[1::2])))
                          if lines and lines[-1].startswith("added") else {"failed": 1, "added": 0, "grants": 0})
        if kind is None:
            self.check(counts)

    def check(self, counts):
        failed = sum(c["failed"] for c in counts)
        self.added, self.grants = sum(c["added"] for c in counts), sum(c["grants"] for c in counts)
        print("# %d added, %d grants, %d failed" % (self.added, self.grants, failed))
        for k, space in enumerate(SPACES):
            rows = txn(self.n, space, self.sessions[space], {"select": {
                "into": "n", "table": "count", "key": "n", "ignore_this_session": False}})
            counter = json.loads(rows[0][1])["value"]
            added = sum(c["added"] for c in counts[k::len(SPACES)])
            assert counter == added, "%s: the counter is %d, clients have added %d" % (space, counter, added)
            path = os.path.join(self.n.dir, "history-" + space)
            with open(path, "wb") as f:
                for i in range(k, self.clients, len(SPACES)):
                    f.write(open(self.history(i), "rb").read())
            p = subprocess.run([ROOT_HISTORY, path], capture_output=True, timeout=60)
            print(p.stdout.decode().strip())
            assert p.returncode == 0, "an impossible history"
        assert failed == 0, "a client was told of a failure"
        assert self.added > 0 and self.grants > 0, "nothing happened"
