"""Overhead of the engine itself (xstream paper, sections III.C and IV.A). EngineBench is a plan of
a thousand pass-through operators. PASSCHAIN is a chain of ten over real data, sources and results
included. Both run under each of the four schedulers, without fusion.

    python -m benchmarks.run engine passchain
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import Benchmark, Contender, Ratio
from benchmarks.workloads import Answer, checksum, sums
from cql.base.model import Field, Schema
from cql.base.settings import Settings
from cql.base.types import SMALLINT
from cql.executor.graph.graph import SINK, Edge, Graph
from cql.executor.kernels.morsel_layout import ROWS, SERIAL, data_word
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.operators.stage.spec import StageSpec
from cql.executor.operators.workspace import Workspace
from cql.executor.run.execution import Execution
from cql.executor.runtimes.depth_first import DepthFirst
from cql.executor.runtimes.protocol import Failure, Runtime
from cql.executor.runtimes.queued import Queued
from cql.executor.strings.dictionary import Dictionary
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import (
    Physical,
    PhysicalPlan,
    ProjectExec,
    RuntimeChoice,
    SourceExec,
    ValuesExec,
)

SCHEDULERS = ("depth_first", "fifo", "fifo_slice", "run_to_completion")
OPERATORS = 1_000
CHAIN = 10
#: Rows in a morsel, and morsels that go through all operators in one run.
SIZES = {1: 500, 1024: 200, 65_536: 16}
#: Rows per morsel of PASSCHAIN (with 1 row, reading and giving Arrow would dominate).
CHAIN_SIZES = (1024, 65_536)
#: Morsels admitted before the plan runs empty (xstream's tupleBurst).
BURST = 8
#: Samples of 16 bits, as from a microphone.
SCHEMA = Schema((Field("sample", SMALLINT, False),))
GOAL = 3.0


@dataclass(slots=True)
class Engine:
    """A chain of pass-through operators of one kernel, under one scheduler."""

    scheduler: str
    rows: int
    morsels: int
    operators: int
    burst: int = 0  # the setting ``tuple_burst``
    workspace: Workspace = field(init=False)
    graph: Graph = field(init=False)
    source: Morsel = field(init=False)
    runtime: Runtime = field(init=False)
    delivered: list[int] = field(default_factory=list)
    total: int = 0
    _last: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.workspace = Workspace(Dictionary(), "on", self.rows, 1 << 40)
        ones = int(self.workspace.ones.ctypes.data)
        self.graph = _chain(self.operators, self.workspace)
        self.source = Morsel.allocate(SCHEMA, self.rows, ones=ones, late_rows=True)
        data = self.source.data[0]
        assert data is not None
        data[:] = np.arange(self.rows, dtype=np.int64) % 30_000
        self.source.words[ROWS] = self.rows
        self.runtime = self._runtime(ones)

    def _runtime(self, ones: int) -> Runtime:
        if self.scheduler == "depth_first":
            return DepthFirst(self.graph, self, ones=ones)
        return Queued(
            self.graph,
            self,
            self.graph.inputs,
            self.scheduler,
            ones=ones,
            morsel_rows=self.rows,
            slice_us=Settings().slice_us,
            burst=self.burst,
        )

    def run(self) -> None:
        self.delivered.clear()
        self.total = 0
        edge = Edge(0, 0)
        for serial in range(self.morsels):
            self.source.words[SERIAL] = serial
            self.runtime.admit(self.source, edge)
            if serial % BURST == BURST - 1:
                self.runtime.drain()
        self.runtime.drain()

    def answer(self, _: object) -> Answer:
        """The checksum of the last morsel; asserts that all morsels came in order."""
        assert self.delivered == list(range(self.morsels))
        assert self.total == self.rows * self.morsels
        address, n = self._last
        return checksum(view_address(address, np.dtype(np.int16), n))

    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        words = morsel.words
        self.delivered.append(int(words[SERIAL]))
        self._last = int(words[data_word(0)]), int(words[ROWS])
        self.total += self._last[1]

    def failed(self, failure: Failure) -> None:
        raise AssertionError(failure)


def _chain(operators: int, workspace: Workspace) -> Graph:
    """A chain wired by hand: the planner refuses such deep nesting. All operators share one
    compiled kernel."""
    identity = ProjectExec(ValuesExec(), _columns(SCHEMA), SCHEMA.names)  # its input is not read
    spec = StageSpec(SCHEMA, (identity,), None, (), SCHEMA, (), carry_late_rows=True)
    graph = Graph(entries=[Edge(0, 0)], sinks=[operators - 1])
    ones = int(workspace.ones.ctypes.data)
    for k in range(operators):
        operator = StageOperator(f"pass#{k}", spec, workspace)
        owned = frozenset(range(len(SCHEMA))) - frozenset(operator.code.by_ref)
        graph.operators.append(operator)
        graph.morsels.append(
            Morsel.allocate(SCHEMA, workspace.morsel_rows, ones=ones, owned=owned, late_rows=True)
        )
        graph.schemas.append(SCHEMA)
        graph.inputs.append((SCHEMA,))
        graph.edges.append([Edge(k + 1 if k + 1 < operators else SINK, 0)])
    return graph


def _columns(schema: Schema) -> tuple[Column, ...]:
    return tuple(Column(i, f.name, f.type, f.nullable) for i, f in enumerate(schema))


def engine(
    rows: int, limit: int | None = None, _: Path | None = None, operators: int = OPERATORS
) -> Benchmark:
    """EngineBench with morsels of ``rows`` rows. A row of the harness is here one call of an
    operator on one morsel."""
    rows = min(rows, limit or rows)
    morsels = SIZES.get(rows, 16)
    engines = {s: Engine(s, rows, morsels, operators) for s in SCHEDULERS}
    expected = checksum(np.arange(rows, dtype=np.int64) % 30_000)
    return Benchmark(
        f"engine-{rows}",
        f"EngineBench: {operators:,} pass-through operators, morsels of {rows:,}; "
        "'row' is one operator run on one morsel",
        operators * morsels,
        expected,
        [Contender(s, e.run, e.answer, pinned=True) for s, e in engines.items()],
        [Ratio("depth_first", s, GOAL if s == "fifo" else None) for s in SCHEDULERS[1:]],
        bandwidth=False,
    )


# -- PASSCHAIN -------------------------------------------------------------------------------------


def passchain(morsel_rows: int, rows: int | None = None, _: Path | None = None) -> Benchmark:
    """Ten pass-through operators between two tables in memory.

    The goal holds only for morsels of the default size. With small morsels the edges, where Python
    cuts morsels and makes Arrow batches, cost more than the chain under every scheduler."""
    table = _samples(rows)
    plan = partial(_plan, _source(table))
    goal = GOAL if morsel_rows == Settings().morsel_rows else None
    return Benchmark(
        f"passchain-{morsel_rows}",
        f"PASSCHAIN: {len(table):,} departures through {CHAIN} pass-through operators, morsels of "
        f"{morsel_rows:,}",
        len(table),
        _answer(table),
        [Contender(s, _run(plan, s, morsel_rows), _answer, pinned=True) for s in SCHEDULERS],
        [Ratio("depth_first", s, goal if s == "fifo" else None) for s in SCHEDULERS[1:]],
        bandwidth=False,
    )


def _samples(rows: int | None) -> pa.Table:
    """Scheduled times and delays of the flights from New York in 2013: the demo's data, repeated
    ten times."""
    from cql.catalog.demo import flights

    real = flights().select(["sched", "dep_delay"])
    table = pa.concat_tables([real] * 10).combine_chunks()
    return table if rows is None else table.slice(0, rows)


def _source(table: pa.Table) -> SourceExec:
    from cql.catalog.local import LocalCatalog

    catalog = LocalCatalog()
    catalog.register(("samples",), table)
    relation = catalog.find(("samples",))
    assert relation is not None
    return SourceExec(relation, tuple(range(len(relation.schema))))


def _plan(source: SourceExec, scheduler: str) -> PhysicalPlan:
    root: Physical = source
    for _ in range(CHAIN):
        root = ProjectExec(root, _columns(root.schema), root.schema.names)
    return PhysicalPlan(root, RuntimeChoice(scheduler, ""), keep_bad_rows=False)


def _run(
    plan: Callable[[str], PhysicalPlan], scheduler: str, morsel_rows: int
) -> Callable[[], pa.Table]:
    settings = Settings.of(fuse=False, morsel_rows=morsel_rows)

    def run() -> pa.Table:
        execution = Execution(plan(scheduler), settings)
        batches: Sequence[Any] = [batch for _, batch in execution.results()]
        return pa.Table.from_batches(batches, execution.plans[0].root.schema.to_arrow())

    return run


def _answer(table: pa.Table) -> Answer:
    delay = table["dep_delay"].fill_null(-9999).cast("int64")
    return sums(*(np.asarray(c.cast("int64")) for c in (table["sched"], delay)))
