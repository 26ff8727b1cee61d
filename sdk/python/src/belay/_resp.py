"""RESP3: words to bytes, and bytes to replies."""

from __future__ import annotations

from typing import Any, Iterator, List, Tuple, Union

from .errors import ServerError

Word = Union[str, bytes, int]


class Push(List[Any]):
    """What the server says without having been asked."""


class Malformed(Exception):
    """These bytes are not RESP."""


class _More(Exception):
    """The rest of the reply has not arrived."""


def text(raw: bytes) -> str:
    """Names may hold any bytes; those that are not UTF-8 survive the way there and back."""
    return raw.decode("utf-8", "surrogateescape")


def encode(words: Tuple[Word, ...]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, str):
            word = word.encode("utf-8", "surrogateescape")
        elif isinstance(word, int):
            word = b"%d" % word
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)


class Reader:
    """Takes bytes as they arrive, and gives each reply once it is whole."""

    _LINE_MAX = 65536
    _DEPTH_MAX = 8

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> Iterator[Any]:
        self._bytes += data
        start = 0
        try:
            while start < len(self._bytes):
                self._at = start
                reply = self._value(0)
                start = self._at
                yield reply
        except _More:
            pass
        finally:
            del self._bytes[:start]

    def _line(self) -> bytes:
        end = self._bytes.find(b"\r\n", self._at)
        if end < 0:
            if len(self._bytes) - self._at > self._LINE_MAX:
                raise Malformed("a line without end")
            raise _More
        line = bytes(self._bytes[self._at : end])
        self._at = end + 2
        return line

    def _bulk(self, length: int) -> Any:
        if length < 0:
            return None
        end = self._at + length
        if len(self._bytes) < end + 2:
            raise _More
        data = bytes(self._bytes[self._at : end])
        self._at = end + 2
        return data

    def _value(self, depth: int) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if depth > self._DEPTH_MAX:
            raise Malformed("too deep")
        try:
            if kind == b"$":
                return self._bulk(int(rest))
            if kind == b":":
                return int(rest)
            if kind == b"+":
                return rest
            if kind == b"*":
                return [self._value(depth + 1) for _ in range(int(rest))]
            if kind == b">":
                return Push([self._value(depth + 1) for _ in range(int(rest))])
            if kind == b"%":
                return {text(self._value(depth + 1)): self._value(depth + 1) for _ in range(int(rest))}
            if kind == b"-":
                return ServerError(text(rest))
            if kind == b"_":
                return None
            if kind == b",":
                return float(rest)
        except (ValueError, AttributeError):
            pass
        raise Malformed(f"{line[:40]!r}")
