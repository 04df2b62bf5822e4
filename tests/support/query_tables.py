"""The query files that tasks can share, over tables of Parquet files of Spark.

Each stream has three files of small row groups. Its times rise, now and then by much, so that
sessions end; a third of the rows lies behind, some further than the declared slack, so that rows
are late. Streams of one query share their instants, so that joins on equal times find pairs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp

import cql
from cql.base.model import Field, Schema
from cql.base.types import Kind
from cql.dialect import parse, to_sql
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes import statements as st
from cql.planner.nodes.catalog import StreamSpec
from cql.planner.placement.by_key import columns_of
from cql.query.query import Query
from tests.support import dialect_corpus
from tests.support.paths import QUERIES, TESTS
from tests.support.query_files import column_of, header

ROWS, FILES, GROUP = 600, 3, 40
#: Numbers of tasks.
COUNTS = (1, 2, 5, 16)
#: Seconds between two rows by folder, of wide windows more: several windows are in the table.
_STEP = 7
_STEPS = {"flights": 2400, "tpcxbb": 2400, "cql/net_scans": 1}
_START = 1_700_000_000
#: Values of columns on which queries set conditions.
_VALUES: dict[str, Sequence[Any]] = {
    "bytes": range(3000),
    "car": range(9),
    "dir": range(1),
    "seg": range(2),
    "xway": range(1),
    "src": "ab",
    "dst": [f"host {n}" for n in range(12)],
    "flag": ["syn", "ack"],
}


def _placements() -> dict[str, str]:
    lines = (TESTS / "plans" / "placements.txt").read_text("utf-8").splitlines()
    found = dict(line.split(": ", 1) for line in lines)
    return {name: placed for name, placed in found.items() if not placed.startswith("whole")}


#: The query files that tasks can share, with their placements.
SHARED = _placements()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run gives: its rows, its ledger of lateness without what concerns MAX ADVANCE alone,
    its ledger of bad rows and their number, and the number of its tasks (0: in this process)."""

    rows: pa.Table
    late: list[Any]
    bad: list[Any]
    bad_count: int
    tasks: int = 0

    def differs(self, other: Answer, *, ordered: bool) -> str:
        """What differs from ``other``; empty if nothing does. ``ordered``: also the order."""
        if self.rows.schema != other.rows.schema:
            return f"schema {self.rows.schema} and {other.rows.schema}"
        mine, its = (Counter(map(repr, one.rows.to_pylist())) for one in (self, other))
        if mine != its:
            return f"rows: only here {list(mine - its)[:3]}, only there {list(its - mine)[:3]}"
        if ordered and not self.rows.equals(other.rows):
            return "the order of the rows"
        for name in ("late", "bad", "bad_count"):
            if getattr(self, name) != getattr(other, name):
                return f"{name}: {getattr(self, name)} and {getattr(other, name)}"
        return ""


