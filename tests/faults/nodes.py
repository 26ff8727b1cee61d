"""nodes.py - durable nodes as processes, for the tests of this folder.

    with Nodes(3) as n:      # three nodes on free ports, data in a directory of their own
        n.kill(0); n.start(0); n.resp(1)("PING")
Processes are started directly and ended by their pid, whatever happens."""
import hashlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from belay import BELAY, WAIT_S, Error, Resp  # noqa: E402


ROOT_HISTORY = os.environ.get("BELAY_HISTORY", os.path.join(
    os.path.dirname(BELAY), "release", "tests", "faults", "history"))


def free_ports(n):
    socks = [socket.socket() for _ in range(n)]
    for s in socks:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in socks]
    for s in socks:
        s.close()
    return ports


class Nodes:
    def __init__(self, n, *args, dir=None):
        self.dir = dir or tempfile.mkdtemp(prefix="belay-nodes-")
        self.own_dir = dir is None
        self.n, self.first, self.args = n, n, args
        ports = free_ports(2 * n)
        self.ports, self.peer_ports = ports[:n], ports[n:]
        self.processes = [None] * n
        self.joined = {}
        self.programs = [[BELAY]] * n  # and the options of that node alone
        self.logs = [os.path.join(self.dir, "n%d.log" % (i + 1)) for i in range(n)]

    def tls(self, name):
        """Options of a node's certificate; it is made if need be. None with --insecure."""
        if "--insecure" in self.args:
            return []
        folder = os.path.join(self.dir, "tls")
        for path, words in (("ca", ["ca"]), (name, ["node", name, "--ca", folder])):
            if not os.path.exists(os.path.join(folder, path + ".crt")):
                subprocess.run([BELAY, "cert", *words, "--out", folder], check=True)
        return ["--tls-ca", os.path.join(folder, "ca.crt"),
                "--tls-cert", os.path.join(folder, name + ".crt"),
                "--tls-key", os.path.join(folder, name + ".key")]

    def data(self, i):
        return os.path.join(self.dir, "n%d" % (i + 1))

    def command(self, i):
        program, *own = self.programs[i]
        c = [program, "serve", *own, "--listen", "127.0.0.1:%d" % self.ports[i], "--data", self.data(i)]
        if i in self.joined:
            return c + self.joined[i] + ["--peer-listen", "127.0.0.1:%d" % self.peer_ports[i],
                                         *self.tls(self.name(i)), *self.args]
        if self.n > 1:
            peers = ",".join("n%d=%s" % (k + 1, self.peer_address(k)) for k in range(self.first))
            c += ["--node", "n%d" % (i + 1), "--peers", peers, "--peer-listen",
                  "127.0.0.1:%d" % self.peer_ports[i], *self.tls("n%d" % (i + 1))]
        return c + list(self.args)

    def start(self, i, wait=True, prefix=()):
        log = open(self.logs[i], "ab")
        p = subprocess.Popen([*prefix, *self.command(i)], stdout=subprocess.PIPE, stderr=log)
        log.close()
        self.processes[i] = p
        if wait:
            line = p.stdout.readline().decode()
            if not line.startswith("listening "):
                raise AssertionError("node %d does not start: %s" % (i + 1, self.log(i)[-1500:]))
        return p

    def start_all(self):
        for i in range(self.n):
            self.start(i)

    def log(self, i):
        with open(self.logs[i], "rb") as f:
            return f.read().decode(errors="replace")

    def kill(self, i, sig=signal.SIGKILL):
        p = self.processes[i]
        if p and p.poll() is None:
            p.send_signal(sig)
            if sig in (signal.SIGKILL, signal.SIGTERM):
                p.wait(timeout=WAIT_S)

    def cpu_ticks(self, i):
        with open("/proc/%d/stat" % self.processes[i].pid) as f:
            return sum(map(int, f.read().rpartition(")")[2].split()[11:13]))

    def resp(self, i, version=2):
        return Resp(self.ports[i], version)

    def shard_of(self, ns):
        """The group that has this namespace."""
        shards = 16 if self.first > 1 else 1
        if "--shards" in self.args:
            shards = int(self.args[self.args.index("--shards") + 1])
        place = int.from_bytes(hashlib.sha256(b"default\0" + ns.encode()).digest()[:4], "big")
        return 0 if shards == 1 else 1 + (place * shards >> 32)

    def home(self):
        return self.shard_of("default")

    def leader(self, among=None):
        """Index of the node whose log says last that it leads the locks of these tests."""
        best, what = None, " order.leader shard=%d " % self.home()
        for i in among if among is not None else range(self.n):
            for line in self.log(i).splitlines():
                if what in line:
                    stamp = line.split()[0]
                    if best is None or stamp > best[0]:
                        best = (stamp, i)
        return best[1] if best else None

    def leader_of(self, shard):
        """Index of the node that leads this group; waits for one."""
        found = []

        def look():
            for i, p in enumerate(self.processes):
                if not p or p.poll() is not None:
                    continue
                if self.leaders(i)[shard] == self.name(i):
                    found.append(i)
                    return True
            return False
        self.until(look)
        return found[0]

    def name(self, i):
        return self.joined[i][1] if i in self.joined else "n%d" % (i + 1)

    def fields(self, i):
        """CLUSTER STATUS of node i."""
        r = self.resp(i)
        answer = r("CLUSTER", "STATUS")
        r.close()
        return dict(zip(answer[::2], answer[1::2]))

    def cluster(self, *words, at=None):
        """CLUSTER ... at that node, or at any."""
        if at is None:
            at = self.alive()[-1]
        r = self.resp(at)
        answer = r("CLUSTER", *words)
        r.close()
        if isinstance(answer, Error):
            raise AssertionError(answer)
        return answer

    def peer_address(self, i):
        """Where the others call node i."""
        return "127.0.0.1:%d" % self.peer_ports[i]

    def new_node(self):
        port, peer = free_ports(2)
        self.ports.append(port)
        self.peer_ports.append(peer)
        self.n += 1
        self.programs.append([BELAY])
        return self.n - 1

    def join(self, name, program=BELAY):
        """A new node, added to the cluster; its index."""
        i = self.new_node()
        self.programs[i] = [program]
        self.processes.append(None)
        self.logs.append(os.path.join(self.dir, name + ".log"))
        answer = self.cluster("ADD", name, self.peer_address(i), at=self.alive()[-1])
        self.joined[i] = ["--node", name, "--join", answer[5].decode()]
        self.start(i)
        return i

    def alive(self):
        return [i for i, p in enumerate(self.processes) if p and p.poll() is None]

    def members(self, i):
        """{node: {field: value}} as node i sees it."""
        rows = [dict(zip(n[::2], n[1::2])) for n in self.fields(i)[b"nodes"]]
        return {n[b"name"].decode(): {k.decode(): v for k, v in n.items()} for n in rows}

    def status(self, i):
        """{node: role} as node i sees it."""
        return {name: m["role"].decode() for name, m in self.members(i).items()}

    def leaders(self, i):
        """Who leads the groups, as node i sees it; None: it does not know."""
        rows = [dict(zip(s[::2], s[1::2])) for s in self.fields(i)[b"shards"]]
        return [s[b"leader"].decode() if s[b"leader"] else None for s in rows]

    def http(self, i, path):
        """Status and text of GET path at node i."""
        c = http.client.HTTPConnection("127.0.0.1", self.ports[i], timeout=WAIT_S)
        c.request("GET", path)
        answer = c.getresponse()
        text = answer.read().decode()
        c.close()
        return answer.status, text

    def metric(self, i, name):
        for line in self.http(i, "/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        raise AssertionError("no metric " + name)

    def until(self, what, seconds=WAIT_S, pause=0.05):
        end = time.monotonic() + seconds
        while True:
            try:
                if what():
                    return
            except (OSError, AssertionError):
                pass
            if time.monotonic() > end:
                raise AssertionError("it did not happen")
            time.sleep(pause)

    def ready(self, i):
        """Waits until the node can serve."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                r = self.resp(i)
                answer = r("SHOW", "ready-probe")
                r.close()
                if not isinstance(answer, Error):
                    return
            except OSError:
                pass
            if time.monotonic() > end:
                raise AssertionError("node %d is not ready: %s" % (i + 1, self.log(i)[-1500:]))
            time.sleep(0.02)

    def __enter__(self):
        self.start_all()
        for i in range(self.n):
            self.ready(i)
        return self

    def __exit__(self, kind, value, trace):
        for p in self.processes:
            if p and p.poll() is None:
                p.send_signal(signal.SIGCONT)
                p.kill()
            if p:
                p.wait()
                p.stdout.close()
        if kind is not None:
            for i in range(self.n):
                if os.path.exists(self.logs[i]):
                    print("# n%d: %s" % (i + 1, self.log(i)[-1200:].replace("\n", "\n#   ")))
        if self.own_dir:
            shutil.rmtree(self.dir, ignore_errors=True)
