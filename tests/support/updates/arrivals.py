"""Random queries over update streams whose rows come at times of a clock that only the tests
advance, so that every run takes the same bursts from the queue."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar
from unittest.mock import patch

import pyarrow as pa

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DOUBLE, INT, STRING
from cql.executor.operators.updates import update_feed
from cql.executor.operators.updates.update_feed import UpdateFeed
from cql.executor.protocols import BadInput, Block, Offset, Reader
from cql.executor.run import inputs
from cql.planner.nodes.catalog import Statistics, StreamSpec
from cql.session.session import Session
from tests.support.fuzz.random_cases import MORSELS, runtime_settings

SCHEMA = Schema(
    (
        Field("t", BIGINT),
        Field("k", INT),
        Field("s", STRING),
        Field("v", BIGINT),
        Field("x", DOUBLE),
    )
)
Row = tuple[Any, ...]


@dataclass
class Ticks:
    """The clock of update queues, in nanoseconds."""

    now: int = 0

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True)
class Arrival:
    """One row or more that come ``pause`` nanoseconds after those before; ``bad`` others cannot be
    read. ``told``: a punctuation on ``t`` behind them."""

    pause: int
    rows: Sequence[Row]
    bad: int = 0
    told: int | None = None


@dataclass
class Arrivals:
    """An unbounded source that ends, and can be read again. Its reader has the rows of one arrival
    whenever a query looks for rows. ``begins`` gives the time of the clock when it is opened."""

    clock: Ticks
    arrivals: Sequence[Arrival]
    begins: Callable[[], int]
    replayable: ClassVar[bool] = True
    bounded: bool = False
    schema: Schema = SCHEMA
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def statistics(self) -> Statistics:
        return Statistics()

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        self.clock.now = self.begins()
        return _Reader(self, list(columns), 0 if offset is None else int(offset["arrival"]))


@dataclass
class _Reader:
    source: Arrivals
    columns: list[str]
    given: int
    pauses: bool = False

    def next(self, timeout: float | None = None) -> Block | None:
        if self.given == len(self.source.arrivals):
            return None
        self.pauses = not self.pauses
        if not self.pauses:
            return Block(_batch((), self.columns), {"arrival": self.given})
        one = self.source.arrivals[self.given]
        self.source.clock.now += one.pause
        self.given += 1
        return Block(
            _batch(one.rows, self.columns),
            {"arrival": self.given},
            () if one.told is None else (("t", one.told),),
            tuple(BadInput(k, "a row that cannot be read", None, "?") for k in range(one.bad)),
        )

    def close(self) -> None: ...


def _batch(rows: Sequence[Row], columns: Sequence[str]) -> pa.RecordBatch:
    named = zip(SCHEMA, zip(*rows, strict=True) if rows else ((),) * len(SCHEMA), strict=True)
    arrays = {f.name: pa.array(values, f.type.to_arrow()) for f, values in named}
    return pa.record_batch([arrays[name] for name in columns], names=list(columns))


@contextmanager
def in_bursts_of(rows: int, cost: int, clock: Ticks) -> Iterator[None]:
    """Queries take ``rows`` rows at a time from an update queue, at most, and need ``cost``
    nanoseconds for them."""

    class Fixed:
        size = rows

        def __init__(self, most: int, goal: int | None) -> None: ...

        def note(self, rows: int, taken: int) -> None: ...

    def watch(feed: UpdateFeed, through: Callable[[], None]) -> None:
        def taking_time() -> None:
            through()
            clock.now += cost

        feed._through = taking_time

    made = inputs._update_feed
    with (
        patch.object(inputs, "_update_feed", lambda node: partial(made(node), clock=clock)),
        patch.object(update_feed, "Bursts", Fixed),
        patch.object(UpdateFeed, "watch", watch),
    ):
        yield


# -- random queries --------------------------------------------------------------------------------

QUEUES = ("APPEND", "APPEND SHED RANDOM", "FIFO", "IN-PLACE", "LINECUTTING")
OVER_ROWS = (
    "SELECT * FROM u",
    "SELECT t, upper(s) AS h, v + 1 AS v, x FROM u WHERE v % 4 <> 1",
    "SELECT k, s FROM u LIMIT 60",
    "SELECT t, s FROM u WHERE s LIKE '%1%' OR k = 2",
)
#: {k}: a column of the update key. Runs take some microseconds.
REFRESH = (
    "",
    " REFRESH EVERY 1 microsecond",
    " REFRESH {k} IS NULL EVERY 20 microseconds, length({k}) < 3 EVERY 1 microsecond",
    " REFRESH length({k}) > 2 EVERY 3 microseconds, {k} IS NOT NULL EVERY 1 microsecond",
)
#: {w}: the window, {k}: the update key.
OVER_WINDOWS = (
    "SELECT {k}, count(*) AS n, sum(v) AS v, min(s) AS lo, window_end FROM u [{w}] GROUP BY {k}",
    "SELECT {k}, max(x) AS x, window_start FROM u [{w}] WHERE v % 5 > 0 GROUP BY {k}, s",
    "SELECT upper(s) AS h, {k}, count(DISTINCT v) AS n FROM u [{w}] GROUP BY {k}, upper(s)"
    " HAVING count(*) > 1",
)
WINDOWS = ("RANGE 6 SLIDE 6", "RANGE 7 SLIDE 3", "RANGE 4 SLIDE 9", "RANGE 20 SLIDE 5")


@dataclass(frozen=True)
class UpdateCase:
    """What decides the outcome of a run; ``seed`` alone makes the case again. ``burst``: the rows
    that the query takes at a time, and the nanoseconds that it needs for them."""

    seed: str
    text: str
    declared: str
    arrivals: Sequence[Arrival]
    burst: tuple[int, int]
    settings: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    piecewise: bool = True

    def describe(self) -> str:
        return "\n".join(
            (
                f"case {self.seed}",
                f"  CREATE STREAM u {self.declared}",
                f"  {self.text}",
                f"  settings {dict(self.settings)}, bursts {self.burst}",
                f"  {sum(len(one.rows) for one in self.arrivals)} rows",
            )
        )


def update_case(shape: int, seed: int) -> UpdateCase:
    """The case ``shape:seed``; cases of one shape compile the same kernels."""
    rng = random.Random(f"updates {shape}")
    windows = rng.random() < 0.6
    queue = rng.choice([q for q in QUEUES if not windows or q != "APPEND SHED RANDOM"])
    key = rng.choice(KEYS)
    declared = f"ORDERED BY t WITHIN {rng.choice((0, 0, 3))}{rng.choice(('', ' MAX ADVANCE 12'))}"
    if key:
        declared += f" UPDATE KEY ({key})"
    declared += f" QUEUE {queue}"
    if windows:
        declared += f" WINDOWS {rng.choice(('LAZY', 'EAGER'))}"
        text = rng.choice(OVER_WINDOWS).format(k=key or "v % 3", w=rng.choice(WINDOWS))
    else:
        text = rng.choice(OVER_ROWS)
        if key and not queue.startswith("APPEND"):
            declared += rng.choice(REFRESH).format(k=key.split(",")[0])
    rng = random.Random(f"updates {shape}:{seed}")
    settings = runtime_settings(rng)
    morsel = rng.choice(MORSELS)
    if morsel is not None:
        settings["morsel_rows"] = morsel
    burst = rng.choice((1, 2, 5, 16)), rng.choice((1, 40, 1000))
    return UpdateCase(f"{shape}:{seed}", text, declared, tuple(_arrivals(rng)), burst, settings)


KEYS = ("", "k", "s", "k, s", "x", "s, x, k")


def _arrivals(rng: random.Random) -> Iterator[Arrival]:
    time, keys, most = rng.choice((0, -40, 10**9)), rng.choice((2, 5, 30)), rng.choice((2, 8, 30))
    low = time - 10
    for _ in range(rng.choice((0, 3, 30, 60))):
        rows = []
        for _ in range(rng.randint(1, most)):
            time += rng.choice((0, 0, 1, 1, 2, 5))
            drawn = rng.random()
            at = None if drawn < 0.02 else time - rng.choice((0, 0, 0, 0, 1, 3, 9))
            if drawn > 0.96:
                at = time + rng.choice((20, 50))  # alone, or the first of a jump
                time = rng.choice((time, time, at))
            k = None if rng.random() < 0.1 else rng.randrange(keys)
            s = None if rng.random() < 0.1 else f"n{rng.randrange(keys)}"
            x = rng.choice((None, float("nan"), -0.0, 0.0, 1.5, float(rng.randrange(keys))))
            rows.append((at, k, s, rng.randrange(100), x))
        told = None
        if rng.random() < 0.1:
            told = low = max(low, time - rng.choice((0, 2, 8)))
        bad = rng.choice((1, 2)) if rng.random() < 0.05 else 0
        yield Arrival(rng.choice((0, 1, 30, 500)), rows, bad, told)


@contextmanager
def update_session(case: UpdateCase) -> Iterator[Session]:
    """A session over the stream ``u`` of a case. Each run has another base of the clock."""
    clock, bases = Ticks(), random.Random(case.seed)
    source = Arrivals(clock, case.arrivals, lambda: bases.choice((0, 10**15, bases.randrange(999))))
    with (
        in_bursts_of(*case.burst, clock),
        cql.connect(False, **{"on_bad_row": "keep", **case.settings}) as session,
    ):
        session._catalog.local.add_source(("rows",), source, StreamSpec())
        session.sql(f"CREATE STREAM u FROM TABLE rows {case.declared}")
        yield session
