"""What has a connection of its own, because it could hold back or flood others: watches, and transactions that wait."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional

from . import _resp
from ._dial import PAUSE_MIN, Denied, Dialer
from ._engine import Engine
from ._wire import Broken, Wire
from .errors import ServerError, Unreachable
from .txn import Result

NEWS_MAX = 1024  #: events that nobody has taken; then nothing more is read


class Event(NamedTuple):
    """News of a lock. ``gone``: some may be missing, read the state again."""

    event: str  #: ``granted``, ``queued``, ``released``, ``expired``, ``broken``...
    seq: int
    name: str
    owner: Optional[str]
    fence: Optional[int]
    members: Dict[str, Any]  #: everything that the server says


class Leader(NamedTuple):
    """Who leads, as all see it."""

    owner: str
    fence: int
    body: bytes  #: what the leader says of itself


def _event(members: Dict[str, Any]) -> Event:
    said = {k: _resp.text(v) if isinstance(v, bytes) else v for k, v in members.items()}
    return Event(said["event"], said["seq"], said.get("name", ""), said.get("owner"), said.get("fence"), said)


GONE = Event("gone", 0, "", None, None, {})


class Watch:
    """Events in their order; after a broken connection it goes on where it stopped."""

    def __init__(self, engine: Engine, prefix: str) -> None:
        self._engine, self._prefix = engine, prefix
        self._dialer = Dialer(engine.options)
        self._wire: Optional[Wire] = None
        self._news: Deque[Event] = deque()
        self._wake = asyncio.Event()
        self._seen = 0
        self._error: Optional[Exception] = None
        self._was_here = self._is_closed = False
        self._run: Optional["asyncio.Task[None]"] = None

    async def start(self) -> None:
        """Returns when nothing is missed from now on."""
        self._engine.streams.add(self)
        self._run = self._engine.spawn(self._connect())
        done, _ = await asyncio.wait([self._run], timeout=self._engine.options.timeout)
        if not done:
            self.close()
            raise Unreachable(self._dialer.why)
        if self._error:
            raise self._error

    async def _connect(self) -> None:
        while True:
            try:
                wire, _ = await self._dialer.dial([], self._pushed, self._ended)
                return await self._ask(wire)
            except Denied as e:
                return self._fail(e.error)
            except ServerError as e:
                return self._fail(e)
            except Broken:
                pass

    async def _ask(self, wire: Wire) -> None:
        words: List[_resp.Word] = ["WATCH", *(["PREFIX", self._prefix] if self._prefix else [])]
        since: List[_resp.Word] = ["SINCE", self._seen] if self._seen else []
        self._wire = wire
        try:
            if self._was_here and not self._seen:
                self._tell(GONE)  # where it began is not known
            await wire.request(*words, *since)
        except ServerError as e:
            if e.code != "GONE":
                wire.reset(str(e))
                raise
            self._tell(GONE)
            await wire.request(*words)
        self._was_here = True
        self._dialer.is_good()
        wire.watch_over(True)

    def _pushed(self, push: _resp.Push) -> None:
        if push[0] == b"event" and len(push) == 4:
            event = _event(push[3])
            self._seen = event.seq
            self._tell(event)

    def _tell(self, event: Event) -> None:
        self._news.append(event)
        self._wake.set()
        if self._wire:
            self._wire.pause(len(self._news) >= NEWS_MAX)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._wake.set()

    def _ended(self, wire: Wire, why: str) -> None:
        if wire is self._wire:
            self._wire = None
            self._dialer.leave()
            self._engine.options.logger.info("watch: left %s: %s", wire.address.text, why)
            if self._run and self._run.done() and not self._is_closed:
                self._run = self._engine.spawn(self._connect())

    async def next(self) -> Event:
        """Raises StopAsyncIteration at the end, and the server's refusal."""
        while not self._news:
            if self._is_closed:
                raise StopAsyncIteration
            if self._error:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        event = self._news.popleft()
        if self._wire:
            self._wire.pause(len(self._news) >= NEWS_MAX)
        return event

    def close(self) -> None:
        self._is_closed = True
        self._engine.streams.discard(self)
        self._news.clear()
        self._wake.set()
        if self._run:
            self._run.cancel()
        if self._wire:
            self._wire.close()


class Observation:
    """The leaders of an election, one after the other."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self._watch = Watch(engine, name)
        self._is_first = self._has_news = True
        self._last: Optional[Leader] = None

    async def start(self) -> None:
        await self._watch.start()

    async def next(self) -> Optional[Leader]:
        while True:
            while not self._has_news:
                self._has_news = (await self._watch.next()).name in (self._name, GONE.name)
            present = await leader(self._engine, self._name)
            self._has_news = False
            if self._is_first or present != self._last:
                self._is_first, self._last = False, present
                return present

    def close(self) -> None:
        self._watch.close()


async def leader(engine: Engine, name: str) -> Optional[Leader]:
    lock = await engine.link.ask("SHOW", name)
    for holder in lock["holders"]:
        return Leader(_resp.text(holder["owner"]), holder["fence"], lock["body"])
    return None


# ---- transactions


async def transact(engine: Engine, document: Dict[str, Any], wait: float) -> Result:
    session = await engine.attached()
    document = {**document, "session": session.id, "wait_ms": round(wait * 1000)}
    words = ("TXN", json.dumps(document), "REQUEST", engine.link.request_id())
    if not wait:
        reply = await engine.in_session(session, *words)
    else:
        try:
            reply = await asyncio.wait_for(_aside(engine, words), wait + engine.options.timeout)
        except asyncio.TimeoutError:
            raise Unreachable("no answer to the transaction in time") from None
    status, failed, cause, _, _, _, data = reply
    return Result(_resp.text(status), _said(cause), _said(failed), {_resp.text(n): json.loads(v) for n, v in data})


def _said(raw: Optional[bytes]) -> Optional[str]:
    return _resp.text(raw) if raw else None


async def _aside(engine: Engine, words: Any) -> Any:
    """On a connection of its own, to the node that the client is connected to, and left together with it."""
    while True:
        dialer = Dialer(engine.options, at=engine.link.at)
        try:
            wire, _ = await dialer.dial([], lambda push: None, lambda wire, why: None)
        except Denied as e:
            raise e.error from None
        try:
            with engine.link.beside(wire):
                return await wire.request(*words)
        except Broken:
            await asyncio.sleep(PAUSE_MIN)
        except ServerError as e:
            if e.code != "UNAVAILABLE":
                raise
        finally:
            wire.close()
