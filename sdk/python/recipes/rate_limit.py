"""Not more than so many at once, or in so many seconds, in all processes together."""

import threading
from contextlib import contextmanager
from typing import Iterator

import belay


def at_once(client: belay.Client, name: str, most: int) -> belay.Lock:
    """``with at_once(client, "smtp", 5):`` five blocks at once, of all programs."""
    return client.lock(f"limit/{name}", of=most)


@contextmanager
def per_period(client: belay.Client, name: str, most: int, seconds: float) -> Iterator[None]:
    """``most`` blocks begin in ``seconds``: a permit is given back only when its time is over."""
    held = client.lock(f"limit/{name}", of=most, ttl=max(1.0, 3 * seconds)).acquire()
    timer = threading.Timer(seconds, held.release)
    timer.daemon = True
    timer.start()
    yield


if __name__ == "__main__":
    with belay.Client() as client:
        for i in range(10):
            with per_period(client, "api", 3, 1.0):
                print("request", i)
