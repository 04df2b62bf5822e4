"""Plans, morsels and transcripts for tests that drive operators without an execution.

``plan_of`` binds a query without the optimizer's rules, so that each clause keeps its own node.
``Admissions`` keeps all morsels of the sources (an execution reuses one morsel). ``Recorder`` is a
handler that copies the output of the last operator.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cql import connect
from cql.base.model import Schema
from cql.dialect import parse_one
from cql.executor.graph.build import build
from cql.executor.graph.graph import Graph
from cql.executor.kernels.ingest.cutter import cut
from cql.executor.kernels.morsel_layout import (
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    data_word,
    mask_word,
)
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.ingest import Feed
from cql.executor.morsel.morsel import Morsel
from cql.executor.morsel.source_punctuation import columns_read
from cql.executor.operators.order.row_slab import SlabOperator
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.runtimes.depth_first import DepthFirst
from cql.executor.runtimes.protocol import Failure, Runtime
from cql.executor.runtimes.queued import Queued
from cql.executor.strings.dictionary import Dictionary
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.lower.plan import plan
from cql.planner.nodes.physical import Physical, PhysicalPlan, sources
from cql.planner.nodes.statements import Query
from cql.session.session import Session

NO_LIMIT = 1 << 40


def session_over(
    streams: Mapping[str, pa.Table],
    *,
    slack: int = 0,
    settings: Mapping[str, Any] | None = None,
    update_key: str | None = None,
) -> Session:
    """A session over tables; each is a stream ordered by ``ts`` (in seconds, so that durations
    apply), an update stream if there is a column ``update_key``."""
    session = connect(False, **(settings or {}))
    for name, table in streams.items():
        session.create_stream(
            name, table, ordered_by="ts", unit="seconds", slack=slack, update_key=update_key
        )
    return session


def plan_of(session: Session, text: str) -> PhysicalPlan:
    """The plan of a SELECT without the optimizer's rules."""
    bound = bind(parse_one(text), session._catalog, Context(settings=session.settings))
    assert isinstance(bound, Query)
    return plan(bound.plan, session.settings, keep_bad_rows=True)


def workspace_of(morsel_rows: int) -> Workspace:
    return Workspace(Dictionary(), "on", morsel_rows, NO_LIMIT)


def graph_of(
    root: Physical, workspace: Workspace, *, fuse: bool = False, assume_valid: bool = True
) -> Graph:
    nulls: list[set[int]] = [
        {
            i
            for i, f in enumerate(s.schema)
            if not assume_valid or s.relation.statistics.nulls.get(f.name)
        }
        for s in sources(root)
    ]
    return build([root], workspace, fuse=fuse, nulls=nulls, late_rows=True)


# -- morsels of the sources ------------------------------------------------------------------------


@dataclass(slots=True)
class Admissions:
    """The morsels of all sources in serial order, as pairs (source, morsel)."""

    morsels: list[tuple[int, Morsel]] = field(default_factory=list)
    _keep: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, root: Physical, workspace: Workspace, seed: int = 0) -> Admissions:
        """The morsels of each source in their order; several sources interleave at random."""
        made = cls()
        queues = [made._source(node, k, workspace) for k, node in enumerate(sources(root))]
        choice = random.Random(seed)
        sequence = 0
        while alive := [k for k, queue in enumerate(queues) if queue]:
            k = choice.choice(alive)
            morsel = queues[k].pop(0)
            morsel.words[SERIAL], morsel.words[SEQUENCE] = len(made.morsels), sequence
            sequence += int(morsel.words[ROWS])
            made.morsels.append((k, morsel))
        return made

    def _source(self, node: Any, k: int, workspace: Workspace) -> list[Morsel]:
        reader = node.relation.source().open(columns_read(node))
        text = frozenset(i for i, f in enumerate(node.schema) if f.type.is_text)
        ones = workspace.ones
        shared = Morsel.allocate(node.schema, workspace.morsel_rows, ones=ones.ctypes.data)
        feed = Feed(node, reader, workspace.dictionary, text, shared, ones)
        morsels = []
        while feed.load(None):
            self._keep.append(feed.begin())
            while cut(feed.cutter.ctypes.data, shared.address):
                morsels.append(self._kept(node.schema, shared))
        morsels.append(self._kept(node.schema, feed.end(0, 0)))
        return morsels

    def _kept(self, schema: Schema, morsel: Morsel) -> Morsel:
        """A copy of the morsel, with its own punctuations and late rows, over the same columns."""
        twin = Morsel.allocate(schema, 0, ones=0, owned=frozenset())
        twin.words[:] = morsel.words
        twin.punctuations[:] = morsel.punctuations
        twin.words[PUNCTUATION_ADDRESS] = twin.punctuations.ctypes.data
        n = LATE_ROW_WORDS * int(morsel.words[LATE_ROWS])
        late = view_address(int(morsel.words[LATE_ROW_ADDRESS]), np.dtype(np.int64), n).copy()
        twin.late_rows = late
        twin.words[LATE_ROW_ADDRESS] = late.ctypes.data
        return twin


