"""Plays the scenarios of scenarios.json. README.md says what their steps mean."""
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "faults"))
from nodes import Nodes  # noqa: E402

sys.path.insert(0, HERE)
from proxy import Cut, Route  # noqa: E402

WAIT_S = 30  # nothing here takes this long; what does has failed
GIVES_HANDLE = {"lock", "block", "campaign", "watch", "observe"}


class Wrong(Exception):
    """What was seen is not what the scenario says."""


class Driver:
    """One process. Answers are futures by id; events are kept until a step asks for them."""

    def __init__(self, path):
        self.path, self.answers, self.events, self.last = path, {}, [], 0
        self.news = asyncio.Event()

    async def start(self):
        self.errors = tempfile.TemporaryFile()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("BELAY_")}
        self.process = await asyncio.create_subprocess_exec(
            self.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, limit=1 << 24, env=environment)
        self.reading = asyncio.ensure_future(self.read())
        return self

    async def read(self):
        while line := await self.process.stdout.readline():
            said = json.loads(line)
            if "event" in said:
                self.events.append({**said, "at": time.monotonic()})
                self.news.set()
            else:
                self.answers[said["id"]].set_result({**said, "at": time.monotonic()})
        for answer in self.answers.values():
            if not answer.done():
                answer.set_result({"error": {"type": "the driver has ended"}})

    def ask(self, op, members):
        self.last += 1
        self.answers[self.last] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"id": self.last, "op": op, **members}).encode() + b"\n")
        return self.last

    async def event(self, want, match):
        """The first event like this, which is taken out."""
        while True:
            for i, e in enumerate(self.events):
                if match(e, want):
                    return self.events.pop(i)
            self.news.clear()
            await self.news.wait()

    def kill(self):
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()

    async def end(self):
        """Its stdin ends; answers what it wrote to stderr, and its exit status."""
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), WAIT_S)
        self.errors.seek(0)
        return self.process.returncode, self.errors.read().decode(errors="replace")


def same(got, want, names):
    """Is `want` in `got`? "$x" is what stood there before, or is noted now; objects may have more members."""
    if isinstance(want, str) and want.startswith("$"):
        if want not in names:
            names[want] = got
        return names[want] == got
    if isinstance(want, dict):
        return isinstance(got, dict) and all(k in got and same(got[k], v, names) for k, v in want.items())
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(same(g, w, names) for g, w in zip(got, want))
    return type(got) is type(want) and got == want


