"""Random streams for the differential tests: nasty values, nasty times, nasty arrival.

All streams have the same payload columns, so that one query shape fits many data sets; they differ
in the type of the event time ``t``. Values are in storage form (see ``naive_values``).
"""

from __future__ import annotations

import datetime
import decimal
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from cql.base.types import DataType, Kind
from cql.planner.nodes.catalog import Progress
from tests.reference.naive_tables import fields_of

PAYLOAD = (
    "k int, s string, b boolean, v int, w bigint, q int, x double, y double, h float, "
    "g date, z timestamp"
)
#: The type of the event time by stream: timestamps (several, for unions), integers and dates.
TIMES = {
    "a": "timestamp",
    "b": "timestamp",
    "c": "timestamp",
    "n": "bigint",
    "m": "int",
    "d": "date",
    "u": "timestamp",
    "o": "bigint",
}
#: The names of the tables, whose columns do not progress.
TABLES = frozenset("uo")
SCHEMAS = {name: fields_of(f"t {kind}, {PAYLOAD}") for name, kind in TIMES.items()}

DAY = 86_400_000_000
TEXTS = ("", "a", "A", "aa", "a b", " a ", "%", "a_b", "Žluť", "žluť", "日本", "😀a", "x" * 70)
INTS = (0, 1, -1, 2, 7, 100, 2**31 - 1, -(2**31), 2**30)
LONGS = (*INTS, 2**63 - 1, -(2**63), 2**62, -(2**62), 2**53 + 1)
FLOATS = (0.0, -0.0, 1.0, -1.5, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.1, 1e16)
DAYS = (0, -1, 1, 59, 19_782, 19_783, -25_567, 11_016, -141_428, 20_000)


def _maybe(share: float, make: Callable[[random.Random], Any]) -> Callable[[random.Random], Any]:
    return lambda rng: None if rng.random() < share else make(rng)


def _dyadic(rng: random.Random) -> float:
    """A multiple of 1/8 with a magnitude below 1000; sums of such numbers are exact in any
    order."""
    if rng.random() < 0.004:
        return rng.choice((math.nan, math.inf, -math.inf))
    return rng.randint(-8000, 8000) / 8


_MAKERS: dict[str, Callable[[random.Random], Any]] = {
    "k": _maybe(0.15, lambda rng: rng.choice((0, 1, 2, 3, -1, 2**31 - 1))),
    "s": _maybe(0.15, lambda rng: rng.choice(TEXTS)),
    "b": _maybe(0.2, lambda rng: rng.random() < 0.5),
    "v": _maybe(0.1, lambda rng: rng.choice((rng.choice(INTS), rng.randint(-(10**6), 10**6)))),
    "w": _maybe(0.1, lambda rng: rng.choice((rng.choice(LONGS), rng.randint(-(10**9), 10**9)))),
    "q": _maybe(0.1, lambda rng: rng.randint(-20, 20)),
    "x": _maybe(0.1, lambda rng: rng.choice(FLOATS)),
    "y": _maybe(0.1, _dyadic),
    "h": _maybe(0.1, lambda rng: rng.choice((0.0, -0.0, 0.5, -2.25, math.nan, math.inf, 3.0))),
    "g": _maybe(0.1, lambda rng: rng.choice(DAYS)),
    "z": _maybe(0.1, lambda rng: rng.choice(DAYS) * DAY + rng.choice((0, 1, -1, 3_723_000_004))),
}


@dataclass(frozen=True)
class Stream:
    """The rows of one input in arrival order, with its slack and MAX ADVANCE in units of ``t``.

    ``marked``: a row whose ``b`` is true is a punctuation, which later rows mostly violate. ``by``:
    each value of this column has its own watermark, at most ``max_skew`` behind the highest one."""

    name: str
    rows: tuple[tuple[Any, ...], ...]
    slack: int
    splits: tuple[int, ...] = ()  # where the table is cut into chunks
    max_advance: int | None = None
    marked: bool = False
    by: str | None = None
    max_skew: int | None = None

    @property
    def progress(self) -> Progress:
        marker = "b" if self.marked else None
        most, max_skew = self.max_advance, self.max_skew
        return Progress("t", self.slack, marked_by=marker, max_advance=most, max_skew=max_skew)


def ticks(kind: str) -> int:
    """The units of event time in one "tick", which is half of the smallest step of windows."""
    return 500_000 if kind == "timestamp" else 1


def random_stream(rng: random.Random, name: str) -> Stream:
    kind = TIMES[name]
    count = rng.choice((0, 1, 2, 5, 20, 60, 150, 400))
    slack = rng.choice((0, 0, 2, 6, 20)) * ticks(kind)
    times = _arrival(rng, _times(rng, kind, count), slack)
    rows = tuple(_row(rng, time) for time in times)
    cuts = sorted(rng.randint(0, count) for _ in range(rng.choice((0, 0, 1, 3))))
    most = rng.choice((1, 10, 100)) * ticks(kind) if rng.random() < 0.15 else None
    return Stream(name, rows, slack, tuple(cuts), most, rng.random() < 0.1)