# -- reading morsels -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """A copy of one output morsel. Values are in storage form: doubles as their bits, text as
    bytes, NULL as None. ``late_rows`` are triples (row, attribute, row watermark)."""

    serial: int
    sequence: int
    rows: tuple[tuple[Any, ...], ...]
    late_rows: tuple[tuple[int, ...], ...]
    punctuations: tuple[tuple[int, int], ...]


def read_morsel(morsel: Morsel, schema: Schema, dictionary: Dictionary) -> Chunk:
    words = morsel.words
    n = int(words[ROWS])
    columns = [_column(morsel, i, schema, n, dictionary) for i in range(len(schema))]
    rows = tuple(zip(*columns, strict=True)) if columns else ((),) * n
    punctuations = records(morsel, PUNCTUATION_ADDRESS, PUNCTUATIONS, PUNCTUATION_WORDS)
    late = records(morsel, LATE_ROW_ADDRESS, LATE_ROWS, LATE_ROW_WORDS)
    return Chunk(
        int(words[SERIAL]),
        int(words[SEQUENCE]),
        rows,
        tuple(map(tuple, late.tolist())),
        tuple((a, v) for a, v, *_ in punctuations.tolist()),
    )


def records(morsel: Morsel, address: int, count: int, width: int) -> np.ndarray[Any, Any]:
    """The morsel's punctuations or late rows as a matrix, one record per row."""
    n = int(morsel.words[count])
    at = int(morsel.words[address])
    return view_address(at, np.dtype(np.int64), width * n).reshape(n, width)


def column_data(morsel: Morsel, i: int, schema: Schema) -> np.ndarray[Any, Any]:
    storage = schema[i].type.storage
    dtype = np.dtype(np.uint8 if storage == "bool" else storage)
    return view_address(int(morsel.words[data_word(i)]), dtype, int(morsel.words[ROWS]))


def column_mask(morsel: Morsel, i: int) -> np.ndarray[Any, Any]:
    return view_address(
        int(morsel.words[mask_word(i)]), np.dtype(np.uint8), int(morsel.words[ROWS])
    )


def _column(morsel: Morsel, i: int, schema: Schema, n: int, dictionary: Dictionary) -> list[Any]:
    kind = schema[i].type
    data = column_data(morsel, i, schema)
    values: list[Any]
    if kind.is_coded:
        values = [dictionary.value(code) for code in data.tolist()]
    else:
        values = data.view(f"i{data.itemsize}" if kind.is_fraction else data.dtype).tolist()
    if not schema[i].nullable:
        return values
    valid = column_mask(morsel, i).tolist()
    return [v if ok else None for v, ok in zip(values, valid, strict=True)]


# -- running ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Recorder:
    """A handler that keeps all output as ``chunks``, and each bad row in ``bad`` as (operator,
    serial, row, reason)."""

    schema: Schema
    dictionary: Dictionary
    chunks: list[Chunk] = field(default_factory=list)
    bad: list[tuple[str, int, int, str]] = field(default_factory=list)

    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        self.chunks.append(read_morsel(morsel, self.schema, self.dictionary))

    def failed(self, failure: Failure) -> None:
        assert not failure.fatal, failure
        serial = int(failure.morsel.words[SERIAL])
        self.bad.append((failure.operator, serial, failure.row, failure.site.message))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for chunk in self.chunks for row in chunk.rows]


def runtime_of(
    name: str,
    graph: Graph,
    handler: Recorder,
    workspace: Workspace,
    *,
    slice_us: int = 20,
    burst: int = 0,
) -> Runtime:
    ones = int(workspace.ones.ctypes.data)
    if name == "depth_first":
        return DepthFirst(graph, handler, ones=ones)
    rows = workspace.morsel_rows
    return Queued(
        graph,
        handler,
        graph.inputs,
        name,
        ones=ones,
        morsel_rows=rows,
        slice_us=slice_us,
        burst=burst,
    )


def refresh(graph: Graph) -> None:
    for operator in graph.operators:
        if isinstance(operator, StageOperator | SlabOperator):
            operator.refresh()


def admit_all(runtime: Runtime, graph: Graph, morsels: Iterable[tuple[int, Morsel]]) -> None:
    """Admits all morsels; like an execution, empties the queues before the next source's morsel."""
    before = None
    for source, morsel in morsels:
        if source != before:
            runtime.drain()
        before = source
        edge = graph.entries[source]
        assert edge is not None
        runtime.admit(morsel, edge)
    runtime.drain()


def run_depth_first(
    root: Physical, morsel_rows: int, *, seed: int = 0, fuse: bool = False
) -> tuple[Recorder, Graph]:
    workspace = workspace_of(morsel_rows)
    graph = graph_of(root, workspace, fuse=fuse)
    admissions = Admissions.of(root, workspace, seed)
    recorder = Recorder(graph.schemas[graph.sinks[0]], workspace.dictionary)
    refresh(graph)
    admit_all(runtime_of("depth_first", graph, recorder, workspace), graph, admissions.morsels)
    return recorder, graph


# -- text ------------------------------------------------------------------------------------------


def table(text: str, types: Sequence[pa.DataType] | None = None) -> pa.Table:
    """A table from a header line and one line per row. ``-`` is NULL, words are strings, numbers
    are int64 unless ``types`` gives another type."""
    header, *lines = [line.split() for line in text.strip().splitlines()]
    columns = []
    for i, name in enumerate(header):
        cells = [None if line[i] == "-" else _cell(line[i]) for line in lines]
        columns.append(pa.array(cells, types[i] if types else None))
        assert len(columns[-1]) == len(lines), name
    return pa.table(columns, names=header)


def _cell(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
