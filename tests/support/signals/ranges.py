"""Random ranges of time about a signal."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pyarrow as pa

from cql.session.session import Session
from tests.support.signals.cases import Case

#: Conditions on the time ``{t}`` of a signal, and by how much they move the ends of the range.
OPERATORS = (
    ("s.{t} BETWEEN d.start AND d.stop", 0, 0),
    ("s.{t} >= d.start AND d.stop > s.{t}", 0, 1),
    ("d.start < s.{t} AND s.{t} <= d.stop", 1, 0),
)
_FAR = 9_000_000_000_000_000


@dataclass
class Ranges:
    """Rows ``d`` of a number, and the beginning and the end of a range in microseconds."""

    rows: list[tuple[int, int, int | None]]
    slack: int

    @property
    def table(self) -> pa.Table:
        numbers, starts, stops = ([row[k] for row in self.rows] for k in range(3))
        kind = pa.timestamp("us", "UTC")
        columns = {"k": pa.array(numbers, pa.int64()), "start": pa.array(starts, kind)}
        return pa.table({**columns, "stop": pa.array(stops, kind)})

    def declare(self, session: Session) -> None:
        slack = f"{self.slack} microseconds" if self.slack else None
        session.create_stream(
            "d",
            self.table,
            ordered_by="start",
            slack=slack,
            max_advance="100000 days",
            replace=True,
        )

    def in_time(self) -> list[tuple[int, int, int | None]]:
        """The rows that are not late."""
        found, highest = [], None
        for row in self.rows:
            if highest is None or row[1] >= highest - self.slack:
                found.append(row)
            highest = row[1] if highest is None else max(highest, row[1])
        return found


def random_ranges(choice: random.Random, case: Case) -> Ranges:
    """Ranges about the samples: before, behind, across gaps, empty, backward, without an end."""
    _, signal = case.expected()
    times = [run.time_of(n) // 1000 for run in signal.runs for n in (run.first, run.last)] or [0]
    length = max(times) - min(times) + 10
    rows, at = [], min(times) - length // 3
    for number in range(choice.choice((0, 1, 5, 30))):
        at += choice.randint(0, max(1, length // 10))
        start = at - choice.choice((0, 0, 0, choice.randint(0, length // 5)))
        stop: int | None = start + choice.choice((0, 1, -1, length, choice.randint(0, length)))
        if choice.random() < 0.1:
            stop = choice.choice((None, _FAR * 25, choice.choice(times)))
        rows.append((number, start, stop))
    return Ranges(rows, choice.choice((0, 0, length // 5, 10 * length)))
