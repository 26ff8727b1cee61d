"""load.py - clients that take and give back locks through faults, and the check of their history."""
import os
import random
import subprocess
import threading
import time

from nodes import ROOT_HISTORY, Error

def now_us():
    return time.monotonic_ns() // 1000


class Client(threading.Thread):
    """Takes and gives back a few contended locks at whatever node answers; writes down everything."""

    def __init__(self, nodes, no, rnd, locks=4, ttl=2000):
        super().__init__(daemon=True)
        self.nodes, self.no, self.rnd, self.locks, self.ttl = nodes, no, random.Random(rnd), locks, ttl
        self.history, self.stop, self.failed, self.last_ok = [], False, 0, 0
        self.gap = 0

    def connect(self):
        i = self.rnd.randrange(self.nodes.n)
        r = self.nodes.resp(i)
        r.sock.settimeout(15)
        return r

    def pair(self, r):
        """Each lock has a namespace of its own, so that they are in several shards."""
        lock = "l%d" % self.rnd.randrange(self.locks)
        if isinstance(r("USE", lock), Error):
            self.failed += 1
            return
        owner = "c%d-%d" % (self.no, len(self.history) + self.failed)
        asked = now_us()
        answer = r("ACQUIRE", lock, owner, "TTL", self.ttl, "WAIT", 5000)
        if isinstance(answer, Error) or answer[0] != b"granted":
            self.failed += isinstance(answer, Error)
            return
        entry = [lock, answer[1], asked, now_us(), 0, 0, self.ttl * 1000, 0]
        self.history.append(entry)
        ok = time.monotonic()
        if self.last_ok:
            self.gap = max(self.gap, ok - self.last_ok)
        self.last_ok = ok
        entry[4] = now_us()
        answer = r("RELEASE", lock, entry[1])
        if isinstance(answer, Error):
            self.failed += 1
            return
        entry[5], entry[7] = now_us(), int(answer == 1)

    def run(self):
        while not self.stop:
            try:
                r = self.connect()
                while not self.stop:
                    self.pair(r)
            except OSError:
                self.failed += 1
                time.sleep(0.02)


def run_clients(n, seconds, faults, clients=8, ttl=2000):
    """Runs clients while `faults` plays; the history must be possible."""
    seed = random.randrange(1 << 30)
    print("# seed %d" % seed)
    all_clients = [Client(n, i, seed + i, ttl=ttl) for i in range(clients)]
    for i in range(all_clients[0].locks):
        n.until(lambda: not isinstance(n.resp(0)("NAMESPACE", "CREATE", "l%d" % i), Error)
                or "EXISTS" in str(n.resp(0)("NAMESPACE", "CREATE", "l%d" % i)))
    for c in all_clients:
        c.start()
    end = time.monotonic() + seconds
    faults(random.Random(seed), end)
    while time.monotonic() < end:
        time.sleep(0.05)
    for c in all_clients:
        c.stop = True
    for c in all_clients:
        c.join(timeout=30)
        assert not c.is_alive(), "a client was never answered"
    path = os.path.join(n.dir, "history")
    grants = 0
    with open(path, "w") as f:
        for c in all_clients:
            for e in c.history:
                f.write(" ".join(map(str, e)) + "\n")
                grants += 1
    p = subprocess.run([ROOT_HISTORY, path], capture_output=True, timeout=60)
    print(p.stdout.decode().strip())
    assert p.returncode == 0, "an impossible history"
    print("# %d grants, %d failures, longest gap of a client %.2f s" %
          (grants, sum(c.failed for c in all_clients), max(c.gap for c in all_clients)))
    return all_clients
