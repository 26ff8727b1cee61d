"""beat.py FILE [stubborn] [for=MS]: a command that says every 2 ms that it lives, and so does its child.

Each line of FILE: fence, pid, nanoseconds of CLOCK_BOOTTIME. `stubborn` ignores TERM, so that only
KILL ends it. Lines are short appends: they do not mix.
"""
import os
import signal
import sys
import time

if "stubborn" in sys.argv[2:]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.fork()
fence, pid = os.environ["BELAY_FENCE"], os.getpid()
limit = [int(w[4:]) / 1000 for w in sys.argv[2:] if w.startswith("for=")]
end = time.monotonic() + limit[0] if limit else float("inf")
while time.monotonic() < end:
    os.write(fd, b"%s %d %d\n" % (fence.encode(), pid, time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
    time.sleep(0.002)
