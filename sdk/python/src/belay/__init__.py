"""Belay: locks, elections and transactions that survive their servers.

>>> import belay
>>> with belay.Client() as client:
...     with client.lock("invoices", ttl=30, wait=60) as held:
...         print(held.held(), held.fence > 0)
True True

:class:`Client` is for threads, :class:`AsyncClient` for asyncio.
"""

import logging

from ._dial import TLS
from ._stream import Event, Leader
from .aio import AsyncClient, AsyncElection, AsyncHeld, AsyncLock, AsyncStream
from .errors import (
    BelayError,
    Closed,
    Deadlock,
    Holder,
    Lost,
    NotAcquired,
    Refused,
    ServerError,
    TimedOut,
    Unreachable,
    Wait,
)
from .sync import Client, Election, Held, Lock, Stream
from .txn import Result

logging.getLogger("belay").addHandler(logging.NullHandler())  # a library prints nothing by itself

__all__ = [
    "AsyncClient", "AsyncElection", "AsyncHeld", "AsyncLock", "AsyncStream", "BelayError", "Client", "Closed",
    "Deadlock", "Election", "Event", "Held", "Holder", "Leader", "Lock", "Lost", "NotAcquired", "Refused", "Result",
    "ServerError", "Stream", "TLS", "TimedOut", "Unreachable", "Wait",
]
