"""``host:port,tls://[v6]:port,unix:///path`` as a list."""

from __future__ import annotations

import re
from typing import Iterable, List, NamedTuple, Union

PORT = 7117

_FORM = re.compile(r"(tls://)?(?:\[([^\]]+)\]|([^:\[\]/\s]+))(?::([0-9]{1,5}))?")


class Address(NamedTuple):
    text: str
    host: str  #: of a socket: its path
    port: int
    tls: bool
    is_path: bool


def _one(item: str) -> Address:
    if item.startswith("unix:///"):
        return Address(item, item[len("unix://") :], 0, False, True)
    m = _FORM.fullmatch(item)
    port = int(m[4]) if m and m[4] else PORT
    if not m or not 0 < port < 65536:
        raise ValueError(f"not an address: {item!r}; host:port, tls://host:port or unix:///path is one")
    host = m[2] or m[3]
    shown = f"[{host}]" if ":" in host else host
    return Address(f"{m[1] or ''}{shown}:{port}", host, port, bool(m[1]), False)


def parse(addresses: Union[str, Iterable[str]]) -> List[Address]:
    """Raises ValueError for a list that is empty or has a malformed item."""
    items = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    if not items:
        raise ValueError("no address")
    return [_one(item) for item in items]