class SharedQuery:
    """A query file over tables of Spark in ``folder``."""

    def __init__(self, spark: Any, folder: Path, name: str) -> None:
        self.name = name
        self._session = cql.connect(spark)
        self._session.on_notice = lambda text: None
        self._made: list[tuple[str, str]] = []
        text = (QUERIES / f"{name}.cql").read_text("utf-8")
        listed = [tree for key, value in header(text) if key == "streams" for tree in parse(value)]
        before, query = dialect_corpus.script(text)
        self.text = to_sql(query)
        for tree in (*listed, *before):
            if tree.key == "createstream" and not tree.args.get("query"):
                self._store(spark, folder, tree)
            else:
                self._session.sql(to_sql(tree))
        self.here = self.answer("depth_first")

    def _store(self, spark: Any, folder: Path, tree: exp.Expr) -> None:
        bound = bind(tree, self._session._catalog, Context())
        assert isinstance(bound, st.CreateStream)
        schema, spec = bound.definition.schema, bound.definition.spec
        assert schema is not None
        place = folder / f"{self.name.replace('/', '_')}_{bound.name[-1]}"
        place.mkdir(parents=True)
        rows = _rows(schema, spec, self.name, keeps="ON BAD ROW KEEP" in self.text)
        share = ROWS // FILES
        for n in range(FILES):
            part = rows.slice(n * share, share)
            pq.write_table(part, place / f"part-{n:05d}.parquet", row_group_size=GROUP)
        table = f"tasks_{place.name}".lower()
        spark.catalog.createTable(table, path=place.as_uri(), source="parquet")
        made = tree.copy()
        for clause in ("format", "options"):
            made.set(clause, None)
        made.set("from_table", exp.to_table(f"default.{table}"))
        self._made += [("STREAM", bound.name[-1]), ("TABLE", table)]
        self._session.sql(to_sql(made))

    @property
    def _has_key(self) -> bool:
        query = self._session.sql(self.text)
        assert isinstance(query, Query)
        return bool(columns_of(query._plan.root))

    @property
    def _ordered(self) -> bool:
        """Whether tasks without a shuffle keep the order of the rows: one input."""
        query = self._session.sql(self.text)
        return len(query._prepared.job().relations) == 1

    @property
    def ways(self) -> list[str]:
        """The values of ``tasks_by`` under which tasks can share the query in different ways."""
        placed = SHARED[self.name]
        if placed.startswith("ByKey"):
            return ["key"]
        return ["time", "key"] if placed.startswith("ByTime") and self._has_key else ["time"]

    def check(self, tasks: int, by: str) -> str:
        """What is wrong with a run in ``tasks`` tasks; empty if nothing is."""
        found = self.answer("spark", tasks, by)
        if tasks > 1 and found.tasks == 1:
            return f"{found.tasks} tasks in place of {tasks}"
        return self.here.differs(found, ordered=self._ordered and by == "time")

    def answer(self, runtime: str, tasks: int = 0, by: str = "auto") -> Answer:
        self._session.set("runtime", runtime)
        self._session.set("partitions", tasks)
        self._session.set("tasks_by", by)
        query = self._session.sql(self.text)
        rows = query.to_arrow()
        kinds = ("rows", "pairs", "left out")
        progress = query.progress()
        return Answer(
            rows,
            [entry for entry in query.late().to_pylist() if entry["kind"] in kinds],
            sorted(query.bad_rows().to_pylist(), key=lambda row: (row["source"], row["offset"])),
            progress.bad,
            progress.tasks[1] if progress.tasks else 0,
        )

    def close(self) -> None:
        self._session.set("runtime", "auto")
        for kind, name in self._made:
            self._session.sql(f"DROP {kind} default.{name}")
        self._session.close()


def _rows(schema: Schema, spec: StreamSpec, name: str, *, keeps: bool) -> pa.Table:
    """The rows of a stream of the query ``name``; if it ``keeps`` bad rows, some have no time."""
    rng = random.Random(f"{name} {schema.names}")
    step = _STEPS.get(name) or _STEPS.get(name.split("/")[0], _STEP)
    times, slack = _instants(name, step), {p.column.lower(): p.slack for p in spec.progress}
    columns = []
    for f in schema:
        unit = 1_000_000 if f.type.is_timestamp else 1
        if f.name.lower() in slack or f.type.is_timestamp:
            behind = slack.get(f.name.lower(), 0) // unit // step
            values: list[Any] = [
                (t - step * rng.randrange(2 * behind + 3) * (rng.random() < 0.3)) * unit
                for t in times
            ]
        else:
            values = [_value(f, rng) for _ in times]
        if f.nullable and (keeps or f.name.lower() not in slack):
            values = [None if rng.random() < 0.05 else value for value in values]
        columns.append(column_of(values, f.type))
    return pa.Table.from_arrays(columns, schema=schema.to_arrow())


def _instants(name: str, step: int) -> list[int]:
    """Seconds of ``ROWS`` instants; one in forty lies fifty steps behind the one before."""
    rng = random.Random(name)
    now, made = _START // step * step, []
    for _ in range(ROWS):
        now += step * (50 if rng.random() < 1 / 40 else 1)
        made.append(now)
    return made


def _value(f: Field, rng: random.Random) -> Any:
    kind = f.type
    listed = _VALUES.get(f.name)
    if listed is not None and isinstance(listed[0], int) == kind.is_integer:
        return rng.choice(listed)
    if kind.is_integer:
        return rng.randrange(4)
    if kind.kind is Kind.DECIMAL:
        return rng.randrange(10_000)
    if kind.is_fraction:
        return rng.randrange(100) / 2
    if kind.kind is Kind.BOOLEAN:
        return rng.random() < 0.5
    return rng.choice(["a", "b", "c", "syn", "a1"])