class Stage:
    """One scenario while it is played."""

    def __init__(self, scenario, shared, driver_path, servers):
        self.scenario, self.shared, self.path, self.servers = scenario, shared, driver_path, servers
        self.names, self.requests, self.handles = {}, {}, {}
        self.clients, self.routes, self.own = {}, {}, {}
        self.mark = f"{scenario['name']}/"

    # ---- before and after

    async def play(self):
        self.nodes = await self.servers.take(self.scenario.get("servers", 1), self.scenario.get("options", []))
        try:
            for process in self.scenario.get("processes", {}):
                self.own[process] = await Driver(self.path).start()
            for client, options in self.scenario.get("clients", {"a": {}}).items():
                await self.open(client, options)
            for step in self.scenario["steps"]:
                try:
                    await asyncio.wait_for(self.step(step), WAIT_S)
                except asyncio.TimeoutError:
                    raise Wrong(f"{json.dumps(step)}: it did not happen") from None
        finally:
            await self.end()

    async def open(self, client, options):
        process = [p for p, clients in self.scenario.get("processes", {}).items() if client in clients]
        self.clients[client] = self.own[process[0]] if process else self.shared
        self.routes[client] = route = Route()
        addresses = await route.start(self.nodes.ports, self.nodes.kill)
        options = self.filled({"addresses": addresses, **options})
        await self.answer(self.clients[client], "open", {"client": self.mark + client, **options})

    async def end(self):
        for name, driver in self.own.items():
            driver.kill()
            await driver.process.wait()
        for client, driver in self.clients.items():
            if driver is self.shared:
                self.routes[client].open.set()
                await self.answer(driver, "close", {"client": self.mark + client})
        for route in self.routes.values():
            route.stop()
        await self.servers.give_back(self.nodes)

    def filled(self, value):
        """$names that are known, and @files of the servers."""
        if isinstance(value, dict):
            return {k: self.filled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.filled(v) for v in value]
        if value == "@reference.json":
            with open(os.path.join(HERE, value[1:]), encoding="utf-8") as f:
                return json.load(f)
        if isinstance(value, str) and value.startswith("@"):
            return self.nodes.place(value[1:])
        return self.names.get(value, value) if isinstance(value, str) else value

    # ---- steps

    async def step(self, step):
        words, members, want = step[0].split(), *(step[1:] + [{}, None])[:2]
        subject, verb, rest = words[0], words[1], words[2:]
        want = self.filled(want) if isinstance(want, dict) else want
        own = getattr(self, f"{subject}_{verb}", None) or getattr(self, f"any_{verb}", None)
        try:
            if own:
                await own(subject, members, *rest)
            else:
                await self.op(subject, verb, members, want, rest)
        except Wrong as e:
            raise Wrong(f"{json.dumps(step)}: {e}") from None

    async def op(self, subject, verb, members, want, rest):
        members = self.filled(members)
        if subject in self.clients:
            driver = self.clients[subject]
            members = {"client": self.mark + subject, **members}
        else:
            driver, handle = self.handles[subject]
            members = {handle: self.mark + subject, **members}
        tags = [w[1:] for w in rest if w.startswith("&")]
        if verb in GIVES_HANDLE:
            kind = "watch" if verb in ("watch", "observe") else "held"
            self.handles[rest[0]] = driver, kind
            members[kind] = self.mark + rest[0]
        request = driver.ask(verb, members)
        for tag in tags:
            self.requests[tag] = driver, request
        if not tags:
            await self.expect(driver, request, want)

    async def expect(self, driver, request, want):
        answer = await asyncio.wait_for(asyncio.shield(driver.answers[request]), WAIT_S)
        want = want or {"ok": {}}
        if not same(answer, want, self.names):
            raise Wrong(f"answered {json.dumps(answer)[:600]}")
        return answer

    async def answer(self, driver, op, members):
        return await self.expect(driver, driver.ask(op, members), {"ok": {}})

    async def any_until(self, client, members, op, *rest):
        """[a until show, members, want]: asks again until this is the answer"""
        want = members.pop("want")
        while True:
            try:
                return await self.op(client, op, members, {"ok": want}, [])
            except Wrong:
                await asyncio.sleep(0.01)

    async def any_answers(self, tag, want):
        """[tag answers, want]"""
        answer = await self.expect(*self.requests[tag], want)
        self.names[f"${tag}.at"] = answer["at"]

    async def any_waits(self, tag, members):
        """It has no answer yet: asked after another one was answered."""
        driver, request = self.requests[tag]
        if driver.answers[request].done():
            raise Wrong(f"answered {driver.answers[request].result()}")

    async def any_cancel(self, tag, members):
        driver, request = self.requests[tag]
        await self.answer(driver, "cancel", {"target": request})

    async def any_tells(self, subject, want, *note):
        """[tag or handle tells, event]: waits for an event of it."""
        if subject in self.requests:
            driver, request = self.requests[subject]
            whose = {"id": request}
        elif subject in self.handles:
            driver, kind = self.handles[subject]
            whose = {kind: self.mark + subject}
        else:
            driver, whose = self.clients[subject], {}
        event = await driver.event({**want, **whose}, lambda got, w: same(got, w, dict(self.names)))
        same(event, want, self.names)
        for name in note:
            self.names[name] = event["at"]

    async def names_rise(self, subject, names):
        values = [self.names[n] for n in names]
        if sorted(values) != values or len(set(values)) != len(values):
            raise Wrong(f"{values} do not rise")

    async def any_close(self, client, members):
        await self.answer(self.clients[client], "close", {"client": self.mark + client})

    # ---- what happens to clients and nodes

    async def any_cut(self, client, members, *rest):
        """[a cut &c, {"where", "command"}]"""
        cut = self.routes[client].cut = Cut(members["where"], members["command"])
        self.requests["cut"] = cut

    async def cut_happened(self, subject, members):
        await asyncio.wait_for(self.requests["cut"].done.wait(), WAIT_S)

    async def any_reset(self, client, members):
        self.routes[client].reset()

    async def any_hush(self, client, members):
        """Nothing passes from now on; every connection stays open."""
        self.routes[client].open.clear()

    async def any_speak(self, client, members):
        self.routes[client].open.set()

    async def any_forget(self, client, members):
        self.routes[client].commands.clear()

    async def any_sent(self, client, names):
        """Since `forget` it has sent nothing but these, and some of them."""
        sent = set(self.routes[client].commands)
        if not sent or not sent <= set(names):
            raise Wrong(f"it sent {sorted(sent)}")

    async def any_stop(self, process, members):
        self.own[process].process.send_signal(signal.SIGSTOP)

    async def any_go(self, process, members):
        self.own[process].process.send_signal(signal.SIGCONT)

    async def any_kill(self, process, members):
        self.own[process].kill()

    async def node(self, client):
        """The node that the client is connected to."""
        driver = self.clients[client]
        ok = (await self.answer(driver, "where", {"client": self.mark + client}))["ok"]
        return self.routes[client].ports.index(int(ok["address"].rpartition(":")[2]))

    async def nodes_stop(self, subject, members, client):
        """[nodes stop a]: the node where a is hangs"""
        self.names["$stopped"] = await self.node(client)
        self.nodes.kill(self.names["$stopped"], signal.SIGSTOP)

    async def nodes_go(self, subject, members):
        self.nodes.kill(self.names["$stopped"], signal.SIGCONT)

    async def nodes_restart(self, subject, members):
        """[nodes restart, [options]]: those that are killed; or the only one, with other options."""
        await self.nodes.restart(members or None)

    async def nodes_open(self, subject, clients):
        """[nodes open, {client: options}]: further clients"""
        for client, options in clients.items():
            await self.open(client, options)

    async def nodes_close(self, subject, members):
        await self.nodes.close_to_all()