def punctuated_by(rng: random.Random, stream: Stream, by: str) -> Stream:
    """The stream with one watermark per value of ``by``; the rows of some values come much later
    than others."""
    kind = TIMES[stream.name]
    column = SCHEMAS[stream.name].find(by)
    assert column is not None
    late = dict.fromkeys(row[column] for row in stream.rows)
    most = rng.choice((0, 10, 200))
    late = {value: rng.randint(0, most) for value in late}
    order = sorted(enumerate(stream.rows), key=lambda pair: pair[0] + late[pair[1][column]])
    rows = tuple(row for _, row in order)
    max_skew = rng.choice((None, None, 0, 5, 60, 1000))
    max_skew = None if max_skew is None else max_skew * ticks(kind)
    return replace(stream, rows=rows, by=by, max_skew=max_skew)


def _row(rng: random.Random, time: int) -> tuple[Any, ...]:
    event = None if rng.random() < 0.004 else time
    return (event, *(make(rng) for make in _MAKERS.values()))


def _times(rng: random.Random, kind: str, count: int) -> list[int]:
    """Rising event times, with ties, times at and next to window edges, and gaps of many
    windows."""
    tick = ticks(kind)
    start = rng.choice((0, -50, -1, 1000, -(10**6), 10**6))
    time, found = start * tick, []
    pace = rng.choice((0, 1, 1, 3, 12))
    for _ in range(count):
        time += rng.randint(0, 2 * pace) * tick
        if rng.random() < 0.01:
            time += rng.choice((1000, 5000)) * tick
        edge = rng.choice((0, 0, 0, 1, -1)) if kind == "timestamp" else 0
        found.append(time + edge)
    return sorted(found)


def _arrival(rng: random.Random, times: list[int], slack: int) -> list[int]:
    """The times in arrival order: in order, shuffled within the slack or beyond, in reversed
    bursts, or with a few times far behind."""
    match rng.choice(("in order", "within", "beyond", "bursts", "behind")):
        case "within":
            return _jittered(rng, times, slack)
        case "beyond":
            span = times[-1] - times[0] if times else 0
            return _jittered(rng, times, 3 * slack + 4 * span // max(len(times), 1) + 1)
        case "bursts":
            size = rng.choice((2, 5, 17))
            parts = [times[i : i + size][::-1] for i in range(0, len(times), size)]
            return [time for part in parts for time in part]
        case "behind":
            moved = [time for time in times if rng.random() < 0.05]
            for time in moved:
                times.remove(time)
                times.insert(rng.randint(0, len(times)), time)
            return times
        case _:
            return times


def _jittered(rng: random.Random, times: Sequence[int], most: int) -> list[int]:
    keyed = sorted((time + rng.randint(0, most), i) for i, time in enumerate(times))
    return [times[i] for _, i in keyed]


# To Arrow -----------------------------------------------------------------------------------------


def to_table(stream: Stream) -> pa.Table:
    """The stream as an Arrow table, in chunks cut at ``splits`` (some chunks are empty)."""
    schema = SCHEMAS[stream.name]
    bounds = [0, *stream.splits, len(stream.rows)]
    batches = []
    for begin, end in pairwise(bounds):
        part = stream.rows[begin:end]
        arrays = [to_array([row[i] for row in part], field.type) for i, field in enumerate(schema)]
        batches.append(pa.record_batch(arrays, schema=schema.to_arrow()))
    return pa.Table.from_batches(batches, schema=schema.to_arrow())


def to_array(values: Sequence[Any], kind: DataType) -> pa.Array[Any]:
    """Values in storage form as an Arrow array of the type."""
    arrow = kind.to_arrow()
    match kind.kind:
        case Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ | Kind.INTERVAL:
            return pa.array(values, pa.int64()).cast(arrow)
        case Kind.DATE:
            return pa.array(values, pa.int32()).cast(arrow)
        case Kind.DECIMAL:
            unit = decimal.Decimal(1).scaleb(-kind.scale)
            return pa.array([None if v is None else v * unit for v in values], arrow)
        case _:
            return pa.array(values, arrow)


def shown(value: object, kind: DataType) -> str:
    """A value for a person; a time is shown as a time if Python's calendar holds it."""
    if isinstance(value, int) and kind.is_timestamp:
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        try:
            return (epoch + datetime.timedelta(microseconds=value)).isoformat()
        except OverflowError:
            return str(value)
    return repr(value)
