"""queue_lib.py - what the tests of `belay queue` share: a private PostgreSQL on a unix socket in a temporary
directory, run by an unprivileged user, gone afterwards; psql; workers; TAP."""
import atexit, glob, json, os, pwd, random, shutil, signal, socket, subprocess, sys, tempfile, threading, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BELAY = os.environ.get("BELAY_BIN", os.path.join(ROOT, "build", "belay"))
PG_BIN = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
started, failures = [], 0


def check(name, good, detail=""):
    global failures
    print(f"{'ok' if good else 'not ok'} - {name}", flush=True)
    if not good:
        failures += 1
        print("  # " + str(detail).replace("\n", "\n  # "), flush=True)
    return good


class Cluster:
    def __init__(self, options=""):
        self.dir = tempfile.mkdtemp(prefix="belay-pg-")
        self.user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if self.user:
            os.chown(self.dir, self.user.pw_uid, self.user.pw_gid)
        self.options = f"-k {self.dir} -c listen_addresses='' -c max_connections=120 -c fsync=off {options}"
        self.run("initdb", "-D", self.dir + "/data", "-A", "trust", "-U", "postgres", "--locale=C.UTF-8", "-E", "UTF8")
        self.start()
        self.url = f"host={self.dir} user=postgres dbname=postgres"
        os.environ["BELAY_DB"] = self.url
        atexit.register(self.remove)

    def run(self, tool, *args):
        extra = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        r = subprocess.run([f"{PG_BIN}/{tool}", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           cwd=self.dir, **extra)
        if r.returncode:
            sys.exit(f"{tool}: {r.stdout}")

    def start(self):
        self.run("pg_ctl", "-D", self.dir + "/data", "-w", "-l", self.dir + "/log", "-o", self.options, "start")

    def stop(self, mode="fast"):
        self.run("pg_ctl", "-D", self.dir + "/data", "-w", "-m", mode, "stop")

    def remove(self):
        for p in started:
            if p.poll() is None:
                p.kill()
                p.wait()
        try:
            self.stop("immediate")
        except SystemExit:
            pass
        shutil.rmtree(self.dir, ignore_errors=True)

    def sql(self, text, user=None, ok=True):
        """Rows as lists of text; a string starting with "ERROR" when it fails and ok is False."""
        url = self.url.replace("user=postgres", f"user={user}") if user else self.url
        r = subprocess.run(["psql", url, "-XqAt", "-F", "\x1f", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose"], input=text,
                           capture_output=True, text=True)
        if r.returncode:
            if ok:
                raise RuntimeError(r.stderr + text[:500])
            return "ERROR " + r.stderr
        return [line.split("\x1f") for line in r.stdout.splitlines()]

    def one(self, text, **more):
        return self.sql(text, **more)[0][0]


class Bouncer:
    """A PgBouncer before a cluster, on a unix socket of its own."""
    def __init__(self, cluster, mode="transaction", size=2):
        self.dir = tempfile.mkdtemp(prefix="belay-bouncer-")
        if cluster.user:
            os.chown(self.dir, cluster.user.pw_uid, cluster.user.pw_gid)
        with open(self.dir + "/ini", "w") as f:
            f.write(f"[databases]\n* = host={cluster.dir} user=postgres\n[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {self.dir}\n"
                    f"auth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\nserver_login_retry = 1\nlogfile = {self.dir}/log\n")
        extra = {"user": cluster.user.pw_uid, "group": cluster.user.pw_gid, "extra_groups": []} if cluster.user else {}
        self.p = subprocess.Popen(["pgbouncer", self.dir + "/ini"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **extra)
        started.append(self.p)
        self.url = f"host={self.dir} port=6432 user=postgres dbname=postgres"
        atexit.register(shutil.rmtree, self.dir, True)
        until(lambda: os.path.exists(self.dir + "/.s.PGSQL.6432"))


class Silent:
    """A port before a cluster's socket that can stop to pass anything on, and says nothing about it."""
    def __init__(self, cluster):
        self.target, self.quiet = cluster.dir + "/.s.PGSQL.5432", False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"host=127.0.0.1 port={self.listener.getsockname()[1]} user=postgres dbname=postgres"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            a = self.listener.accept()[0]
            b = socket.socket(socket.AF_UNIX)
            b.connect(self.target)
            for x, y in ((a, b), (b, a)):
                threading.Thread(target=self.pump, args=(x, y), daemon=True).start()

    def pump(self, a, b):
        quiet = self.quiet
        try:
            while data := a.recv(65536):
                if self.quiet != quiet:
                    return  # and neither side is closed
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other side has gone

    def silence(self):
        """All that is connected now hears nothing any more."""
        self.quiet = object()


class Session:
    """A psql that stays connected: a process of its own with an open transaction."""
    def __init__(self, cluster):
        self.p = subprocess.Popen(["psql", cluster.url, "-XqAt", "-F", " ", "-v", "VERBOSITY=verbose"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        started.append(self.p)

    def __call__(self, text):
        self.p.stdin.write(text + ";\n\\echo @@@\n")
        self.p.stdin.flush()
        lines = []
        for line in self.p.stdout:
            if line.rstrip() == "@@@":
                return lines
            lines.append(line.rstrip("\n"))
        raise RuntimeError("psql ended: " + "\n".join(lines))

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def belay(*args, input=None, env=None):
    return subprocess.run([BELAY, "queue", *args], capture_output=True, text=True, input=input,
                          env={**os.environ, **(env or {})}, errors="replace", timeout=60)


def worker(*args, log=None, env=None):
    p = subprocess.Popen([BELAY, "queue", "work", *args], stdout=subprocess.DEVNULL,
                         stderr=open(log, "w") if log else subprocess.DEVNULL, env={**os.environ, **(env or {})})
    started.append(p)
    return p


def until(what, seconds=40, every=0.01):
    """Waits for an event that can only be asked for; False when it does not come. An idle worker looks by itself every 60 s:
    what is seen before was told to it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        v = what()
        if v:
            return v
        time.sleep(every)
    return False


def stop(p, sig=signal.SIGTERM, seconds=15):
    p.send_signal(sig)
    try:
        return p.wait(seconds)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
        return "would not stop"


def read(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def done():
    sys.exit(1 if failures else 0)
