"""liar.py - a member of a cluster that says what it likes, over the nodes' own protocol.

It learns the cluster's number from the first node that calls it, as any member does."""
import random
import socket
import struct

from nodes import Nodes

APPEND, FORWARD, ASK = 1, 9, 14
REMOVE = 1  # what an ASK is about
TYPES = 16


def _table():
    out = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
        out.append(n)
    return out


TABLE = _table()


def crc32c(data):
    c = 0xffffffff
    for b in data:
        c = c >> 8 ^ TABLE[(c ^ b) & 255]
    return c ^ 0xffffffff


def varint(v):
    out = b""
    while v >= 128:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def text(b):
    return varint(len(b)) + b


def frame(b):
    return struct.pack("<II", len(b), crc32c(b)) + b


def read_varint(b, at):
    v = shift = 0
    while True:
        v |= (b[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if b[at - 1] < 128:
            return v, at


def hello_numbers(b):
    """(cluster, groups) of the hello in this frame."""
    cluster, at = read_varint(b, 8 + 8 + 1)
    for _ in range(3):
        _, at = read_varint(b, at)
    return cluster, read_varint(b, at)[0]


def first_frame(s):
    b = b""
    while len(b) < 8 or len(b) < 8 + struct.unpack("<I", b[:4])[0]:
        got = s.recv(4096)
        if not got:
            raise OSError("it is closed")
        b += got
    return b


def message(kind, shard=0, node=3, term=0, index=0, log_term=0, commit=0, reject=0, seq=0, flags=0,
            data=b"", entries=(), conf=b""):
    out = bytes([2, kind]) + varint(shard)
    for v in (node, term, index, log_term, commit, reject, 0, seq, flags, 0):
        out += varint(v)
    out += text(conf) + text(data) + varint(len(entries))
    for e_term, e_type, e_data in entries:
        out += varint(e_term) + bytes([e_type]) + text(e_data)
    return text(out)


class Liar:
    """Takes the place of the third of three nodes."""

    def __init__(self, *args):
        self.nodes = Nodes(3, "--shards", "2", "--insecure", *args)
        self.listener = socket.create_server(("127.0.0.1", self.nodes.peer_ports[2]), backlog=256)
        self.socks = []

    def __enter__(self):
        n = self.nodes
        n.start(0)
        n.start(1)
        self.cluster, self.groups = self._hear()
        n.ready(0)
        n.ready(1)
        return self

    def _hear(self):
        s, _ = self.listener.accept()
        s.settimeout(10)
        self.socks.append(s)
        return hello_numbers(first_frame(s))

    def caller(self, s):
        """The number of the node that called."""
        b = first_frame(s)
        return read_varint(b, read_varint(b, 8 + 8 + 1)[1])[0]

    def hello(self, node=3):
        name = b"n%d" % node
        return frame(b"BELAYPR1\x03" + varint(self.cluster) + varint(node) + varint(1 << 32 | 5) +
                     varint(77 + node) + varint(self.groups) + text(name) + text(b"127.0.0.1:1") +
                     text(self.nodes.peer_address(2).encode()))

    def call(self, i, hello=True, node=3):
        s = socket.create_connection(("127.0.0.1", self.nodes.peer_ports[i]), timeout=10)
        if hello:
            s.sendall(self.hello(node))
        self.socks.append(s)
        return s

    def say(self, i, messages, node=3):
        """On a connection of its own; returns when the node has closed it, or taken it all."""
        s = self.call(i, node=node)
        try:
            s.sendall(frame(messages))
            s.settimeout(0.5)
            s.recv(1)
        except OSError:
            pass
        s.close()

    def random_message(self, r):
        def number():
            return r.choice((0, 1, 2, 3, r.randrange(64), r.getrandbits(32), r.getrandbits(63)))
        entries = [(number(), r.choice((1, 1, 2, 3, r.randrange(256))), r.randbytes(r.randrange(40)))
                   for _ in range(r.choice((0, 0, 1, 3)))]
        return message(1 + r.randrange(TYPES), r.randrange(self.groups), 3, number(), number(), number(),
                       number(), number(), number(), r.randrange(128), r.randbytes(r.randrange(40)), entries)

    def alive(self):
        """Both nodes live and serve."""
        for i in (0, 1):
            if self.nodes.processes[i].poll() is not None:
                raise AssertionError("node %d is gone: %s" % (i + 1, self.nodes.log(i)[-1500:]))
            self.nodes.ready(i)
        return True

    def __exit__(self, *why):
        for s in self.socks:
            s.close()
        self.listener.close()
        self.nodes.__exit__(*why)


def seeded():
    seed = random.SystemRandom().getrandbits(32)
    print("# seed %d" % seed)
    return random.Random(seed)
