"""Hints of error messages on how to bound the time distance of joined rows. A user can paste them:
columns have the names of the query, lengths are in the unit of the time column."""

from __future__ import annotations

from cql.base.model import Schema
from cql.base.types import INTERVAL, DataType, Kind
from cql.planner.lower.ordering import MICROSECONDS
from cql.planner.nodes.catalog import TimeUnit
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.show import show

_MINUTE = 60_000_000


def names_of(side: Schema) -> list[str]:
    """The columns of one side of a join, qualified by the relation's name in the query."""
    return [f"{f.of}.{f.name}" if f.of else f.name for f in side]


def length(minutes: int, kind: DataType, unit: TimeUnit | None) -> str:
    """``minutes`` as ``INTERVAL 1 MINUTE``, or for integers as a number in ``unit`` (by default
    seconds)."""
    if not kind.is_integer:
        return show(Literal(minutes * _MINUTE, INTERVAL))
    return str(max(1, int(minutes * _MINUTE / MICROSECONDS[unit or TimeUnit.SECONDS])))


def window(kind: DataType, unit: TimeUnit | None) -> str:
    """An example of a window by a time; an integer without a declared unit gets a plain number."""
    if kind.is_integer and unit is None:
        return "[RANGE 600]"
    return "[RANGE 10 DAYS]" if kind.kind is Kind.DATE else "[RANGE 10 MINUTES]"
