"""A lock that is held, as the client keeps it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ._lease import Gone, Lease
from ._link import Session
from ._wire import now
from .errors import Lost, ServerError

if TYPE_CHECKING:
    from ._engine import Engine

OnLost = Callable[[Lost], None]


class Hold:
    """One lock. It is renewed until it is released or lost."""

    def __init__(self, engine: "Engine", name: str, owner: str, session: Session, ttl: Optional[float]) -> None:
        self.name, self.owner, self.session, self.ttl = name, owner, session, ttl
        self.fence, self.body = 0, b""
        self.is_over = False
        self.lost: Optional[Lost] = None
        self.converting = 0
        self.on_lost: Optional[OnLost] = None
        self.lease: Optional[Lease] = None
        self._engine = engine

    def begin(self, fence: int, body: bytes, sent: float, early: Optional[float]) -> None:
        self.fence, self.body = fence, body
        if self.ttl:
            self.lease = Lease(self.ttl, early, sent, self._renew, self.lose)

    def is_proven(self) -> bool:
        at = now()
        in_time = at < self.session.proven and (not self.lease or at < self.lease.proven)
        return in_time and not self.is_over

    async def _renew(self) -> None:
        fence = self.fence
        try:
            await self._engine.link.once("RENEW", self.name, fence, "TTL", round((self.ttl or 0) * 1000))
        except ServerError as e:
            is_gone = e.code == "STALE" and fence == self.fence and not self.converting
            if is_gone or e.code == "NONAMESPACE":
                raise Gone("stale" if e.code == "STALE" else "namespace") from None
            raise

    def end(self) -> bool:
        """False: it was over already."""
        was_over, self.is_over = self.is_over, True
        if self.lease:
            self.lease.end()
        if not was_over:
            self._engine.drop(self)
        return not was_over

    def lose(self, reason: str, by: str = "", text: str = "") -> None:
        if self.end():
            self.lost = Lost(self.name, self.fence, reason, by, text)
            self._engine.options.logger.warning("%s", self.lost)
            if self.on_lost:
                self.on_lost(self.lost)


class BaseHeld:
    """What both faces of a Held have in common. Some locks, usually one; lost is what comes first."""

    def __init__(self, engine: "Engine", holds: List[Hold], on_lost: Optional[OnLost], signal: Any) -> None:
        self._engine, self._holds, self._on_lost = engine, holds, on_lost
        self._signal = signal  #: a future of asyncio or of concurrent.futures
        self._pid = os.getpid()
        self._lost: Optional[Lost] = None
        for hold in holds:
            hold.on_lost = self._lose
        for lost in [hold.lost for hold in holds if hold.lost][:1]:  # while others were waited for
            self._lose(lost)

    @property
    def _is_foreign(self) -> bool:
        """This process is a child of the one that holds it."""
        return self._pid != os.getpid()

    @property
    def _is_over(self) -> bool:
        return self._is_foreign or all(hold.is_over for hold in self._holds)

    def _give_back(self) -> None:
        for hold in self._holds:
            self._engine.give_back(hold)

    def _lose(self, lost: Lost) -> None:
        if self._lost:
            return
        self._lost = lost
        self._signal.set_result(lost)
        if self._on_lost:
            try:
                self._on_lost(lost)
            except Exception:
                self._engine.options.logger.exception("on_lost of %s failed", lost.name)

    @property
    def _only(self) -> Hold:
        if len(self._holds) > 1:
            raise ValueError("not of several locks at once")
        if self._is_foreign:
            raise Lost(self.name, self.fence, "fork")
        return self._holds[0]

    @property
    def name(self) -> str:
        return self._holds[0].name

    @property
    def owner(self) -> str:
        """By this name others see who holds it."""
        return self._holds[0].owner

    @property
    def fence(self) -> int:
        """Only grows: give it to what you write to, which refuses a smaller one. Of several locks: the last one's."""
        return self._holds[-1].fence

    @property
    def fences(self) -> Dict[str, int]:
        return {hold.name: hold.fence for hold in self._holds}

    @property
    def body(self) -> bytes:
        """What was stored with the lock when it was granted."""
        return self._holds[0].body

    def held(self) -> bool:
        """Do I hold it now? By the clock alone, so it is right directly after a stop of the process, too."""
        return not self._lost and not self._is_foreign and all(hold.is_proven() for hold in self._holds)

    def __repr__(self) -> str:
        names: Any = self.fences if len(self._holds) > 1 else f"{self.name!r}, fence {self.fence}"
        return f"<{type(self).__name__} {names}{'' if self.held() else ', not held'}>"
