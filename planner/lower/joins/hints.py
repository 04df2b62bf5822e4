"""How to say that rows of a join lie near each other, in hints that the query can take as they are:
the columns by the names that it gives them, lengths as their times count."""

from __future__ import annotations

from cql.base.model import Schema
from cql.base.types import INTERVAL, DataType, Kind
from cql.planner.lower.ordering import MICROSECONDS
from cql.planner.nodes.catalog import TimeUnit
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.show import show

_MINUTE = 60_000_000


def names_of(side: Schema) -> list[str]:
    """The columns of one side of a join, each with what the query calls its relation."""
    return [f"{f.of}.{f.name}" if f.of else f.name for f in side]


def length(minutes: int, kind: DataType, unit: TimeUnit | None) -> str:
    """``INTERVAL 1 MINUTE``; of integers, which count seconds unless a unit is declared, 60."""
    if not kind.is_integer:
        return show(Literal(minutes * _MINUTE, INTERVAL))
    return str(max(1, int(minutes * _MINUTE / MICROSECONDS[unit or TimeUnit.SECONDS])))


def window(kind: DataType, unit: TimeUnit | None) -> str:
    """An example of a window by a time: a number has no units where none is declared."""
    if kind.is_integer and unit is None:
        return "[RANGE 600]"
    return "[RANGE 10 DAYS]" if kind.kind is Kind.DATE else "[RANGE 10 MINUTES]"
