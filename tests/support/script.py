"""Drives the operators of a query by hand: a test pushes rows and punctuations, and compares the
transcript of the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import (
    LATE_ROWS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.morsel.morsel import Morsel
from cql.executor.strings.columns import to_storage
from cql.planner.nodes.physical import sources
from tests.support.checked import Checked, check_graph
from tests.support.operator_tools import (
    Chunk,
    Recorder,
    graph_of,
    plan_of,
    read_morsel,
    refresh,
    runtime_of,
    session_over,
    table,
    workspace_of,
)

END = -1


COLUMNS = {"ts": pa.int64(), "k": pa.string(), "v": pa.int64()}


@dataclass
class Script:
    """A query without fusion over streams ``a`` and ``b`` of (ts, k, v). ``push`` marks rows below
    the last promise on ``ts`` as late rows."""

    text: str
    morsel_rows: int = 8
    settings: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    serial: int = 0
    sequence: int = 0

    def __post_init__(self) -> None:
        schema = pa.schema([pa.field(n, t) for n, t in COLUMNS.items()])
        empty = {"a": schema.empty_table(), "b": schema.empty_table()}
        session = session_over(empty, settings=self.settings)
        self.plan = plan_of(session, self.text)
        self.workspace = workspace_of(self.morsel_rows)
        self.graph = graph_of(self.plan.root, self.workspace, assume_valid=False)
        self.operators = check_graph(self.graph, self.plan.root)
        self.names = [s.name for s in sources(self.plan.root)]
        self.punctuated: dict[str, int] = {}
        self.recorder = Printer(self.plan.root.schema, self.workspace.dictionary, self.lines)
        self.runtime = runtime_of("depth_first", self.graph, self.recorder, self.workspace)

    def push(self, rows: str, source: str = "a") -> Script:
        """Admits one morsel. Each line of ``rows`` holds ts, k and v of one row."""
        data = table(f"ts k v\n{rows}", list(COLUMNS.values()))
        morsel = self._morsel(source)
        node = sources(self.plan.root)[self.names.index(source)]
        n = data.num_rows
        morsel.words[ROWS] = n
        for i, f in enumerate(node.schema):
            column = data[f.name].combine_chunks()
            values, valid = morsel.data[i], morsel.masks[i]
            assert values is not None
            assert valid is not None
            values[:n] = to_storage(column, f, self.workspace.dictionary)
            valid[:n] = column.is_valid().to_numpy(zero_copy_only=False)
        self._mark_late(morsel, source, data["ts"].to_pylist())
        refresh(self.graph)
        for operator in self.operators:
            refresh_inner(operator)
        return self._admit(morsel, source)

    def punctuate(self, ts: int, source: str = "a") -> Script:
        """Admits a punctuation: no later row of the source is below ``ts``."""
        self.punctuated[source] = ts
        return self._punctuate(0, ts, source)

    def end(self, *names: str) -> Script:
        for source in names or self.names:
            self._punctuate(END, np.iinfo(np.int64).max, source)
        for operator in self.operators:
            operator.conserve()
        return self

    def _mark_late(self, morsel: Morsel, source: str, times: Sequence[int | None]) -> None:
        own = self.punctuated.get(source)
        late = [i for i, t in enumerate(times) if own is not None and t is not None and t < own]
        assert morsel.late_rows is not None
        for k, row in enumerate(late):
            morsel.late_rows[3 * k : 3 * k + 3] = row, 0, own
        morsel.words[LATE_ROWS] = len(late)

    def _punctuate(self, attribute: int, value: int, source: str) -> Script:
        morsel = self._morsel(source)
        morsel.words[PUNCTUATIONS] = 1
        morsel.punctuations[:3] = attribute, value, -1
        return self._admit(morsel, source)

    def _morsel(self, source: str) -> Morsel:
        schema = sources(self.plan.root)[self.names.index(source)].schema
        return Morsel.allocate(schema, self.morsel_rows, ones=0, late_rows=True, masks=True)

    def _admit(self, morsel: Morsel, source: str) -> Script:
        morsel.words[SERIAL], morsel.words[SEQUENCE] = self.serial, self.sequence
        self.serial += 1
        self.sequence += int(morsel.words[ROWS])
        edge = self.graph.entries[self.names.index(source)]
        assert edge is not None
        self.runtime.admit(morsel, edge)
        return self

    def expect(self, transcript: str) -> Script:
        """Compares the output since the last call with ``transcript``."""
        wanted = [" ".join(line.split()) for line in transcript.strip().splitlines()]
        assert self.lines == wanted
        self.lines.clear()
        return self


def refresh_inner(operator: Checked) -> None:
    if hasattr(operator.inner, "refresh"):
        operator.inner.refresh()


class Printer(Recorder):
    """A handler that writes ``row …``, ``late …`` (late rows), ``punct column value``, ``end`` and
    ``bad …`` lines."""

    def __init__(self, schema: Schema, dictionary: Any, lines: list[str]) -> None:
        super().__init__(schema, dictionary)
        self.lines = lines

    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        chunk: Chunk = read_morsel(morsel, self.schema, self.dictionary)
        late = {row for row, _, _ in chunk.late_rows}
        for i, row in enumerate(chunk.rows):
            cells = ["-" if v is None else v.decode() if isinstance(v, bytes) else v for v in row]
            self.lines.append(" ".join(["late" if i in late else "row", *map(str, cells)]))
        for attribute, value in chunk.punctuations:
            known = "end" if attribute == END else f"punct {self.schema[attribute].name} {value}"
            self.lines.append(known)

    def failed(self, failure: Any) -> None:
        assert not failure.fatal
        self.lines.append(f"bad {failure.operator} {failure.row} {failure.site.message}")
