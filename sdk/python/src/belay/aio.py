"""The client for asyncio."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Any, Dict, Generator, Generic, Iterable, List, Optional, Type, TypeVar, Union

from . import _resp, _stream
from ._engine import Engine, OnPlace, Want
from ._held import BaseHeld, Hold, OnLost
from ._options import BaseClient
from ._stream import Event, Leader
from .errors import Closed, Lost, Unreachable
from .txn import JSON, Result

T = TypeVar("T")
Bytes = Union[bytes, str]

_before_fork: List[Any] = []  #: what a child process must neither use nor clear away


class AsyncHeld(BaseHeld):
    """A lock, or several, that this client holds. It is renewed until :meth:`release`."""

    @property
    def lost(self) -> "asyncio.Future[Lost]":
        """Is done when the lock is lost; never, if it is released before."""
        return asyncio.shield(self._signal)

    async def check(self) -> bool:
        """Do I hold it? Asks the server."""
        return not self._is_foreign and all([await self._engine.check(hold) for hold in self._holds])

    async def set_body(self, body: Bytes) -> None:
        """Stores a body with the lock. Raises :class:`Lost`."""
        await self._engine.set_body(self._only, body)

    async def convert(self, *, shared: bool, wait: Optional[float] = None) -> int:
        """Between shared and exclusive, holding it meanwhile; answers the new fence.

        Raises :class:`NotAcquired`: it is held as before. :class:`Lost`: it is not.
        """
        return await self._engine.convert(self._only, shared, wait)

    async def release(self) -> bool:
        """Gives it back; False: it was not held any more."""
        return not self._is_over and all(await asyncio.gather(*(self._engine.release(h) for h in self._holds)))


class AsyncLock:
    """What :meth:`AsyncClient.lock` makes: ``async with`` it, or ``await`` it for an :class:`AsyncHeld`."""

    def __init__(self, client: "AsyncClient", want: Want, on_lost: Optional[OnLost]) -> None:
        self._client, self._want, self._on_lost = client, want, on_lost
        self._held: Optional[AsyncHeld] = None
        self._task: Optional["asyncio.Task[Any]"] = None
        self._has_cancelled = False

    async def acquire(self) -> AsyncHeld:
        """Waits for it. Raises :class:`NotAcquired`."""
        engine = self._client._engine
        holds: List[Hold] = await engine.acquire(self._want)
        return AsyncHeld(engine, holds, self._lose, asyncio.get_running_loop().create_future())

    def __await__(self) -> Generator[Any, None, AsyncHeld]:
        return self.acquire().__await__()

    def _lose(self, lost: Lost) -> None:
        if self._task:
            self._has_cancelled = self._task.cancel()
        if self._on_lost:
            self._on_lost(lost)

    async def __aenter__(self) -> AsyncHeld:
        if self._held:
            raise RuntimeError("this lock is in a block already; make another one with client.lock()")
        held = await self.acquire()
        self._held, self._task = held, asyncio.current_task()
        if held._lost:  # before there was a block to cancel
            await self.__aexit__(None, None, None)
        return held

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        held, self._held = self._held, None
        task, self._task = self._task, None
        was_cancelled, self._has_cancelled = self._has_cancelled, False
        assert held and task
        by_us = was_cancelled and kind is not None and issubclass(kind, asyncio.CancelledError)
        if was_cancelled:
            await _take_back(task, is_delivered=by_us)
        try:
            await held.release()
        except Unreachable as e:
            self._client._options.logger.warning("%s", e)
        if held._lost and (kind is None or by_us):
            raise held._lost from None


async def _take_back(task: "asyncio.Task[Any]", is_delivered: bool) -> None:
    """The cancellation was for a block that is over."""
    if not is_delivered:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
    if hasattr(task, "uncancel"):
        task.uncancel()


class AsyncStream(Generic[T]):
    """Iterate over it with ``async for``; ``async with`` it, or ``await`` it, to begin at a known moment."""

    def __init__(self, client: "AsyncClient", source: Any) -> None:
        self._client, self._make = client, source
        self._source: Any = None

    async def start(self) -> "AsyncStream[T]":
        if not self._source:
            source = self._make(self._client._engine)
            await source.start()
            self._source = source
        return self

    def __await__(self) -> Generator[Any, None, "AsyncStream[T]"]:
        return self.start().__await__()

    async def close(self) -> None:
        if self._source:
            self._source.close()

    async def __aenter__(self) -> "AsyncStream[T]":
        return await self.start()

    async def __aexit__(self, *error: Any) -> None:
        await self.close()

    def __aiter__(self) -> "AsyncStream[T]":
        return self

    async def __anext__(self) -> T:
        await self.start()
        try:
            return await self._source.next()  # type: ignore[no-any-return]
        except StopAsyncIteration:
            raise StopAsyncIteration from None


class AsyncElection:
    """One leads, the others wait; all may look."""

    def __init__(self, client: "AsyncClient", name: str) -> None:
        self._client, self.name = client, name

    def campaign(self, body: Optional[Bytes] = None, *, ttl: Optional[float] = None, wait: Optional[float] = None,
                 on_lost: Optional[OnLost] = None) -> AsyncLock:
        """Waits until this client leads; it does until the lock is released or lost."""
        return self._client.lock(self.name, body=b"" if body is None else body, ttl=ttl, wait=wait, on_lost=on_lost)

    async def leader(self) -> Optional[Leader]:
        return await _stream.leader(self._client._engine, self.name)

    def observe(self) -> AsyncStream[Optional[Leader]]:
        """The present leader, and then each other one; None: there is none."""
        return AsyncStream(self._client, lambda engine: _stream.Observation(engine, self.name))


class AsyncClient(BaseClient[AsyncLock]):
    __doc__ = BaseClient.__doc__

    _made: Optional[Engine] = None
    _made_in: Any = None
    _is_closed = False

    @property
    def _engine(self) -> Engine:
        here = os.getpid(), asyncio.get_running_loop()
        if self._is_closed:
            raise Closed
        if self._made_in != here:
            if self._made and self._made_in[0] == here[0]:
                raise RuntimeError("this client belongs to another event loop")
            _before_fork.append(self._made)  # None: there was none
            self._made, self._made_in = self._new_engine(), here
        assert self._made
        return self._made

    @property
    def address(self) -> str:
        """The node that it is connected to; ``""``: to none."""
        return self._made.link.address if self._made else ""

    @property
    def session(self) -> str:
        """The id of its session; ``""``: there is none."""
        return self._made.link.session.id if self._made and self._made.link.session else ""

    def _lock(self, want: Want, on_lost: Optional[OnLost]) -> AsyncLock:
        return AsyncLock(self, want, on_lost)

    def election(self, name: str) -> AsyncElection:
        return AsyncElection(self, name)

    def watch(self, prefix: str = "") -> AsyncStream[Event]:
        """The events of all locks whose names begin with ``prefix``."""
        return AsyncStream(self, lambda engine: _stream.Watch(engine, prefix))

    async def transaction(self, statements: Iterable[JSON], *, wait: float = 0, description: str = "",
                          min_uptime: int = 0, min_trust: float = 0) -> Result:
        """All or nothing, in the session of this client; :mod:`belay.txn` makes statements."""
        document = {"statements": list(statements), "min_uptime_s": min_uptime, "min_trust": min_trust}
        return await _stream.transact(self._engine, {**document, "description": description}, wait)

    async def show(self, name: str) -> Dict[str, Any]:
        """The lock: ``state``, ``holders``, ``waiters``, ``body``..."""
        lock: Dict[str, Any] = _readable(await self._engine.link.ask("SHOW", name))
        return {**lock, "body": lock["body"].encode("utf-8", "surrogateescape")}

    async def break_lock(self, name: str, reason: str = "") -> int:
        """Takes it away from its holders; answers how many there were."""
        engine = self._engine
        why = ["REASON", reason] if reason else []
        return int(await engine.link.ask("BREAK", name, *why, "REQUEST", engine.link.request_id()))

    async def call(self, *words: _resp.Word) -> Any:
        """Any command, sent once. Not for those of the connection, nor for those that wait."""
        return await self._engine.call(*words)

    async def close(self) -> None:
        """Releases everything; calls that wait raise :class:`Closed`."""
        engine, self._made, self._is_closed = self._made, None, True
        if engine and self._made_in[0] == os.getpid():
            await engine.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.close()


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _readable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_readable(v) for v in value]
    return _resp.text(value) if isinstance(value, bytes) else value
