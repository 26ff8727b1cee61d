"""The client for threads: the asyncio client in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from types import TracebackType
from typing import Any, Callable, Coroutine, Dict, Generic, Iterable, List, Optional, Type, TypeVar, Union

from . import _resp
from ._engine import Want
from ._held import OnLost
from ._options import Addresses, BaseClient
from .aio import AsyncClient, AsyncElection, AsyncHeld, AsyncLock, AsyncStream
from ._stream import Event, Leader
from .errors import Closed, Lost, Unreachable
from .txn import JSON, Result

T = TypeVar("T")
Bytes = Union[bytes, str]

_before_fork: List[Any] = []  #: loops of the parent, which a child must not clear away


class _Runner:
    """A thread that runs an event loop until it is stopped."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self.loop.run_forever, name="belay", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T],
              unwanted: Callable[[T], None] = lambda result: None) -> "concurrent.futures.Future[T]":
        """``unwanted`` gets the result in the loop if it comes although it was cancelled."""
        future: "concurrent.futures.Future[T]" = concurrent.futures.Future()
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a callback must not wait for the client that calls it")

        def done(task: "asyncio.Task[T]") -> None:
            is_wanted = future.set_running_or_notify_cancel()
            if task.cancelled():
                error: Optional[BaseException] = Closed() if self._is_stopped else concurrent.futures.CancelledError()
            else:
                error = task.exception()
            if is_wanted and error:
                future.set_exception(error)
            elif is_wanted:
                future.set_result(task.result())
            elif not error:
                unwanted(task.result())

        def begin() -> None:
            task = self.loop.create_task(work)
            task.add_done_callback(done)
            future.add_done_callback(lambda f: self.loop.call_soon_threadsafe(task.cancel) if f.cancelled() else None)

        with self._lock:
            if self._is_stopped:
                work.close()
                raise Closed
            self.loop.call_soon_threadsafe(begin)
        return future

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return _result(self.start(work))

    def stop(self) -> None:
        """What is under way raises Closed."""
        with self._lock:
            self._is_stopped = True
        asyncio.run_coroutine_threadsafe(_end_all(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _result(future: "concurrent.futures.Future[T]") -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()  # of an interrupt: nobody waits for it any more
        raise


class Held:
    """A lock, or several, that this client holds. It is renewed until :meth:`release`."""

    def __init__(self, runner: _Runner, held: AsyncHeld) -> None:
        self._runner, self._held = runner, held
        self._converting: Optional["concurrent.futures.Future[int]"] = None

    @property
    def name(self) -> str:
        return self._held.name

    @property
    def owner(self) -> str:
        """By this name others see who holds it."""
        return self._held.owner

    @property
    def fence(self) -> int:
        """Only grows: give it to what you write to, which refuses a smaller one. Of several locks: the last one's."""
        return self._held.fence

    @property
    def fences(self) -> Dict[str, int]:
        return self._held.fences

    @property
    def body(self) -> bytes:
        """What was stored with the lock when it was granted."""
        return self._held.body

    @property
    def lost(self) -> "concurrent.futures.Future[Lost]":
        """Is done when the lock is lost; never, if it is released before."""
        return self._held._signal  # type: ignore[no-any-return]

    def held(self) -> bool:
        """Do I hold it now? By the clock alone, so it is right directly after a stop of the process, too."""
        return self._held.held()

    def check(self) -> bool:
        """Do I hold it? Asks the server."""
        return not self._held._is_foreign and self._runner.run(self._held.check())

    def set_body(self, body: Bytes) -> None:
        """Stores a body with the lock. Raises :class:`Lost`."""
        _ = self._held._only
        self._runner.run(self._held.set_body(body))

    def convert(self, *, shared: bool, wait: Optional[float] = None) -> int:
        """Between shared and exclusive, holding it meanwhile; answers the new fence.

        Raises :class:`NotAcquired`: it is held as before. :class:`Lost`: it is not. CancelledError, when another
        thread calls :meth:`cancel`.
        """
        _ = self._held._only
        self._converting = future = self._runner.start(self._held.convert(shared=shared, wait=wait))
        return _result(future)

    def cancel(self) -> None:
        """Ends a :meth:`convert` that waits in another thread: it is held as before."""
        if self._converting:
            self._converting.cancel()

    def release(self) -> bool:
        """Gives it back; False: it was not held any more."""
        try:
            return not self._held._is_over and self._runner.run(self._held.release())
        except Closed:
            return False

    def __repr__(self) -> str:
        return repr(self._held).replace("AsyncHeld", "Held")


class Lock:
    """What :meth:`Client.lock` makes: use it ``with`` a block, or :meth:`acquire`."""

    def __init__(self, client: "Client", want: Want, on_lost: Optional[OnLost]) -> None:
        self._client, self._want, self._on_lost = client, want, on_lost
        self._held: Optional[Held] = None
        self._acquiring: Optional["concurrent.futures.Future[AsyncHeld]"] = None

    def acquire(self) -> Held:
        """Waits for it. Raises :class:`NotAcquired`; CancelledError, when another thread calls :meth:`cancel`."""
        runner = self._client._runner
        self._acquiring = future = runner.start(self._acquire(), unwanted=AsyncHeld._give_back)
        try:
            return Held(runner, future.result())
        except BaseException:
            if not future.cancel() and not future.exception():
                runner.start(future.result().release())  # interrupted when it had just come
            raise
        finally:
            self._acquiring = None

    async def _acquire(self) -> AsyncHeld:
        engine = self._client._inner._engine
        return AsyncHeld(engine, await engine.acquire(self._want), self._on_lost, concurrent.futures.Future())

    def cancel(self) -> None:
        """Ends an :meth:`acquire` in another thread: its place in the line is given up."""
        if self._acquiring:
            self._acquiring.cancel()

    def __enter__(self) -> Held:
        if self._held:
            raise RuntimeError("this lock is in a block already; make another one with client.lock()")
        self._held = self.acquire()
        return self._held

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        held, self._held = self._held, None
        assert held
        try:
            held.release()
        except Unreachable as e:
            self._client._options.logger.warning("%s", e)
        if held._held._lost and kind is None:
            raise held._held._lost


class Stream(Generic[T]):
    """Iterate over it; ``with`` it, or :meth:`start` it, to begin at a known moment."""

    def __init__(self, client: "Client", stream: AsyncStream[T]) -> None:
        self._runner, self._stream = client._runner, stream

    def start(self) -> "Stream[T]":
        self._runner.run(self._stream.start())
        return self

    def close(self) -> None:
        """An iteration in another thread ends."""
        self._runner.run(self._stream.close())

    def __enter__(self) -> "Stream[T]":
        return self.start()

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __iter__(self) -> "Stream[T]":
        return self

    def __next__(self) -> T:
        try:
            return self._runner.run(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


class Election:
    """One leads, the others wait; all may look."""

    def __init__(self, client: "Client", election: AsyncElection) -> None:
        self._client, self._election = client, election
        self.name = election.name

    def campaign(self, body: Optional[Bytes] = None, *, ttl: Optional[float] = None, wait: Optional[float] = None,
                 on_lost: Optional[OnLost] = None) -> Lock:
        """Waits until this client leads; it does until the lock is released or lost."""
        return self._client.lock(self.name, body=b"" if body is None else body, ttl=ttl, wait=wait, on_lost=on_lost)

    def leader(self) -> Optional[Leader]:
        return self._client._runner.run(self._election.leader())

    def observe(self) -> Stream[Optional[Leader]]:
        """The present leader, and then each other one; None: there is none."""
        return Stream(self._client, self._election.observe())


class Client(BaseClient[Lock]):
    __doc__ = BaseClient.__doc__

    def __init__(self, addresses: Addresses = None, **options: Any) -> None:
        super().__init__(addresses, **options)
        self._inner = AsyncClient(addresses, **options)
        self._made: Optional[_Runner] = None
        self._making = threading.Lock()
        self._is_closed = False

    @property
    def _runner(self) -> _Runner:
        with self._making:
            if self._is_closed:
                raise Closed
            if not self._made or self._made.pid != os.getpid():
                _before_fork.append(self._made)
                self._made = _Runner()
            return self._made

    @property
    def address(self) -> str:
        """The node that it is connected to; ``""``: to none."""
        return self._inner.address

    @property
    def session(self) -> str:
        """The id of its session; ``""``: there is none."""
        return self._inner.session

    def _lock(self, want: Want, on_lost: Optional[OnLost]) -> Lock:
        return Lock(self, want, on_lost)

    def election(self, name: str) -> Election:
        return Election(self, self._inner.election(name))

    def watch(self, prefix: str = "") -> Stream[Event]:
        """The events of all locks whose names begin with ``prefix``."""
        return Stream(self, self._inner.watch(prefix))

    def transaction(self, statements: Iterable[JSON], *, wait: float = 0, description: str = "", min_uptime: int = 0,
                    min_trust: float = 0) -> Result:
        """All or nothing, in the session of this client; :mod:`belay.txn` makes statements."""
        return self._runner.run(self._inner.transaction(
            statements, wait=wait, description=description, min_uptime=min_uptime, min_trust=min_trust))

    def show(self, name: str) -> Dict[str, Any]:
        """The lock: ``state``, ``holders``, ``waiters``, ``body``..."""
        return self._runner.run(self._inner.show(name))

    def break_lock(self, name: str, reason: str = "") -> int:
        """Takes it away from its holders; answers how many there were."""
        return self._runner.run(self._inner.break_lock(name, reason))

    def call(self, *words: _resp.Word) -> Any:
        """Any command, sent once. Not for those of the connection, nor for those that wait."""
        return self._runner.run(self._inner.call(*words))

    def close(self) -> None:
        """Releases everything; calls of other threads that wait raise :class:`Closed`."""
        with self._making:
            made, self._made = self._made, None
            was_closed, self._is_closed = self._is_closed, True
        if made and not was_closed and made.pid == os.getpid():
            made.run(self._inner.close())
            made.stop()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
