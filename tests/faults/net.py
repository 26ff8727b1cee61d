"""net.py - nodes in network namespaces of their own: cuts and loss.

    with Net(3) as n: n.isolate(0); n.heal()       # this process is in the switch's namespace
Needs root, ip and nft: see possible()."""
import ctypes
import os
import shutil
import subprocess

from nodes import BELAY, Nodes, Resp

TAG = "bl%d" % (os.getpid() % 10000)

CHAOS = """table inet chaos {
  set cut_in { type ipv4_addr
  }
  set cut_out { type ipv4_addr
  }
  set lossy { type ipv4_addr
  }
  chain in {
    type filter hook input priority -300; policy accept;
    ip saddr @cut_in drop
    ip saddr @lossy numgen random mod 100 < 25 drop
  }
  chain out {
    type filter hook output priority -300; policy accept;
    ip daddr @cut_out drop
  }
}
"""


def sh(*words, check=True, **kw):
    return subprocess.run(words, check=check, capture_output=True, **kw)


def enter(fd):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def possible():
    if os.geteuid() == 0 and shutil.which("nft") and shutil.which("ip"):
        return True
    print("# skipped: needs root, ip and nft")
    return False


class Net(Nodes):
    """Nodes 10.77.0.1..n, clients at 10.77.0.100 (this process moves into the switch's namespace)."""

    def __init__(self, n, *args):
        super().__init__(n, "--insecure", *args)
        self.ports = [7117] * n
        self.peer_ports = [7200] * n

    def address(self, i):
        return "10.77.0.%d" % (i + 1)

    def build(self):
        sw = TAG + "sw"
        sh("ip", "netns", "add", sw)
        sh("ip", "-n", sw, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", sw, "addr", "add", "10.77.0.100/24", "dev", "br0")
        sh("ip", "-n", sw, "link", "set", "br0", "up")
        sh("ip", "-n", sw, "link", "set", "lo", "up")
        for i in range(self.n):
            ns, v = TAG + str(i), "v%d" % i
            sh("ip", "netns", "add", ns)
            sh("ip", "link", "add", v, "netns", ns, "type", "veth", "peer", "name", "p%d" % i, "netns", sw)
            sh("ip", "-n", ns, "addr", "add", self.address(i) + "/24", "dev", v)
            sh("ip", "-n", ns, "link", "set", "lo", "up")
            sh("ip", "-n", ns, "link", "set", v, "up")
            sh("ip", "-n", sw, "link", "set", "p%d" % i, "master", "br0")
            sh("ip", "-n", sw, "link", "set", "p%d" % i, "up")
            sh("ip", "netns", "exec", ns, "nft", "-f", "-", input=CHAOS.encode())

    def tear_down(self):
        for ns in [TAG + "sw"] + [TAG + str(i) for i in range(self.n)]:
            sh("ip", "netns", "del", ns, check=False)
            shutil.rmtree("/etc/netns/" + ns, ignore_errors=True)

    def command(self, i):
        c = ["ip", "netns", "exec", TAG + str(i), BELAY, "serve", "--listen", self.address(i) + ":7117",
             "--data", self.data(i), "--peer-listen", self.address(i) + ":7200", *self.args]
        peers = ",".join("n%d=%s" % (k + 1, self.peer_address(k)) for k in range(self.first))
        return c + ["--node", "n%d" % (i + 1), "--peers", peers]

    def peer_address(self, i):
        return self.address(i) + ":7200"

    def resp(self, i, version=2):
        return Resp(7117, version, host=self.address(i))

    def cut(self, a, b, inward=True, outward=True):
        """Node a does not hear b, and is not heard by it."""
        for name, do in (("cut_in", inward), ("cut_out", outward)):
            if do:
                sh("ip", "netns", "exec", TAG + str(a), "nft", "add", "element", "inet", "chaos", name,
                   "{ %s }" % self.address(b))

    def lose(self, i):
        """A quarter of what the others send to node i is lost."""
        for k in range(self.n):
            if k != i:
                sh("ip", "netns", "exec", TAG + str(i), "nft", "add", "element", "inet", "chaos", "lossy",
                   "{ %s }" % self.address(k))

    def name_hosts(self, text):
        """The /etc/hosts of all nodes that are started from now on."""
        for i in range(self.n):
            os.makedirs("/etc/netns/%s%d" % (TAG, i), exist_ok=True)
            with open("/etc/netns/%s%d/hosts" % (TAG, i), "w") as f:
                f.write(text)

    def heal(self):
        for i in range(self.n):
            sh("ip", "netns", "exec", TAG + str(i), "nft",
               "; ".join("flush set inet chaos " + s for s in ("cut_in", "cut_out", "lossy")))

    def isolate(self, i, **how):
        for k in range(self.n):
            if k != i:
                self.cut(i, k, **how)

    def connections(self, to, of):
        """So many of node `of` are open at node `to`, as `to` sees it."""
        rows = sh("ip", "netns", "exec", TAG + str(to), "ss", "-Htn", "state", "established", "sport", "=", ":7200",
                  "dst", self.address(of)).stdout
        return len(rows.splitlines())

    def __enter__(self):
        self.home_fd = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            self.build()
            fd = os.open("/run/netns/%ssw" % TAG, os.O_RDONLY)
            enter(fd)
            os.close(fd)
            return super().__enter__()
        except BaseException as e:
            self.__exit__(type(e), e, None)
            raise

    def __exit__(self, kind, value, trace):
        super().__exit__(kind, value, trace)
        enter(self.home_fd)
        os.close(self.home_fd)
        self.tear_down()
