"""Streams of the format ``cql`` in this process: the offsets and batches that Spark would ask
for."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cql.session.session import Session
from cql.spark.sql import register
from cql.spark.sql.registration import Registration
from cql.spark.sql.streams import PlannedStream
from cql.spark.sql.texts import rows
from tests.support.view_tables import Base


def registration(session: Session) -> str:
    """What ``session`` would register in Spark, as JSON text."""
    made: list[Registration] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(register, "register", lambda spark, registered: made.append(registered))
        session.register_in_spark()
    return made[0].to_json()


class Batches:
    """A streaming query of Spark: ``run`` reads batches up to the files of now. ``restart`` forgets
    all but the offsets, as Spark does after a crash."""

    def __init__(self, registered: str, text: str, *, arrival: bool = False) -> None:
        self._make = lambda: PlannedStream(registered, text, arrival=arrival)
        self.stream = self._make()
        self.offsets = [_sent(self.stream.first())]
        self.rows: list[dict[str, Any]] = []

    def restart(self) -> None:
        self.stream = self._make()

    def run(self, most: int | None = None) -> int:
        """Returns the number of batches."""
        begun = len(self.offsets)
        while (end := _sent(self.stream.latest(self.offsets[-1], most))) != self.offsets[-1]:
            self.rows += self.batch(self.offsets[-1], end)
            self.offsets.append(end)
        return len(self.offsets) - begun

    def batch(self, start: Any, end: Any) -> Iterator[dict[str, Any]]:
        for task in self.stream.tasks_between(start, end):
            for batch in rows(self.stream.job, task):
                yield from batch.to_pylist()

    def replayed(self) -> list[dict[str, Any]]:
        """The rows of all batches, read again."""
        return [row for start, end in pairwise(self.offsets) for row in self.batch(start, end)]


def _sent(offset: Any) -> Any:
    """The offset as Spark keeps it."""
    return json.loads(json.dumps(offset))


def watermark(bases: list[Base]) -> dt.datetime:
    """The least watermark of the tables: 5 seconds behind the greatest time."""
    highest: list[dt.datetime] = [pc.max(pq.read_table(one.folder)["ts"]).as_py() for one in bases]
    return min(highest) - dt.timedelta(seconds=5)


def closed_rows(
    session: Session,
    text: str,
    bases: list[Base],
    closes: Callable[[dict[str, Any]], dt.datetime],
) -> list[str]:
    """The rows of a run over all files, without those of open windows. ``closes``: the watermark
    at which a row is final."""
    rows = session.sql(text).to_arrow().to_pylist()
    mark = watermark(bases)
    found = sorted(repr(row) for row in rows if closes(row) <= mark)
    assert 0 < len(found) < len(rows)
    return found
