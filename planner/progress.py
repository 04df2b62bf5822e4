"""How far a source's event time may be trusted, and which of its punctuation anybody awaits."""

from __future__ import annotations

from cql.planner.catalog import Progress, Relation, TimeUnit
from cql.types import DataType, Kind

#: One day, the default of MAX ADVANCE, in an integer column's units.
_DAY = {
    TimeUnit.NANOSECONDS: 86_400_000_000_000,
    TimeUnit.MICROSECONDS: 86_400_000_000,
    TimeUnit.MILLISECONDS: 86_400_000,
    TimeUnit.SECONDS: 86_400,
    TimeUnit.MINUTES: 1_440,
    TimeUnit.HOURS: 24,
    TimeUnit.DAYS: 1,
}


def max_advance(relation: Relation, progress: Progress) -> int | None:
    """The advance of event time (in the column's units) above which a row is not believed until
    three further ones confirm it. By default a day, on input without an end; None: any advance."""
    if progress.max_advance is not None or relation.bounded:
        return progress.max_advance
    at = relation.schema.find(progress.column)
    return None if at is None else _day(relation.schema[at].type, progress.unit)


def apart(relation: Relation, progress: Progress) -> int | None:
    """How far (in the column's units) a value of PUNCTUATE BY may lie behind the rows that are
    furthest ahead. By default a day, on input without an end; None: any distance."""
    if progress.apart is not None or relation.bounded:
        return progress.apart
    at = relation.schema.find(progress.column)
    return None if at is None else _day(relation.schema[at].type, progress.unit)


def is_value(kind: DataType) -> bool:
    """Whether PUNCTUATE BY can tell values of the type apart by their bits."""
    return not kind.is_fraction and kind.kind not in (Kind.ARRAY, Kind.NULL)


def _day(kind: DataType, unit: TimeUnit | None) -> int | None:
    if kind.is_timestamp:
        return _DAY[TimeUnit.MICROSECONDS]
    if kind.kind is Kind.DATE:
        return 1
    return None if unit is None else _DAY[unit]
