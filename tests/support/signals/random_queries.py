"""Random queries over random signals."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import cql
from cql.executor.state.checkpoint import from_ipc
from cql.session.session import Session
from tests.support.catalog_tools import blocks_of_eight
from tests.support.run_checkpoints import plan_of, run
from tests.support.runtimes import RUNTIMES
from tests.support.signals.cases import Case, random_case
from tests.support.signals.ranges import OPERATORS, Ranges, random_ranges

#: ``{s}``: the signal in windows; ``{t}``: the name of its time; ``{d}``: the condition of a range;
#: ``{fill}``: the signal with filled gaps; ``{other}``: its columns with other names.
WINDOWS = (
    "SELECT * FROM {s}",
    "SELECT window_start, stddev(a) AS spread, max(a) AS most FROM {s} WHERE count(a) > 2",
    "SELECT subseg(a, 1, 3) AS part, window_end FROM {s}",
    "SELECT * FROM {s} LIMIT 9",
    "SELECT * FROM GAPS(s)",
    "SELECT count(*) AS n, window_end FROM (SELECT window_time, max(a) AS m FROM {s})"
    " [RANGE 10 SECONDS SLIDE 5 SECONDS, WA window_time] GROUP BY window_end",
)
RANGES = (
    "SELECT d.k, s.a FROM d, s WHERE {d}",
    "SELECT w.window_start, w.n, s.a FROM (SELECT window_start, window_end, count(a) AS n"
    " FROM {s}) AS w, s WHERE s.{t} >= w.window_start AND s.{t} < w.window_end",
    "SELECT w.window_end, s.a FROM (SELECT window_start, window_end FROM {s} WHERE max(a) > 0)"
    " AS w, s WHERE s.{t} BETWEEN w.window_start AND w.window_end + INTERVAL '1' SECOND",
    "SELECT w.a AS own, w.part, s.a FROM (SELECT window_start, window_end, a,"
    " CASE WHEN max(a) > 0 THEN subseg(a, 0, 3) END AS part FROM {s}) AS w, s"
    " WHERE s.{t} >= w.window_start AND s.{t} < w.window_end + INTERVAL '2' SECOND",
)
MADE = (
    "WITH w AS (SELECT * FROM {s}) SELECT * FROM CONCAT(w) AS c [ROWS 9 SLIDE 9]",
    "SELECT * FROM {fill} AS f [ROWS 9 SLIDE 9 WITH RESTS]",
    "WITH other AS (SELECT {other} FROM s)"
    " SELECT * FROM ZIP(s, other) AS z [ROWS 9 SLIDE 9 WITH RESTS]",
    "WITH w AS (SELECT a FROM {s}) SELECT a FROM CONCAT(w) AS c",
    "SELECT * FROM {fill} AS f",
    "WITH other AS (SELECT {other} FROM s) SELECT sta_lta(a, 2, 5) AS r FROM ZIP(s, other) AS z",
)
QUERIES = (*WINDOWS, *RANGES, *MADE)


@dataclass
class SignalCase:
    """What decides the outcome of a run; ``seed`` alone makes the case again."""

    seed: str
    text: str
    signal: Case
    ranges: Ranges
    settings: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    piecewise: bool = False

    def describe(self) -> str:
        return f"case {self.seed}\n  {self.text}\n  {self.signal}\n  settings {self.settings}"


def signal_case(shape: int, seed: int) -> SignalCase:
    """The case ``shape:seed``; cases of one shape have a query of the same kind."""
    text = QUERIES[shape % len(QUERIES)]
    rng = random.Random(f"signals {shape}:{seed}")
    signal = random_case(rng)
    condition = rng.choice(OPERATORS)[0].format(t=signal.time)
    gap = int(20_000_000 / Fraction(signal.rate)) + 1
    fill = f"FILL(s, 'linear', INTERVAL {gap} MICROSECONDS)" if signal.timed else "s"
    other = "ts AS ts2, a AS z" if signal.timed else "a AS z"
    text = text.format(fill=fill, other=other, s=f"s {signal.window}", t=signal.time, d=condition)
    settings = {"morsel_rows": rng.choice((1, 2, 3, 7, 100)), **rng.choice(RUNTIMES)}
    return SignalCase(f"{shape}:{seed}", text, signal, random_ranges(rng, signal), settings)


@contextmanager
def signal_session(case: SignalCase) -> Iterator[Session]:
    """A session over the streams of a case."""
    with cql.connect(False, **case.settings) as session:
        case.signal.declare(session, pushed=False)
        case.ranges.declare(session)
        yield session


def continue_elsewhere(shape: str, seed: str, folder: str) -> None:
    """Reads ``run.arrow``, continues, and writes what came of it."""
    case = signal_case(int(shape), int(seed))
    with blocks_of_eight(), signal_session(case) as session:
        saved = from_ipc(Path(folder, "run.arrow").read_bytes())
        ran = run(plan_of(session, case.text), session.settings, saved)
    Path(folder, "rest").write_text(repr((ran.rows, ran.ledgers)), "utf-8")


if __name__ == "__main__":
    continue_elsewhere(*sys.argv[1:])
