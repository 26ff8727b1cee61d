"""What both clients have in common."""

from __future__ import annotations

import logging
import os
import socket
from typing import Generic, Iterable, Optional, TypeVar, Union

from ._dial import TLS, Options
from ._engine import Engine, OnPlace, Want
from ._held import OnLost

L = TypeVar("L")
Bytes = Union[bytes, str]
Addresses = Union[str, Iterable[str], None]


class BaseClient(Generic[L]):
    """Locks, elections and transactions of one namespace.

    :param addresses: ``host:port,tls://host:port,unix:///path``, or a list of them; ``$BELAY_ADDR``,
        ``127.0.0.1:7117``. Name all nodes: the client goes to another one when it must.
    :param namespace: of everything that the client does
    :param token: ``$BELAY_TOKEN``, or the first line of the file ``$BELAY_TOKEN_FILE``; ``""``: none
    :param tls: :class:`belay.TLS`; ``$BELAY_TLS_CA``, ``$BELAY_TLS_CERT``, ``$BELAY_TLS_KEY``
    :param owner: who this client is, for people who look; ``host:pid``
    :param session_ttl: seconds that the server waits for a sign of life
    :param timeout: seconds that a call looks for an answer, beyond its own ``wait``
    :param logger: ``logging.getLogger("belay")``

    Nothing is connected before the first call. Raises ValueError for what is malformed, OSError for a file that
    cannot be read.
    """

    def __init__(self, addresses: Addresses = None, *, namespace: Optional[str] = None, token: Optional[str] = None,
                 tls: Optional[TLS] = None, owner: Optional[str] = None, session_ttl: float = 30.0,
                 timeout: float = 10.0, logger: Optional[logging.Logger] = None) -> None:
        logger = logger or logging.getLogger("belay")
        self._options = Options(addresses, namespace, token, tls, timeout, logger)
        self._owner = owner
        self._session_ttl = session_ttl
        if session_ttl <= 0 or timeout <= 0:
            raise ValueError("a duration must be more than 0")
        if owner is not None and not 1 <= len(owner.encode()) <= 100:
            raise ValueError("an owner has 1 to 100 bytes")

    def _new_engine(self) -> Engine:
        """In the loop in which it is to run."""
        return Engine(self._options, self._owner or f"{socket.gethostname()[:80]}:{os.getpid()}", self._session_ttl)

    def lock(self, name: Union[str, Iterable[str]], *, ttl: Optional[float] = None, wait: Optional[float] = None,
             shared: bool = False, permits: int = 1, of: Optional[int] = None, body: Optional[Bytes] = None,
             grace: float = 0, delay: float = 0, owner: Optional[str] = None, early: Optional[float] = None,
             on_place: Optional[OnPlace] = None, on_lost: Optional[OnLost] = None) -> L:
        """A lock, or several at once: all of them or none.

        :param ttl: seconds of a lease of its own; without it the lock lives as long as the session of this client
        :param wait: seconds to wait in line; None: without end, 0: not at all
        :param shared: together with other shared holders
        :param permits: of a semaphore with ``of`` permits
        :param body: stored with the lock when it is granted
        :param grace: seconds after the ttl in which it is overdue, but still held
        :param delay: seconds for which nobody gets it after it was lost
        :param owner: by this name the server sees deadlocks between several locks; else each has a name of its own
        :param early: seconds before an unproven end at which it counts as lost; a tenth of the lease
        :param on_place: is called with the place in the line (1 is next), at once and when it has changed
        :param on_lost: is called with a :class:`Lost`
        """
        names = (name,) if isinstance(name, str) else tuple(name)
        want = Want(names, owner, ttl, wait, shared, permits, of, body, grace, delay, early, on_place)
        want.check()
        return self._lock(want, on_lost)

    def _lock(self, want: Want, on_lost: Optional[OnLost]) -> L:
        raise NotImplementedError
