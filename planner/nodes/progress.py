"""How far a source's event time may be trusted, and which of its punctuation anybody awaits."""

from __future__ import annotations

from cql.base.types import DataType, Kind
from cql.planner.nodes.catalog import Progress, Relation, TimeUnit

#: One hour, the default of MAX ADVANCE, in an integer column's units.
_HOUR = {
    TimeUnit.NANOSECONDS: 3_600_000_000_000,
    TimeUnit.MICROSECONDS: 3_600_000_000,
    TimeUnit.MILLISECONDS: 3_600_000,
    TimeUnit.SECONDS: 3_600,
    TimeUnit.MINUTES: 60,
    TimeUnit.HOURS: 1,
    TimeUnit.DAYS: 1,
}
#: Of an integer that has no unit the slack tells what is far: the default is so many times that.
_SLACKS = 1000


def max_advance(relation: Relation, progress: Progress) -> int | None:
    """``max_advance_of`` a column of an input."""
    at = relation.schema.find(progress.column)
    return (
        progress.max_advance if at is None else max_advance_of(relation.schema[at].type, progress)
    )


def max_advance_of(kind: DataType, progress: Progress) -> int | None:
    """The advance of an event time of that type (in its units) above which a row is not believed
    until three further ones confirm it. By default an hour (a day, where that is one step), or the
    slack if that is longer; of an integer without a unit 1,000 times the slack. None: any
    advance."""
    if progress.max_advance is not None:
        return progress.max_advance
    if kind.is_timestamp:
        return max(_HOUR[TimeUnit.MICROSECONDS], progress.slack)
    if kind.kind is Kind.DATE:
        return max(1, progress.slack)
    if progress.unit is not None:
        return max(_HOUR[progress.unit], progress.slack)
    return _SLACKS * progress.slack or None


def max_skew(relation: Relation, progress: Progress) -> int | None:
    """How far (in the column's units) a value of PUNCTUATE BY may lie behind the rows that are
    furthest ahead. By default a day, on input without an end; None: any distance."""
    if progress.apart is not None or relation.bounded:
        return progress.apart
    at = relation.schema.find(progress.column)
    if at is None:
        return None
    kind, unit = relation.schema[at].type, progress.unit
    if kind.is_timestamp:
        unit = TimeUnit.MICROSECONDS
    elif kind.kind is Kind.DATE:
        unit = TimeUnit.DAYS
    if unit in (None, TimeUnit.DAYS):
        return None if unit is None else 1
    return 24 * _HOUR[unit]


def is_value(kind: DataType) -> bool:
    """Whether PUNCTUATE BY can tell values of the type apart by their bits."""
    return not kind.is_fraction and kind.kind not in (Kind.ARRAY, Kind.NULL)
