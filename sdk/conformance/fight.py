"""Many fight for one lock, and count in a file that only its holder may touch. Then the log is judged."""
import asyncio
import os
import shutil
import tempfile

from play import WAIT_S, Driver, Wrong


class Fight:
    """`paths` are the drivers, one process each."""

    def __init__(self, nodes, paths, tasks, rounds):
        self.nodes, self.paths, self.tasks, self.rounds = nodes, paths, tasks, rounds
        self.addresses = ",".join(f"127.0.0.1:{port}" for port in nodes.ports)
        self.kills = 0

    async def begin(self, path):
        driver = await Driver(path).start()
        opened = driver.ask("open", {"client": "c", "addresses": self.addresses, "timeout": 60000,
                                      "session_ttl": 3000})
        await driver.answers[opened]
        request = driver.ask("count", {"client": "c", "name": "counter", "file": self.file, "log": self.log,
                                       "tasks": self.tasks, "rounds": self.rounds, "ttl": 2000})
        return driver, request

    async def play(self, faults=None):
        self.dir = tempfile.mkdtemp(prefix="belay-fight-")
        self.file, self.log = os.path.join(self.dir, "file"), os.path.join(self.dir, "log")
        for path, text in ((self.file, b"0" * 20), (self.log, b"")):
            with open(path, "wb") as f:
                f.write(text)
        self.running = [await self.begin(path) for path in self.paths]
        try:
            self.judge(await asyncio.wait_for(self.run(faults), 2 * WAIT_S))
        except asyncio.TimeoutError:
            raise Wrong(f"it goes on for ever; the last of {len(self.lines())}: {self.lines()[-3:]}") from None
        finally:
            for driver, _ in self.running:
                driver.kill()
                await driver.process.wait()
            shutil.rmtree(self.dir)

    async def run(self, faults):
        if faults:
            await faults(self)
        return [await driver.answers[request] for driver, request in self.running]

    def lines(self):
        with open(self.log, encoding="ascii") as f:
            return [(int(v), int(fence), language) for v, fence, language in map(str.split, f)]

    async def until(self, share):
        """Waits until so many parts of the work are in the log."""
        want = share * len(self.paths) * self.tasks * self.rounds
        while len(self.lines()) < want:
            if all(driver.answers[request].done() for driver, request in self.running):
                raise Wrong(f"it ended early: {[d.answers[r].result() for d, r in self.running]}")
            await asyncio.sleep(0.02)

    def judge(self, done):
        per_process = self.tasks * self.rounds
        if any(answer.get("ok") != {"done": per_process} for answer in done):
            raise Wrong(f"not all was done: {done}")
        lines = self.lines()
        for before, after in zip(lines, lines[1:]):
            if not (before[0] < after[0] and before[1] < after[1]):
                raise Wrong(f"two holders at once: {before}, then {after}")
        with open(self.file, encoding="ascii") as f:
            total = int(f.read())
        if not len(lines) <= total <= len(lines) + self.kills:
            raise Wrong(f"{len(lines)} in the log, {total} in the file, {self.kills} kills")
        if len(lines) < per_process * len(self.paths):
            raise Wrong(f"{len(lines)} in the log")


async def kill_all_kinds(fight):
    """Each process is killed once and another one begins in its place; then a node is killed, and comes back."""
    for i, path in enumerate(fight.paths):
        await fight.until((i + 1) / (len(fight.paths) + 2))
        fight.running[i][0].kill()
        await fight.running[i][0].process.wait()
        fight.kills += 1
        fight.running[i] = await fight.begin(path)
    await fight.until((len(fight.paths) + 1) / (len(fight.paths) + 2))
    fight.nodes.kill(0)
    await fight.until(1)
    await fight.nodes.restart()
