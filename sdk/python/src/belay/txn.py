"""Statements and operators of transactions, under the names that docs/TRANSACTIONS.md gives them.

>>> from belay import txn
>>> txn.assert_(txn.not_(txn.exists("Month-End", "CGROVE-35")))
{'assert': {'not': {'exists': {'table': 'Month-End', 'key': 'CGROVE-35'}}}}

What they make is the JSON of a statement, so both can be mixed.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

JSON = Dict[str, Any]


class Result(NamedTuple):
    """What has become of a transaction."""

    status: str  #: ``ok``, ``error`` (nothing was done) or ``timeout``
    cause: Optional[str]  #: of an error: ``statement``, ``session`` or ``requirements``
    failed: Optional[str]  #: the statement that failed: ``1:/AssertOp/``
    data: Dict[str, Any]  #: what was selected, by the name it was selected into

    @property
    def ok(self) -> bool:
        return self.status == "ok"


_ANY = object()


def _given(**members: Any) -> JSON:
    """Without those that have their default."""
    return {name: value for name, value in members.items() if value is not None and value is not False}


def _seconds(ttl: Optional[float]) -> Optional[int]:
    return None if ttl is None else round(ttl * 1000)


# ---- statements


def assert_(op: JSON) -> JSON:
    """Aborts the transaction when ``op`` is false."""
    return {"assert": op}


def abort() -> JSON:
    return {"abort": {}}


def block(*statements: JSON) -> JSON:
    return {"block": list(statements)}


def if_(cond: JSON, then: JSON, otherwise: Optional[JSON] = None) -> JSON:
    return {"if": {"cond": cond, "then": then, **_given(**{"else": otherwise})}}


def anyway(op: JSON) -> JSON:
    """Does ``op`` and ignores its result."""
    return {"anyway": op}


def select(into: str, table: str, key: str, *, many: bool = False, with_this_session: bool = False,
           abort_if_not_found: bool = False) -> JSON:
    """Adds the oldest record, or with ``many`` all, to the data under the name ``into``."""
    options = _given(many=many, abort_if_not_found=abort_if_not_found)
    return {"select": {"into": into, "table": table, "key": key, **options, **_own(with_this_session)}}


def select_constant(into: str, value: Any) -> JSON:
    return {"select_constant": {"into": into, "value": value}}


def select_operator(into: str, op: JSON) -> JSON:
    return {"select_operator": {"into": into, "op": op}}


# ---- operators


def true() -> JSON:
    return {"true": {}}


def false() -> JSON:
    return {"false": {}}


def not_(op: JSON) -> JSON:
    return {"not": op}


def and_(*ops: JSON) -> JSON:
    """All of them are evaluated, with their effects."""
    return {"and": list(ops)}


def or_(*ops: JSON) -> JSON:
    """All of them are evaluated, with their effects."""
    return {"or": list(ops)}


def xor(*ops: JSON) -> JSON:
    return {"xor": list(ops)}


def exists(table: str, key: str, value: Any = _ANY, *, with_this_session: bool = False) -> JSON:
    """Another session has a record there."""
    return {"exists": {"table": table, "key": key, **_value(value), **_own(with_this_session)}}


def set(table: str, key: str, value: Any, *, ttl: Optional[float] = None, description: Optional[str] = None,
        allow_duplicates: bool = False, respect_exclusive: bool = False) -> JSON:
    """The key was free, and is set now; it ends with the session, or after ``ttl`` seconds."""
    options = _given(ttl_ms=_seconds(ttl), description=description, allow_duplicates=allow_duplicates,
                     respect_exclusive=respect_exclusive)
    return {"set": {"table": table, "key": key, "value": value, **options}}


def delete(table: str, key: str, value: Any = _ANY) -> JSON:
    """There was a record of this session, and it is gone now."""
    return {"delete": {"table": table, "key": key, **_value(value)}}


def lock(name: str, *, into: Optional[str] = None, owner: Optional[str] = None, shared: bool = False,
         permits: Optional[int] = None, of: Optional[int] = None, ttl: Optional[float] = None,
         grace: Optional[float] = None, delay: Optional[float] = None) -> JSON:
    """The lock could be had at once, and is held now; its fence is in the data under ``into``."""
    return {"lock": _given(name=name, into=into, owner=owner, mode="shared" if shared else None, permits=permits, of=of,
                           ttl_ms=_seconds(ttl), grace_ms=_seconds(grace), delay_ms=_seconds(delay))}


def unlock(name: str, *, owner: Optional[str] = None, fence: Optional[int] = None) -> JSON:
    return {"unlock": _given(name=name, owner=owner, fence=fence)}


def _value(value: Any) -> JSON:
    return {} if value is _ANY else {"value": value}


def _own(with_this_session: bool) -> JSON:
    return {"ignore_this_session": False} if with_this_session else {}
