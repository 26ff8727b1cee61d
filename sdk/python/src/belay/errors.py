"""What can go wrong, as types. All of them are a :class:`BelayError`."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

__all__ = [
    "BelayError", "Closed", "Deadlock", "Holder", "Lost", "NotAcquired", "Refused", "ServerError", "TimedOut",
    "Unreachable", "Wait",
]


class Holder(NamedTuple):
    """Who holds a lock that was refused."""

    owner: str
    mode: str  #: ``exclusive``, ``shared`` or ``semaphore``
    fence: int
    expires_in: Optional[float]  #: seconds; None: as long as its session


class Wait(NamedTuple):
    """One step of a deadlock."""

    owner: str
    waits_for: str


class BelayError(Exception):
    """Anything that this library raises by itself."""


class NotAcquired(BelayError):
    """The lock was not granted: :class:`Refused`, :class:`TimedOut` or :class:`Deadlock`."""


class Refused(NotAcquired):
    """The lock cannot be had now. ``reason`` is the server's word: ``held``, ``kind``, ``closed``..."""

    def __init__(self, name: str, reason: str, holders: Tuple[Holder, ...] = ()) -> None:
        by = " by " + ", ".join(h.owner for h in holders) if holders else ""
        super().__init__(f"{name}: {reason}{by}")
        self.name, self.reason, self.holders = name, reason, holders


class TimedOut(NotAcquired):
    """The wait in the line is over."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: the wait is over")
        self.name = name


class Deadlock(NotAcquired):
    """Waiting would never end: the owners of ``cycle`` wait for each other."""

    def __init__(self, name: str, cycle: Tuple[Wait, ...]) -> None:
        super().__init__(f"{name}: " + ", ".join(f"{w.owner} waits for {w.waits_for}" for w in cycle))
        self.name, self.cycle = name, cycle


class Lost(BelayError):
    """A lock that was held is not held any more, or will soon not be.

    ``reason`` is the server's word (``break``, ``ttl``, ``session``...), ``stale`` if it did not say, or ``silence``
    if it was not heard: then nobody else can have the lock yet. ``by`` and ``text`` say which token broke it, and
    why, if an operator did.
    """

    def __init__(self, name: str, fence: int, reason: str, by: str = "", text: str = "") -> None:
        super().__init__(f"{name} (fence {fence}) is lost: {reason}" + (f", {text}" if text else ""))
        self.name, self.fence, self.reason, self.by, self.text = name, fence, reason, by, text


class ServerError(BelayError):
    """The server's answer is an error. ``code`` is its word: ``DENIED``, ``LIMIT``, ``RANGE``..."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code, _, self.message = text.partition(" ")


class Unreachable(BelayError):
    """No node has answered in time. The request may have been carried out."""


class Closed(BelayError):
    """The client was closed."""

    def __init__(self) -> None:
        super().__init__("the client is closed")
