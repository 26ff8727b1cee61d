"""What is proven for a while, and renewed in time.

    sent           sent + ttl/3           proven - early        proven = sent + ttl
    |--------------|----------------------|---------------------|
    | proven       | renewed, again and   | told: lost          | somebody else may have it
    |              | again until answered |                     |

A lease is proven from the moment when a request that renewed it was *sent*: whenever the server took it, its end
there is later.
"""

from __future__ import annotations

import asyncio
from typing import Awaitable, Callable, Optional

from ._wire import now

AGAIN = 0.05  #: s after a renewal that failed


class Gone(Exception):
    """The server says that it is over; str() is why."""


class Lease:
    """``renew`` asks once: it may raise Gone; after any other error it is asked again. ``lost`` is called once."""

    def __init__(self, ttl: float, early: Optional[float], sent: float, renew: Callable[[], Awaitable[None]],
                 lost: Callable[[str], None]) -> None:
        self.ttl = ttl
        self.early = min(ttl / 10 if early is None else early, ttl / 2)
        self.proven = sent + ttl
        self._renew, self._lost = renew, lost
        self._renewal: Optional["asyncio.Task[None]"] = None
        self._is_over = False
        loop = asyncio.get_running_loop()
        self._end_timer = loop.call_later(self.proven - self.early - now(), self._look)
        self._renew_timer = loop.call_later(sent + ttl / 3 - now(), self._start)

    def renewed(self, sent: float) -> None:
        self.proven = max(self.proven, sent + self.ttl)
        self._next(sent + self.ttl / 3)

    def end(self) -> None:
        self._is_over = True
        self._end_timer.cancel()
        self._renew_timer.cancel()
        if self._renewal and self._renewal is not asyncio.current_task():
            self._renewal.cancel()

    def _next(self, when: float) -> None:
        self._renew_timer.cancel()
        if not self._is_over:
            self._renew_timer = asyncio.get_running_loop().call_later(when - now(), self._start)

    def _look(self) -> None:
        left = self.proven - self.early - now()
        if self._is_over:
            return
        if left > 0:
            self._end_timer = asyncio.get_running_loop().call_later(left, self._look)
        else:
            self._over("silence")

    def _over(self, why: str) -> None:
        if not self._is_over:
            self.end()
            self._lost(why)

    def _start(self) -> None:
        if self._renewal or self._is_over:
            return
        if now() >= self.proven - self.early:
            return self._over("silence")
        self._renewal = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        sent = now()
        try:
            await self._renew()
        except Gone as e:
            self._over(str(e))
        except Exception:
            self._renewal = None
            self._next(now() + AGAIN)
        else:
            self._renewal = None
            self.renewed(sent)
