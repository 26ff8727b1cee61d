"""One connection: requests and their answers in order, pushes beside them."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
import struct
import time
import weakref
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Tuple

from . import _resp
from ._address import Address
from .errors import ServerError

SILENCE = 4.0  #: s; a server that owes an answer for so long is left
PING = 3.0  #: s of silence, then a connection that waits for pushes asks whether the server is there

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds on a clock that never goes back, and counts a suspended machine."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    now = time.monotonic


Done = Callable[[Any], None]


class Broken(Exception):
    """The connection is gone; what was not answered may have been carried out."""


_open: "weakref.WeakSet[Wire]" = weakref.WeakSet()


def _after_fork() -> None:
    """The child lets go of the connections of its parent, whose end the server would not see otherwise."""
    null = os.open(os.devnull, os.O_RDWR)
    for wire in _open:
        wire.let_go(null)
    os.close(null)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Wire(asyncio.Protocol):
    """A connection that has come about. ``on_end`` is called once, with the reason, when it is gone."""

    def __init__(self, address: Address, on_push: Callable[[_resp.Push], None],
                 on_end: Callable[["Wire", str], None]) -> None:
        self.address = address
        self._awaits_push = False
        self._limit = SILENCE
        self._on_push, self._on_end = on_push, on_end
        self._reader = _resp.Reader()
        self._asked: Deque[Tuple[Done, float]] = deque()
        self._heard = now()
        self._timer: Optional[asyncio.TimerHandle] = None
        self._why = ""
        self._is_over = False
        self._paused = False
        self._out: List[bytes] = []
        self._transport: Optional[asyncio.Transport] = None

    async def open(self, tls: Optional[ssl.SSLContext]) -> None:
        """Raises OSError."""
        self._loop = asyncio.get_running_loop()
        if self.address.is_path:
            await self._loop.create_unix_connection(lambda: self, self.address.host)
        else:
            await self._loop.create_connection(
                lambda: self, self.address.host, self.address.port, ssl=tls if self.address.tls else None)

    def let_go(self, other: int) -> None:
        """In a child: the descriptor stays taken, so that nothing else is closed in its place."""
        if self._transport and not self._is_over:
            os.dup2(other, self._transport.get_extra_info("socket").fileno(), inheritable=False)

    # ---- out

    def request(self, *words: _resp.Word) -> "asyncio.Future[Any]":
        """The answer; ServerError and Broken are raised."""
        future: "asyncio.Future[Any]" = self._loop.create_future()

        def done(reply: Any) -> None:
            if future.done():
                return  # nobody waits for it any more
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)

        self.send(_resp.encode(words), done)
        return future

    def send(self, data: bytes, done: Done) -> None:
        """``done`` gets the reply, or a ServerError or Broken."""
        if self._is_over:
            return done(Broken(self._why))
        self._asked.append((done, now()))
        if not self._out:  # what one turn of the loop asks for leaves in one write
            self._loop.call_soon(self._flush)
        self._out.append(data)
        if not self._timer:
            self._look()

    def _flush(self) -> None:
        data, self._out = b"".join(self._out), []
        if self._transport and not self._is_over:
            self._transport.write(data)

    def reset(self, why: str) -> None:
        """Leaves the server without giving anything up: it must not see a close."""
        if self._is_over:
            return
        if self._transport and not self.address.is_path:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if self._transport:
            self._transport.abort()
        self._end(why)

    def close(self) -> None:
        """The last word: the server frees what belongs to this connection."""
        if self._transport and not self._is_over:
            self._flush()
            self._transport.close()
            self._end("closed")

    # ---- in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        _open.add(self)
        if not self.address.is_path:
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._heard = now()
        try:
            for reply in self._reader.feed(data):
                if self._is_over:
                    return
                if isinstance(reply, _resp.Push):
                    self._on_push(reply)
                else:
                    self._asked.popleft()[0](reply)
        except (_resp.Malformed, IndexError) as e:
            self.reset(f"does not speak RESP: {e}")

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._end(str(exc) if exc else "closed the connection")

    def _end(self, why: str) -> None:
        if self._is_over:
            return
        self._is_over, self._why = True, why
        if self._timer:
            self._timer.cancel()
        self._on_end(self, why)
        for done, _ in self._asked:
            done(Broken(why))

    # ---- back-pressure of a stream

    def pause(self, paused: bool) -> None:
        if self._transport and paused != self._paused and not self._is_over:
            self._paused = paused
            self._heard = now()
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    # ---- silence

    def _due(self) -> Optional[float]:
        if self._asked:
            due = max(self._heard, self._asked[0][1]) + self._limit
            return None if due == math.inf else due
        return self._heard + PING if self._awaits_push else None

    def _look(self) -> None:
        """Leaves a server that is silent, or asks it for a sign of life."""
        self._timer = None
        due = self._due()
        if self._is_over or due is None:
            return
        if self._paused:
            due = now() + PING
        elif due <= now():
            if self._asked:
                return self.reset(f"has not answered for {self._limit:.1f} s")
            return self.send(_resp.encode(("PING",)), lambda reply: None)
        self._timer = self._loop.call_later(due - now(), self._look)

    def watch_over(self, awaits_push: bool, limit: float = SILENCE) -> None:
        """What it waits for from now on, and for how long a server may owe it an answer."""
        if (awaits_push, limit) == (self._awaits_push, self._limit):
            return
        self._awaits_push, self._limit = awaits_push, limit
        if self._timer:
            self._timer.cancel()
        self._look()
