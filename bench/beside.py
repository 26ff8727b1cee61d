"""beside.py - two servers in turns, by one client: what bench/locks and bench/tls share."""
import json
import os
import socket
import statistics
import subprocess
import sys
import time

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 3
BELAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "belay")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(command, port):
    """On core 0."""
    server = subprocess.Popen(["taskset", "-c", "0"] + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"{command[0]} did not start")


def bench(server, address, *options):
    """`belay bench` on core 1."""
    out = subprocess.run(
        ["taskset", "-c", "1", BELAY, "bench", "--json", "--addr", address, "--server-pid", str(server.pid), *options],
        check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def median(runs, key):
    return statistics.median(r[key] for r in runs)


def ratio(above, below, key):
    """The median of the ratios within rounds: what disturbs both servers of a round does not count."""
    return statistics.median(a[key] / b[key] for a, b in zip(above, below))


def cpu_s(pid):
    """CPU seconds of a process so far, to the nanosecond: clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | 2)


def stop(*servers):
    for s in servers:
        s.terminate()
        s.wait()


def table(head, ours, redis, *more):
    """Both are (process, address): a row of Markdown for each depth."""
    print(f"| {head} | Belay ops/s | Redis ops/s | ratio | server CPU us/op, Belay | Redis | ratio |")
    print("|---|---|---|---|---|---|---|")
    for depth in (1, 16):
        a, b = [], []
        for _ in range(ROUNDS):
            common = ["--connections", "50", "--pipeline", str(depth), "--duration", f"{int(SECONDS * 1000)}ms", *more]
            a.append(bench(*ours, *common))
            b.append(bench(*redis, "--redis", *common))
        rate, cpu = "ops_per_s", "server_cpu_us_per_op"
        print(f"| pipelined {depth} deep | {median(a, rate):,.0f} | {median(b, rate):,.0f} | **{ratio(a, b, rate):.2f}** | "
              f"{median(a, cpu):.2f} | {median(b, cpu):.2f} | **{ratio(b, a, cpu):.2f}** |", flush=True)
