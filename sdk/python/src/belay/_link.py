"""The one connection of a client, made anew whenever it breaks, and the calls that outlive it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

from . import _resp
from ._dial import CONNECT, Denied, Dialer, Options, Words
from ._lease import Gone, Lease
from ._wire import SILENCE, Broken, Wire, now
from .errors import Closed, ServerError, Unreachable

OUTCOMES = (b"granted", b"refused", b"timeout", b"deadlock")


class SessionOver(Exception):
    """The session that a call was made in is over."""


class Session:
    """Opened with the first connection that needs it, and attached to each one after that."""

    def __init__(self, link: "Link", session_id: str, ttl: float, description: str) -> None:
        self.id, self.ttl = session_id, ttl
        self._link, self.is_open = link, False
        self._open: Words = (
            "SESSION", "OPEN", "TTL", round(ttl * 1000), "DESCRIPTION", description, "ID", session_id,
            "REQUEST", link.request_id())
        self._lease: Optional[Lease] = None

    @property
    def proven(self) -> float:
        return self._lease.proven if self._lease else 0.0

    def greeting(self) -> List[Words]:
        attach: Words = ("SESSION", "ATTACH", self.id)
        return [attach] if self.is_open else [self._open, attach]

    def greeted(self, answers: List[Any], sent: float) -> None:
        """Raises what was answered, if it was an error; SessionOver among them."""
        for answer in answers:
            if isinstance(answer, ServerError) and answer.code == "NOSESSION":
                raise SessionOver
            if isinstance(answer, BaseException):
                raise answer
        self.is_open = True
        if self._lease:
            self._lease.renewed(sent)
        else:
            self._lease = Lease(self.ttl, None, sent, self._keep, lambda why: self._link.session_over(self, why))

    async def _keep(self) -> None:
        if await self._link.once("SESSION", "KEEPALIVE", self.id) == 0:
            raise Gone("session")

    def end(self) -> None:
        if self._lease:
            self._lease.end()


class Call:
    """A request that is sent again until it is answered."""

    __slots__ = ("data", "future", "session", "on_place", "first_sent", "since", "wire", "was_parked", "timer", "patient")

    def __init__(self, data: bytes, session: Optional[Session]) -> None:
        self.data, self.session = data, session
        self.future: "asyncio.Future[Any]" = asyncio.get_running_loop().create_future()
        self.on_place: Optional[Callable[[int], None]] = None  #: it may have to wait in a line
        self.first_sent = 0.0  #: 0: never
        self.since = 0.0  #: it has been on no connection since then
        self.wire: Optional[Wire] = None  #: it was sent there
        self.was_parked = False
        self.patient = False  #: it waits for a connection however long that takes
        self.timer: Optional[asyncio.TimerHandle] = None


class Link:
    """``on_push`` gets what is not about a place in a line, ``on_session_over`` each session that has ended."""

    def __init__(self, options: Options, on_push: Callable[[_resp.Push], None],
                 on_session_over: Callable[[Session, str], None]) -> None:
        self.options = options
        self.session: Optional[Session] = None
        self.wire: Optional[Wire] = None  #: ready for requests
        self._on_push, self._on_session_over = on_push, on_session_over
        self._dialer = Dialer(options)
        self._calls: Dict[Call, None] = {}  #: in the order in which they were made
        self._parked: Dict[int, Call] = {}
        self._beside: Set[Wire] = set()
        self._limit = SILENCE
        self._opening: Optional["asyncio.Task[None]"] = None
        self._is_closed = False
        self._id, self._requests = secrets.token_hex(12), 0
        self._loop = asyncio.get_running_loop()

    # ---- calls

    def request_id(self) -> str:
        self._requests += 1
        return f"{self._id}-{self._requests}"

    def call(self, words: Words, session: Optional[Session] = None, timeout: Optional[float] = None,
             on_place: Optional[Callable[[int], None]] = None, patient: bool = False) -> Call:
        """Sends it until it is answered. ``timeout`` (None: none) ends it, and having no connection for long."""
        if self._is_closed:
            raise Closed
        call = Call(_resp.encode(words), session)
        call.on_place, call.patient = on_place, patient
        if timeout is not None:
            call.timer = self._loop.call_later(timeout, self._give_up, call)
        self._calls[call] = None
        if self.wire:
            self._send(call, self.wire)
        else:
            self._lack(call)
            self.connect()
        return call

    async def ask(self, *words: _resp.Word, session: Optional[Session] = None) -> Any:
        call = self.call(words, session, self.options.timeout)
        try:
            return await call.future
        finally:
            self.forget(call)

    def once(self, *words: _resp.Word) -> "asyncio.Future[Any]":
        """On this connection or not at all: raises Broken."""
        if not self.wire:
            raise Broken("not connected")
        return self.wire.request(*words)

    def forget(self, call: Call) -> None:
        """Nobody waits for the answer any more."""
        self._calls.pop(call, None)
        if call.timer:
            call.timer.cancel()
        if call.was_parked:
            for ticket in [t for t, c in self._parked.items() if c is call]:
                del self._parked[ticket]
            self._watch_over()

    def _lack(self, call: Call) -> None:
        call.since = now()
        if not call.patient:
            self._loop.call_later(self.options.timeout, self._give_up_lacking, call, call.since)

    def _give_up_lacking(self, call: Call, since: float) -> None:
        if not self.wire and call.since == since:
            self._give_up(call)

    def _give_up(self, call: Call) -> None:
        self._finish(call, Unreachable(self._dialer.why if not self.wire else f"{self.address}: no answer in time"))

    def _finish(self, call: Call, reply: Any) -> None:
        if call not in self._calls:
            return
        self.forget(call)
        if call.future.done():
            return
        if isinstance(reply, Exception):
            call.future.set_exception(reply)
            call.future.exception()  # it may be that nobody looks
        else:
            call.future.set_result(reply)

    # ---- on a connection

    def _send(self, call: Call, wire: Wire) -> None:
        call.first_sent = call.first_sent or now()
        call.since, call.wire = 0.0, wire
        wire.send(call.data, lambda reply: self._answered(call, wire, reply))

    def _answered(self, call: Call, wire: Wire, reply: Any) -> None:
        if isinstance(reply, Broken) or call not in self._calls:
            return
        if isinstance(reply, ServerError) and reply.code == "UNAVAILABLE":
            return self.leave(wire, str(reply))
        self._dialer.is_good()
        if call.on_place and isinstance(reply, list) and reply[0] == b"queued":
            call.was_parked = True
            self._parked[reply[1]] = call
            self._watch_over()
            call.on_place(reply[2])
        else:
            self._finish(call, reply)

    def _pushed(self, push: _resp.Push) -> None:
        self._dialer.is_good()
        word = push[0]
        if len(push) != 6 or (word not in OUTCOMES and word != b"failed"):
            return self._on_push(push)
        call = self._parked.get(push[3])
        if not call:
            return
        if word == b"failed" and self.wire:
            return self.leave(self.wire, _resp.text(push[5]))
        if call.session and [word, push[5]] == [b"refused", b"session"]:
            return self.session_over(call.session, "session")
        self._finish(call, [word, push[2], push[4], push[5]] if word == b"granted" else [word, push[5]])

    def _watch_over(self) -> None:
        if self.wire:
            self.wire.watch_over(bool(self._parked or self._beside), self._limit)

    def hurry(self, least_ttl: Optional[float]) -> None:
        """The shortest lease: a silent node must be left in time for two others to be tried."""
        self._limit, self._dialer.connect = SILENCE, CONNECT
        if least_ttl is not None and len(self.options.addresses) > 1:
            limit = max(0.05, least_ttl * (1 - 1 / 3 - 1 / 10) / 3)
            self._limit, self._dialer.connect = min(SILENCE, limit), min(CONNECT, limit)
        self._watch_over()

    @contextlib.contextmanager
    def beside(self, wire: Wire) -> Iterator[None]:
        """A connection to the same node, which may be silent: it is left when this one is."""
        wire.watch_over(False, math.inf)
        self._beside.add(wire)
        self._watch_over()
        try:
            yield
        finally:
            self._beside.discard(wire)
            self._watch_over()

    # ---- connecting

    @property
    def at(self) -> int:
        return self._dialer.at

    @property
    def address(self) -> str:
        return self.wire.address.text if self.wire else ""

    def connect(self) -> None:
        if not self._opening and not self._is_closed:
            self._opening = self._loop.create_task(self._open(self.wire))
            self.wire = None

    def begin(self, session: Session) -> None:
        """From now on connections are greeted with it; the one that is there as well."""
        self.session = session
        if self.wire:
            self.connect()

    async def _open(self, wire: Optional[Wire]) -> None:
        try:
            while True:
                session, sent = self.session, now()
                more = session.greeting() if session else []
                if not wire:
                    wire, answers = await self._dialer.dial(more, self._pushed, self._ended)
                    self.options.logger.info("connected to %s", wire.address.text)
                else:
                    answers = await asyncio.gather(*(wire.request(*w) for w in more), return_exceptions=True)
                if session:
                    try:
                        session.greeted(answers, sent)
                    except SessionOver:
                        self.session_over(session, "session")
                    except Broken:
                        wire = None
                        continue
                if self.session is session or not self.session:
                    break
        except (Denied, ServerError) as e:
            self._opening = None
            self._refused(wire, e.error if isinstance(e, Denied) else e)
        else:
            self._opening = None
            self._ready(wire)

    def _refused(self, wire: Optional[Wire], error: ServerError) -> None:
        self.options.logger.warning("the server refuses this client: %s", error)
        if wire:
            wire.reset(str(error))
            self._dialer.leave()
        for call in list(self._calls):
            self._finish(call, error)
        if self.session and self.session.proven:
            self.connect()  # what it holds is kept for as long as it can be
        else:
            self.session = None

    def _ready(self, wire: Wire) -> None:
        self.wire = wire
        self._watch_over()
        for call in list(self._calls):
            if call.wire is not wire:
                self._send(call, wire)

    # ---- its end

    def leave(self, wire: Wire, why: str) -> None:
        wire.reset(why)

    def _ended(self, wire: Wire, why: str) -> None:
        if wire is not self.wire:
            return
        self.wire = None
        self._parked.clear()
        if self._is_closed:
            return
        self._dialer.why = f"{wire.address.text}: {why}"
        self._dialer.leave()
        self.options.logger.warning("left %s", self._dialer.why)
        for other in list(self._beside):
            other.reset(why)
        for call in list(self._calls):
            self._lack(call)
        if self._calls or self.session:
            self.connect()

    def session_over(self, session: Session, why: str) -> None:
        if session is not self.session:
            return
        self.session = None
        session.end()
        self.options.logger.warning("session %s is over: %s", session.id, why)
        self._on_session_over(session, why)
        for call in [c for c in self._calls if c.session is session]:
            self._finish(call, SessionOver())
        if why == "silence" and self.wire:
            self.leave(self.wire, "is silent")

    async def close(self) -> None:
        session, self.session = self.session, None
        self._is_closed = True
        if session:
            session.end()
        for call in list(self._calls):
            self._finish(call, Closed())
        if self.wire and session:
            try:
                close = self.wire.request("SESSION", "CLOSE", session.id, "REQUEST", self.request_id())
                await asyncio.wait_for(close, 1)
            except (Broken, ServerError, asyncio.TimeoutError):
                pass  # then the end of the connection says it
        if self._opening:
            self._opening.cancel()
        if self.wire:
            self.wire.close()
