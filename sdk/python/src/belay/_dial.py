"""How a client gets a connection: the options, the list of nodes, the greeting, the pauses."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _address, _resp
from ._wire import Broken, Wire
from .errors import ServerError

CONNECT = 3.0  #: s for one node to accept and greet us
PAUSE_MIN, PAUSE_MAX = 0.05, 1.0

Words = Tuple[_resp.Word, ...]


class TLS(NamedTuple):
    """Files in PEM. Without ``ca`` the CAs of the system count."""

    ca: Optional[str] = None
    cert: Optional[str] = None
    key: Optional[str] = None

    @classmethod
    def of_environment(cls) -> "TLS":
        return cls(*(os.environ.get(f"BELAY_TLS_{what}") or None for what in ("CA", "CERT", "KEY")))

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert:
            context.load_cert_chain(self.cert, self.key)
        return context


def _token_of_environment() -> str:
    token, file = os.environ.get("BELAY_TOKEN"), os.environ.get("BELAY_TOKEN_FILE")
    if token or not file:
        return token or ""
    with open(file, encoding="utf-8") as f:
        return f.readline().strip()


class Options:
    """What all connections of a client have in common. Raises ValueError and OSError."""

    def __init__(self, addresses: Union[str, Iterable[str], None], namespace: Optional[str], token: Optional[str],
                 tls: Optional[TLS], timeout: float, logger: logging.Logger) -> None:
        given = os.environ.get("BELAY_ADDR") or f"127.0.0.1:{_address.PORT}" if addresses is None else addresses
        self.addresses = _address.parse(given)
        self.namespace = namespace
        self.token = _token_of_environment() if token is None else token
        wants_tls = any(a.tls for a in self.addresses)
        self.tls = (tls or TLS.of_environment()).context() if wants_tls else None
        self.timeout = timeout
        self.logger = logger

    def greeting(self) -> List[Words]:
        words: List[Words] = [("HELLO", 3)]
        if self.token:
            words.append(("AUTH", self.token))
        if self.namespace:
            words.append(("USE", self.namespace))
        return words


class Denied(Exception):
    """The greeting was refused: ``error`` is what every call that waits for it must be told."""

    def __init__(self, error: ServerError) -> None:
        super().__init__(str(error))
        self.error = error


class Dialer:
    """Connects, one node after the other, the last good one first."""

    def __init__(self, options: Options, at: int = 0) -> None:
        self._options = options
        self.at = at
        self._failed = 0  #: nodes in turn
        self._pause = 0.0
        self.connect = CONNECT
        self.why = "nothing was tried"

    def is_good(self) -> None:
        """It has answered: what was tried before it does not count any more."""
        self._failed, self._pause = 0, 0.0

    def leave(self) -> None:
        self.at = (self.at + 1) % len(self._options.addresses)
        self._failed += 1

    async def _wait(self) -> None:
        if self._failed >= len(self._options.addresses):
            self._failed = 0
            self._pause = min(max(PAUSE_MIN, 2 * self._pause), PAUSE_MAX)
            await asyncio.sleep(self._pause * random.uniform(0.5, 1))

    async def dial(self, more: List[Words], on_push: Callable[[_resp.Push], None],
                   on_end: Callable[[Wire, str], None]) -> Tuple[Wire, List[Any]]:
        """Greets, and asks ``more`` in the same breath; answers the connection and those answers, errors among them.

        Does not give up. Raises Denied: the server does not want us.
        """
        while True:
            await self._wait()
            address = self._options.addresses[self.at]
            wire = Wire(address, on_push, on_end)
            try:
                return wire, await asyncio.wait_for(self._greet(wire, more), self.connect)
            except (OSError, Broken, asyncio.TimeoutError) as e:
                self._failed_at(wire, str(e) or "no answer in time")
            except ServerError as e:
                self._failed_at(wire, str(e))
                if e.code != "UNAVAILABLE":
                    raise Denied(e) from None
            except BaseException:
                wire.reset("not wanted any more")
                raise

    def _failed_at(self, wire: Wire, why: str) -> None:
        self.why = f"{wire.address.text}: {why}"
        self._options.logger.info("cannot use %s", self.why)
        wire.reset(why)
        self.leave()

    async def _greet(self, wire: Wire, more: List[Words]) -> List[Any]:
        await wire.open(self._options.tls)
        greeting = self._options.greeting()
        requests = [wire.request(*words) for words in greeting + more]
        answers: List[Any] = await asyncio.gather(*requests, return_exceptions=True)
        for answer in answers[: len(greeting)]:
            if isinstance(answer, BaseException):
                raise answer
        return answers[len(greeting) :]
