"""python.py - locks of Python, by TASKS threads or asyncio tasks of one process.

    python.py belay|belay-asyncio|redis|redis-asyncio|kazoo pair|handover TASKS WARM_S SECONDS PORT

Prints what run wants to know as JSON. Peers may keep the lock object of a task; Belay makes one each time."""
import asyncio
import json
import os
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sdk", "python", "src"))
system, mode, tasks, warm_s, seconds, port = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]), *map(float, sys.argv[4:6]), int(sys.argv[6])
TTL_S, HELD_S = 30, 0.001
run_name = f"bench-{os.getpid()}"


def name_of(i):
    return f"{run_name}-{i}" if mode == "pair" else run_name


class Score:
    """What all tasks did. `rests` has an event for each task: set when another one has the lock that it gave back."""

    def __init__(self, event):
        self.pairs, self.times, self.inside = 0, [], 0
        self.last, self.given_at = None, 0
        self.rests = [event() for _ in range(tasks)] if mode == "handover" else []

    def granted(self):
        now = time.perf_counter_ns()
        self.inside += 1
        if self.inside != 1:
            os.abort()
        if self.last is not None:
            self.times.append(now - self.given_at)
            self.rests[self.last].set()

    def gives(self, i):
        self.inside -= 1
        self.last, self.given_at = i, time.perf_counter_ns()

    def mark(self):
        return self.pairs, len(self.times), time.perf_counter(), time.process_time()

    def end(self, before):
        pairs, times, at, cpu = (b - a for a, b in zip(before, self.mark()))
        print(json.dumps({"pairs": pairs, "s": at, "cpu_s": cpu,
                          "handover_us": statistics.median(self.times[-times:]) / 1000 if times else None}), flush=True)
        os._exit(0)  # what is held ends with its session or lease


def threads(lock_of):
    score = Score(threading.Event)

    def work(i):
        lock = lock_of(i)
        while True:
            with lock():
                if score.rests:
                    score.granted()
                    time.sleep(HELD_S)
                    score.gives(i)
            score.pairs += 1
            if score.rests:
                score.rests[i].wait()
                score.rests[i].clear()

    for i in range(tasks):
        threading.Thread(target=work, args=(i,), daemon=True).start()
    time.sleep(warm_s)
    before = score.mark()
    time.sleep(seconds)
    score.end(before)


async def coroutines(lock_of):
    score = Score(asyncio.Event)

    async def work(i):
        lock = lock_of(i)
        while True:
            async with lock():
                if score.rests:
                    score.granted()
                    await asyncio.sleep(HELD_S)
                    score.gives(i)
            score.pairs += 1
            if score.rests:
                await score.rests[i].wait()
                score.rests[i].clear()

    running = [asyncio.create_task(work(i)) for i in range(tasks)]
    await asyncio.sleep(warm_s)
    before = score.mark()
    await asyncio.sleep(seconds)
    for task in running:
        if task.done():
            task.result()
    score.end(before)


def always(lock):
    return lambda: lock


def main():
    threading.excepthook = lambda failed: (sys.__excepthook__(*failed[:3]), os._exit(1))
    if system.startswith("belay"):
        import belay
        make = belay.Client if system == "belay" else belay.AsyncClient
        client = make(f"127.0.0.1:{port}")
        ttl = TTL_S if os.environ.get("BENCH_LEASE") else None
        lock_of = lambda i: lambda: client.lock(name_of(i), ttl=ttl)
    elif system == "kazoo":
        from kazoo.client import KazooClient
        client = KazooClient(f"127.0.0.1:{port}")
        client.start()
        lock_of = lambda i: always(client.Lock("/" + name_of(i)))
    else:
        import redis
        import redis.asyncio
        client = (redis if system == "redis" else redis.asyncio).Redis(port=port)
        lock_of = lambda i: always(client.lock(name_of(i), timeout=TTL_S))
    if system.endswith("asyncio"):
        asyncio.run(coroutines(lock_of))
    else:
        threads(lock_of)


main()