class Servers:
    """Clusters are kept for the next scenario; what runs alone in memory is quicker made anew."""

    def __init__(self):
        self.cluster = None
        self.cluster_free = asyncio.Lock()

    async def take(self, n, options):
        if n == 1:
            return await Alone(options).start()
        await self.cluster_free.acquire()
        if not self.cluster:
            self.cluster = await asyncio.to_thread(Cluster().__enter__)
        return self.cluster

    async def give_back(self, nodes):
        if nodes is self.cluster:
            await nodes.restart()
            self.cluster_free.release()
        else:
            await asyncio.to_thread(nodes.__exit__, None, None, None)

    def end(self):
        if self.cluster:
            self.cluster.__exit__(None, None, None)


class Cluster(Nodes):
    def __init__(self):
        super().__init__(3)

    async def restart(self, options=None):
        for i, p in enumerate(self.processes):
            p.send_signal(signal.SIGCONT) if p.poll() is None else self.start(i)
        await asyncio.to_thread(lambda: [self.ready(i) for i in range(self.n)])


class Alone(Nodes):
    """One node; its directory has certificates (`@ca.crt`) and, once it is closed, a token (`@token`)."""

    def __init__(self, options):
        super().__init__(1)
        self.options = options

    def place(self, what):
        if what == "token":
            return self.token
        if what == "tls":
            return f"tls://127.0.0.1:{self.ports[0]}"
        if what == "direct":
            return f"127.0.0.1:{self.ports[0]}"
        if what == "unix":
            return f"unix://{self.dir}/belay.sock"
        return os.path.join(self.dir, what)

    def command(self, i):
        engine = ["--data", self.data(i)] if "--data" in self.options else ["--memory"]
        own = [self.place(o[1:]) if o.startswith("@") else o for o in self.options if o != "--data"]
        return [*self.programs[i], "serve", *engine, "--listen", f"127.0.0.1:{self.ports[i]}", *own]

    async def start(self):
        self.certificates()
        self.ports[0] = 0  # any; from now on the one that it has got
        await asyncio.to_thread(self.start_one)
        return self

    def start_one(self):
        p = super().start(0, wait=False)
        line = p.stdout.readline().decode()
        if not line.startswith("listening "):
            raise AssertionError(f"no server: {self.log(0)[-1500:]}")
        self.ports[0] = int(line.split()[1].rpartition(":")[2])

    def cert(self, *words):
        subprocess.run([*self.programs[0], "cert", *words, "--out", self.dir], check=True, capture_output=True)

    def certificates(self):
        if any(o.startswith("--tls") for o in self.options) and not os.path.exists(self.place("ca.crt")):
            self.cert("ca")
            self.cert("node", "n1", "--host", "127.0.0.1", "--ca", self.dir)

    async def restart(self, options=None):
        self.kill(0)
        if options:
            self.options = options
            self.certificates()
        await asyncio.to_thread(self.start_one)
        await asyncio.to_thread(self.ready, 0)

    async def close_to_all(self):
        """`auth init`: from now on everybody needs a token."""
        ran = subprocess.run([*self.programs[0], "auth", "init"], check=True, capture_output=True,
                             env={**os.environ, "BELAY_ADDR": f"127.0.0.1:{self.ports[0]}"})
        self.token = [w for w in ran.stdout.decode().split() if w.startswith("blt_")][0]
        if os.path.exists(self.place("ca.key")):
            number = self.token.split("_")[1]
            self.cert("client", number, "--account", "default", "--ca", self.dir)
            for end in ("crt", "key"):
                os.rename(self.place(f"{number}.{end}"), self.place(f"client.{end}"))
