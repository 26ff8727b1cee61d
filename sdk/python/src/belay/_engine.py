"""The flows of a client: take, convert, give back. One loop; both faces of the library stand on it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from typing import Any, Callable, Coroutine, Dict, List, NamedTuple, Optional, Set, Tuple, Union

from . import _resp
from ._dial import Options, Words
from ._held import Hold
from ._link import Call, Link, Session, SessionOver
from ._wire import Broken, now
from .errors import BelayError, Closed, Deadlock, Holder, Refused, ServerError, TimedOut, Unreachable, Wait

WAIT_MAX = 7 * 24 * 3600.0
PLACE = 1.0  #: s between two looks at the place in a line

OnPlace = Callable[[int], None]


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def _seconds(milliseconds: int) -> Optional[float]:
    return None if milliseconds < 0 else milliseconds / 1000


class Want(NamedTuple):
    """What is asked of a lock; the options of ``Client.lock``."""

    names: Tuple[str, ...]
    owner: Optional[str] = None
    ttl: Optional[float] = None
    wait: Optional[float] = None
    shared: bool = False
    permits: int = 1
    of: Optional[int] = None
    body: Union[bytes, str, None] = None
    grace: float = 0
    delay: float = 0
    early: Optional[float] = None
    on_place: Optional[OnPlace] = None

    def check(self) -> None:
        """Raises ValueError."""
        durations = [d for d in (self.ttl, self.wait, self.grace, self.delay, self.early) if d is not None]
        if not self.names or not all(self.names):
            raise ValueError("a lock needs a name")
        if any(d < 0 for d in durations) or self.ttl == 0:
            raise ValueError("a duration is negative, or a ttl of 0")
        if self.shared and self.of:
            raise ValueError("a semaphore is neither shared nor exclusive")
        if self.of is None and self.permits != 1:
            raise ValueError("permits need a semaphore: give `of`")


class Engine:
    """Everything here runs in one event loop."""

    def __init__(self, options: Options, owner: str, session_ttl: float) -> None:
        self.options, self.owner, self.session_ttl = options, owner, session_ttl
        self.link = Link(options, self._pushed, self._session_over)
        self._holds: Dict[Tuple[str, str], Hold] = {}  #: by name and owner; also those that are asked for
        self._ttls: "Counter[float]" = Counter()
        self._owners = 0
        self._broken_by: Tuple[int, str, str] = (0, "", "")
        self._leaving: Dict[Tuple[str, str], "asyncio.Task[None]"] = {}
        self._background: Set["asyncio.Task[Any]"] = set()
        self.streams: Set[Any] = set()  #: they end with the client

    # ---- what is held

    def _add(self, name: str, owner: str, ttl: Optional[float]) -> Hold:
        if (name, owner) in self._holds:
            raise ValueError(f"{owner} has {name} already, or waits for it")
        hold = self._holds[name, owner] = Hold(self, name, owner, self._session(), ttl)
        if ttl:
            self._ttls[ttl] += 1
            self._hurry()
        return hold

    def drop(self, hold: Hold) -> None:
        self._holds.pop((hold.name, hold.owner), None)
        if hold.ttl:
            self._ttls[hold.ttl] -= 1
            if not self._ttls[hold.ttl]:
                del self._ttls[hold.ttl]
                self._hurry()

    def _hurry(self) -> None:
        ttls = [*self._ttls, *([self.link.session.ttl] if self.link.session else [])]
        self.link.hurry(min(ttls, default=None))

    def _session(self) -> Session:
        if not self.link.session:
            self.link.begin(Session(self.link, secrets.token_hex(16), self.session_ttl, self.owner))
            self._hurry()
        assert self.link.session
        return self.link.session

    def _session_over(self, session: Session, why: str) -> None:
        for hold in [h for h in self._holds.values() if h.session is session and h.fence]:
            hold.lose(why)
        self._hurry()

    def _pushed(self, push: _resp.Push) -> None:
        word, name, fence = push[0], _resp.text(push[1]), push[2]
        if word == b"broken-by":
            self._broken_by = (fence, _resp.text(push[3]), _resp.text(push[4]))
        elif word == b"session-ended" and self.link.session and self.link.session.id == name:
            self.link.session_over(self.link.session, "session")
        elif word in (b"broken", b"expired"):
            by = self._broken_by[1:] if self._broken_by[0] == fence else ("", "")
            for hold in [h for h in self._holds.values() if h.fence == fence and h.name == name]:
                hold.lose(_resp.text(push[5]), *by)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def attached(self) -> Session:
        """The session, when the server knows it."""
        while True:
            session = self._session()
            try:
                if not session.is_open:
                    await self.link.ask("PING", session=session)
                return session
            except SessionOver:
                pass

    async def in_session(self, session: Session, *words: _resp.Word) -> Any:
        try:
            return await self.link.ask(*words, session=session)
        except SessionOver:
            raise ServerError("NOSESSION the session of this client is over") from None

    async def call(self, *words: _resp.Word) -> Any:
        """Once, on the connection that is there or comes."""
        try:
            if not self.link.wire:
                await self.link.ask("PING")
            return await asyncio.wait_for(self.link.once(*words), self.options.timeout)
        except (Broken, asyncio.TimeoutError) as e:
            raise Unreachable(str(e) or "no answer in time") from None

    # ---- take

    async def acquire(self, want: Want) -> List[Hold]:
        """All of them or none, one after another in the order of their bytes."""
        want.check()
        self._owners += 1
        owner = want.owner or f"{self.owner}#{self._owners}"
        deadline = None if want.wait is None else now() + want.wait
        holds: List[Hold] = []
        try:
            for name in sorted(set(want.names), key=lambda n: n.encode("utf-8", "surrogateescape")):
                while (name, owner) in self._leaving:  # the line that it has just left
                    await asyncio.wait([self._leaving[name, owner]])
                holds.append(await self._acquire(self._add(name, owner, want.ttl), want, deadline))
        except BaseException:
            for hold in holds:
                self.give_back(hold)
            raise
        return holds

    async def _acquire(self, hold: Hold, want: Want, deadline: Optional[float]) -> Hold:
        try:
            while True:
                hold.session = self._session()
                left = WAIT_MAX if deadline is None else max(0.0, deadline - now())
                try:
                    if await self._ask_for(hold, want, left, endless=deadline is None):
                        return hold
                except SessionOver:
                    pass  # in a new session, at the end of the line
        except BaseException:
            hold.end()
            raise

    async def _ask_for(self, hold: Hold, want: Want, wait: float, endless: bool) -> bool:
        """False: it is to be asked for again."""
        place = _Place(want.on_place, self.options.logger)
        call = self._ask(hold, want, wait, place)
        looking = self.spawn(self._look(hold, call, place)) if want.on_place else None
        try:
            return await self._granted(hold, call, await call.future, want.early)
        except SessionOver:
            raise
        except TimedOut:
            if not endless:
                raise
            return False
        except BaseException:
            reply = _outcome(call)
            if reply is None:
                self._leave_line(hold, want, call.session)
            elif reply[0] == b"granted":
                self.spawn(self._release(hold, reply[1]))
            raise
        finally:
            self.link.forget(call)
            if looking:
                looking.cancel()

    def _ask(self, hold: Hold, want: Want, wait: float, on_place: OnPlace,
             patient: bool = False) -> Call:
        words: List[_resp.Word] = ["ACQUIRE", hold.name, hold.owner]
        if want.of:
            words += ["PERMITS", want.permits, "OF", want.of]
        elif want.shared:
            words += ["MODE", "shared"]
        words += ["TTL", ms(want.ttl or 0), "SESSION", hold.session.id]
        if wait > 0:
            words += ["WAIT", max(1, ms(wait)), "NOBLOCK"]
        if want.grace:
            words += ["GRACE", ms(want.grace)]
        if want.delay:
            words += ["DELAY", ms(want.delay)]
        if want.body is not None:
            words += ["BODY", want.body]
        words += ["REQUEST", self.link.request_id()]
        timeout = None if patient or wait >= WAIT_MAX else wait + self.options.timeout
        return self.link.call(tuple(words), hold.session, timeout, on_place, patient)

    async def _granted(self, hold: Hold, call: Call, reply: List[Any], early: Optional[float]) -> bool:
        _raise_unless_granted(hold.name, reply)
        sent = call.first_sent
        if hold.ttl and (call.was_parked or now() - sent > hold.ttl / 3):
            sent = now()
            try:
                await self.link.ask("RENEW", hold.name, reply[1], "TTL", ms(hold.ttl), session=hold.session)
            except ServerError as e:
                if e.code == "STALE":
                    return False
                raise
        if hold.ttl and now() >= sent + hold.ttl:
            return False
        hold.begin(reply[1], reply[3], sent, early)
        return True

    async def _look(self, hold: Hold, call: Call, place: "_Place") -> None:
        while True:
            await asyncio.sleep(PLACE)
            if not call.was_parked:
                continue
            try:
                lock = await self.link.ask("SHOW", hold.name)
            except BelayError:
                return
            for waiter in lock["waiters"]:
                if _resp.text(waiter["owner"]) == hold.owner and waiter["session"] == hold.session.id.encode():
                    place(waiter["position"])

    def _leave_line(self, hold: Hold, want: Want, session: Optional[Session]) -> None:
        """Nobody wants it any more: the place is taken over for a moment, and what is granted is given back."""
        key = hold.name, hold.owner
        hold.session = session or hold.session

        async def leave() -> None:
            try:
                call = self._ask(hold, want._replace(body=None), 0.001, lambda place: None, patient=True)
                reply = await call.future
                if reply[0] == b"granted":
                    await self._release(hold, reply[1])
            except (SessionOver, ServerError, Closed):
                pass  # nothing is left of it
            finally:
                del self._leaving[key]

        self._leaving[key] = self.spawn(leave())

    # ---- give back

    def give_back(self, hold: Hold) -> "asyncio.Task[bool]":
        """It is not held any more from now on; the server is told until it has heard."""
        return self.spawn(self._release(hold, hold.fence) if hold.end() else _false())

    async def _release(self, hold: Hold, fence: int) -> bool:
        words: Words = ("RELEASE", hold.name, fence, "REQUEST", self.link.request_id())
        timeout = max(0.0, hold.lease.proven - now()) if hold.lease else None
        try:
            return bool(await self.link.call(words, hold.session, timeout, patient=True).future)
        except (SessionOver, Unreachable, Closed):
            return False  # it has ended with its lease, its session or the client

    async def release(self, hold: Hold) -> bool:
        task = self.give_back(hold)
        try:
            return await asyncio.wait_for(asyncio.shield(task), self.options.timeout)
        except asyncio.TimeoutError:
            raise Unreachable(f"{hold.name}: the release goes on, but was not answered yet") from None

    # ---- change

    async def convert(self, hold: Hold, shared: bool, wait: Optional[float]) -> int:
        if hold.lost:
            raise hold.lost
        if hold.is_over or hold.converting:
            raise ValueError(f"{hold.name} was released, or is being converted")
        call = self._ask_convert(hold, shared, WAIT_MAX if wait is None else wait)
        try:
            self._converted(hold, await call.future, call)
        except SessionOver:
            pass  # it is lost, which says why
        except ServerError as e:
            if e.code != "STALE":
                raise
            hold.lose("stale")
        except BaseException:
            reply = _outcome(call)
            if reply is None:
                self.spawn(self._end_conversion(hold, shared))
            elif reply[0] == b"granted":
                self._converted(hold, reply, call)
            raise
        finally:
            self.link.forget(call)
            hold.converting -= 1
        if hold.lost:
            raise hold.lost
        return hold.fence

    def _ask_convert(self, hold: Hold, shared: bool, wait: float, patient: bool = False) -> Call:
        words: List[_resp.Word] = ["CONVERT", hold.name, hold.fence, "MODE", "shared" if shared else "exclusive"]
        if wait > 0:
            words += ["WAIT", max(1, ms(wait)), "NOBLOCK"]
        words += ["REQUEST", self.link.request_id()]
        timeout = None if patient or wait >= WAIT_MAX else wait + self.options.timeout
        call = self.link.call(tuple(words), hold.session, timeout, lambda place: None, patient)
        hold.converting += 1
        return call

    def _converted(self, hold: Hold, reply: List[Any], call: Call) -> None:
        if reply[:2] == [b"refused", b"lost"]:
            hold.lose("stale")
        if hold.lost:
            raise hold.lost
        _raise_unless_granted(hold.name, reply)
        hold.fence = reply[1]
        if hold.lease:
            hold.lease.renewed(call.first_sent)
        if hold.is_over:
            self.spawn(self._release(hold, hold.fence))

    async def _end_conversion(self, hold: Hold, shared: bool) -> None:
        call = self._ask_convert(hold, shared, 0.001, patient=True)
        try:
            self._converted(hold, await call.future, call)
        except (SessionOver, BelayError):
            pass  # it is as it was, or it is lost, which says why
        finally:
            hold.converting -= 1

    async def set_body(self, hold: Hold, body: Union[bytes, str]) -> None:
        if hold.lost:
            raise hold.lost
        sent, words = now(), ("BODY", hold.name, hold.fence, body, "REQUEST", self.link.request_id())
        try:
            await self.link.ask(*words, session=hold.session)
        except SessionOver:
            pass
        except ServerError as e:
            if e.code != "STALE":
                raise
            hold.lose("stale")
        if hold.lost:
            raise hold.lost
        if hold.lease and not hold.is_over:
            hold.lease.renewed(sent)

    async def check(self, hold: Hold) -> bool:
        return bool(await self.link.ask("CHECK", hold.name, hold.fence))

    async def close(self) -> None:
        for hold in list(self._holds.values()):
            hold.end()
        for stream in list(self.streams):
            stream.close()
        await self.link.close()
        await asyncio.gather(*self._background, return_exceptions=True)  # their calls have ended


class _Place:
    """Tells the place in the line when it is another one."""

    def __init__(self, tell: Optional[OnPlace], logger: logging.Logger) -> None:
        self._tell, self._logger, self._last = tell, logger, 0

    def __call__(self, place: int) -> None:
        if self._tell and place != self._last:
            self._last = place
            try:
                self._tell(place)
            except Exception:
                self._logger.exception("on_place failed")


def _outcome(call: Call) -> Optional[List[Any]]:
    """What was answered; None: it may still be carried out. [b"failed"]: it was not."""
    future = call.future
    if not call.first_sent:
        return [b"failed"]
    if not future.done() or future.cancelled() or isinstance(future.exception(), Unreachable):
        return None
    return [b"failed"] if future.exception() else future.result()


async def _false() -> bool:
    return False


def _raise_unless_granted(name: str, reply: List[Any]) -> None:
    if reply[0] == b"granted":
        return
    if reply[0] == b"timeout":
        raise TimedOut(name)
    if reply[0] == b"deadlock":
        raise Deadlock(name, tuple(Wait(_resp.text(w[0]), _resp.text(w[1])) for w in reply[1:]))
    holders = tuple(Holder(_resp.text(h[0]), _resp.text(h[1]), h[2], _seconds(h[3])) for h in reply[2:])
    raise Refused(name, _resp.text(reply[1]), holders)
