"""The defaults of MAX ADVANCE and of the skew between values of PUNCTUATE BY."""

from __future__ import annotations

from cql.base.types import DataType, Kind
from cql.planner.nodes.catalog import Progress, Relation, TimeUnit

#: One hour, the default of MAX ADVANCE, in each unit of an integer column (at least one step).
_HOUR = {
    TimeUnit.NANOSECONDS: 3_600_000_000_000,
    TimeUnit.MICROSECONDS: 3_600_000_000,
    TimeUnit.MILLISECONDS: 3_600_000,
    TimeUnit.SECONDS: 3_600,
    TimeUnit.MINUTES: 60,
    TimeUnit.HOURS: 1,
    TimeUnit.DAYS: 1,
}
#: The default of MAX ADVANCE for an integer without a unit, as a multiple of the slack.
_SLACKS = 1000


def max_advance(relation: Relation, progress: Progress) -> int | None:
    """``max_advance_of`` the progressing column of ``relation``."""
    at = relation.schema.find(progress.column)
    return (
        progress.max_advance if at is None else max_advance_of(relation.schema[at].type, progress)
    )


def max_advance_of(kind: DataType, progress: Progress) -> int | None:
    """The advance of an event time of type ``kind``, in its units, above which a row raises the
    watermark only after three further rows confirm it. The default is one hour (one day for units
    of a day), or the slack if the slack is longer; for an integer without a unit it is 1,000 times
    the slack. None: no limit."""
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
    """The most, in the column's units, that the watermark of a value of PUNCTUATE BY may lie behind
    the most advanced rows. The default is one day on unbounded input; None: no limit."""
    if progress.max_skew is not None or relation.bounded:
        return progress.max_skew
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
    """Whether PUNCTUATE BY can distinguish values of type ``kind`` by their bits."""
    return not kind.is_fraction and not kind.is_nested and kind.kind is not Kind.NULL
