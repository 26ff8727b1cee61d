"""belay.py - what the end-to-end tests share: a server on a free port, a RESP client, HTTP, TAP.

    with Server() as s:            # stopped by its pid at the end, must exit with 0
        r = s.resp()               # RESP2; s.resp(3) says HELLO 3
        r("ACQUIRE", "a", "me")    # [b"granted", 1, 30000, b""]
        s.http("GET", "/healthz")  # Answer(status, headers, body)
"""
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BELAY = os.environ.get("BELAY", os.path.join(ROOT, "build", "belay"))
WAIT_S = 20  # nothing here takes this long; a test that does has failed


class Error(Exception):
    """An error reply; str() is its text with its word."""


class Push(list):
    """A RESP3 push."""


class Resp:
    def __init__(self, port, version=2, host="127.0.0.1"):
        self.sock = socket.create_connection((host, port), timeout=WAIT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile("rb")
        self.pushes = []
        if version == 3:
            assert self("HELLO", "3")[b"proto"] == 3

    def send(self, *words):
        self.sock.sendall(encode(*words))

    def read(self):
        """One reply or push as it comes; ConnectionError at the end."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Error(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b",":
            return float(rest)
        if kind == b"_":
            return None
        if kind == b"#":
            return rest == b"t"
        if kind == b"$":
            if rest == b"-1":
                return None
            data = self.file.read(int(rest) + 2)
            return data[:-2]
        if kind in b"*~>":
            items = [self.read() for _ in range(int(rest))] if rest != b"-1" else None
            return Push(items) if kind == b">" else items
        if kind == b"%":
            return {self.read(): self.read() for _ in range(int(rest))}
        raise AssertionError("not RESP: %r" % line)

    def reply(self):
        """The next reply; pushes that come before it are kept."""
        while True:
            r = self.read()
            if not isinstance(r, Push):
                return r
            self.pushes.append(r)

    def push(self):
        return self.pushes.pop(0) if self.pushes else self.read()

    def __call__(self, *words):
        self.send(*words)
        return self.reply()

    def is_silent(self, seconds=0.05):
        """Nothing has come. Only ever used after another connection was answered."""
        return not select.select([self.sock], [], [], seconds)[0]

    def close(self):
        self.file.close()
        self.sock.close()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return "%s %r" % (self.status, self.body[:300])


def encode(*words):
    out = b"*%d\r\n" % len(words)
    for w in words:
        b = w if isinstance(w, bytes) else str(w).encode()
        out += b"$%d\r\n%s\r\n" % (len(b), b)
    return out


class Server:
    def __init__(self, *args, port=0, env=None, preexec_fn=None, listen=True, memory=True):
        engine = ["--memory"] if memory and "--data" not in args else []
        where = ["--listen", "127.0.0.1:%d" % port] if listen else []
        self.args = [BELAY, "serve", *engine, *where, *args]
        self.process = subprocess.Popen(
            self.args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, preexec_fn=preexec_fn)
        line = self.process.stdout.readline().decode()
        if not line.startswith("listening "):
            raise AssertionError("no server: %r %r" % (line, self.process.stderr.read()))
        self.address = line.split()[1]
        self.port = int(self.address.rsplit(":", 1)[1])
        self.log = b""

    def resp(self, version=2):
        return Resp(self.port, version)

    def raw(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def http(self, method, path, body=None, headers=None):
        h = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            h.setdefault("Content-Type", "application/json")
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        c.request(method, path, body, h)
        r = c.getresponse()
        a = Answer(r.status, dict((k.lower(), v) for k, v in r.getheaders()), r.read())
        c.close()
        return a

    def lock(self, name, verb, body=None, ns="default"):
        return self.http("POST", "/v1/namespaces/%s/locks/%s/%s" % (ns, name, verb), body or {})

    def metric(self, name):
        for line in self.http("GET", "/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise AssertionError("no metric " + name)

    def until(self, name, value):
        """Waits until a metric has a value: an event, not a time."""
        end = time.monotonic() + WAIT_S
        while self.metric(name) != value:
            if time.monotonic() > end:
                raise AssertionError("%s is %s, not %s" % (name, self.metric(name), value))
            time.sleep(0.005)

    def until_below(self, name, value):
        end = time.monotonic() + WAIT_S
        while self.metric(name) >= value:
            if time.monotonic() > end:
                raise AssertionError("%s is %s, not below %s" % (name, self.metric(name), value))
            time.sleep(0.005)

    def until_above(self, name, value, seconds=WAIT_S):
        end = time.monotonic() + seconds
        while self.metric(name) <= value:
            if time.monotonic() > end:
                raise AssertionError("%s is %s, not above %s" % (name, self.metric(name), value))
            time.sleep(0.05)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            out, err = self.process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError("the server did not stop: %r" % err[-2000:])
        self.log += err
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        code = self.stop()
        if kind is None and code != 0:
            raise AssertionError("the server ended with %s: %s" % (code, self.log[-4000:].decode()))


def own_address():
    """An address of this machine that is not loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
        try:
            u.connect(("198.51.100.1", 9))  # sends nothing
            address = u.getsockname()[0]
            return None if address.startswith("127.") else address
        except OSError:
            return None


def read_all(sock):
    """Everything until the other side closes."""
    out = b""
    while True:
        try:
            part = sock.recv(65536)
        except ConnectionResetError:
            return out
        if not part:
            return out
        out += part


tests = []


def test(fn):
    tests.append(fn)
    return fn


def same(got, want):
    if got != want:
        raise AssertionError("got  %r\n#   want %r" % (got, want))


def has(got, part):
    if part not in got:
        raise AssertionError("%r is not in %r" % (part, got))


def main():
    failed = 0
    only = sys.argv[1:]
    for fn in tests:
        name = fn.__name__.replace("_", " ")
        if only and not any(o in fn.__name__ for o in only):
            continue
        start = time.monotonic()
        try:
            fn()
            print("ok - %s # %.1f s" % (name, time.monotonic() - start), flush=True)
        except BaseException as e:  # noqa: a failed test must not hide the others
            failed += 1
            text = str(e) or e.__class__.__name__
            import traceback
            where = traceback.extract_tb(e.__traceback__)
            at = [f for f in where if f.filename.endswith(os.path.basename(sys.argv[0]))]
            line = (at or where)[-1]
            print("not ok - %s\n#   line %s: %s\n#   %s" %
                  (name, line.lineno, line.line, text.replace("\n", "\n#   ")), flush=True)
            if isinstance(e, KeyboardInterrupt):
                break
    sys.exit(1 if failed else 0)
