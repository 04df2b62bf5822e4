"""The order in which each runtime calls operators, on hand-made chains, diamonds and cycles."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.executor.graph.graph import SINK, Edge, Graph
from cql.executor.jit.decorators import cfunc
from cql.executor.kernels.drive import queued
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import (
    DONE,
    HEADER,
    OUT,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.flow.union import UnionOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.runtimes.protocol import Failure, Runtime
from cql.executor.runtimes.queued import ADMITTED, Queued
from cql.session.session import Session
from tests.support.operator_tools import column_data, runtime_of, workspace_of
from tests.support.python_operators import PythonOperator
from tests.support.runtimes import ONE_THREAD, RUNTIMES, Settings, apply, named

SCHEMA = Schema((Field("n", BIGINT, False),))
ROOM = 8
ONES = np.ones(ROOM, np.uint8)


@dataclass
class Sink:
    """Keeps the delivered rows and punctuations; no row fails here."""

    rows: list[int] = field(default_factory=list)
    punctuations: list[int] = field(default_factory=list)
    on_delivery: Any = None

    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        self.rows += column_data(morsel, 0, SCHEMA).tolist()
        punctuated = morsel.punctuations[1 : 4 * int(morsel.words[PUNCTUATIONS]) : 4]
        self.punctuations += punctuated.tolist()
        if self.on_delivery is not None:
            self.on_delivery()

    def failed(self, failure: Failure) -> None:
        raise AssertionError(failure)


class Step(PythonOperator):
    """Logs each call; adds ``plus`` to each row and drops the sums below 0."""

    def __init__(self, name: str, log: list[str], plus: int = 0) -> None:
        super().__init__(name)
        self._log = log
        self._plus = plus

    @property
    def gives_one_at_most(self) -> bool:
        return True

    def call(self, morsel: Morsel, out: Morsel) -> int:
        self._log.append(self.name)
        values = column_data(morsel, 0, SCHEMA) + self._plus
        kept = values[values >= 0]
        data = out.data[0]
        assert data is not None
        data[: kept.size] = kept
        out.words[ROWS] = kept.size
        for word in (SERIAL, SEQUENCE, PUNCTUATIONS):
            out.words[word] = morsel.words[word]
        out.punctuations[:] = morsel.punctuations
        return DONE


@cfunc("int64(int64, int64)")
def countdown(descriptor: int, address: int) -> int:
    """Emits each row minus one; drops rows that are 0."""
    u = words(address, HEADER + 2)
    o = words(u[OUT], HEADER + 2)
    o[SERIAL] = u[SERIAL]
    given = words(u[HEADER], u[ROWS])
    made = words(o[HEADER], ROOM)
    n = 0
    for value in given:
        if value > 0:
            made[n] = value - 1
            n += 1
    o[ROWS] = n
    return DONE


class Countdown(PythonOperator):
    """The compiled ``countdown``, called by address."""

    def __init__(self) -> None:
        super().__init__("countdown")
        self.address = int(countdown.address)

    def call(self, morsel: Morsel, out: Morsel) -> int:
        raise AssertionError("a compiled operator is called by its address")


def graph_by_hand(operators: Sequence[Any], edges: dict[int, list[tuple[int, int]]]) -> Graph:
    """``edges``: by operator the pairs of target (an operator or SINK) and port; morsels enter at
    operator 0."""
    n = len(operators)
    morsels = [Morsel.allocate(SCHEMA, ROOM, ones=ONES.ctypes.data) for _ in range(n)]
    wired = [[Edge(*edge) for edge in edges.get(k, [])] for k in range(n)]
    return Graph(
        list(operators),
        morsels,
        [SCHEMA] * n,
        [(SCHEMA,)] * n,
        wired,
        [Edge(0, 0)],
        sinks=[len(operators) - 1],
    )


def morsel_of(*rows: int, serial: int = 0, punctuation: int | None = None) -> Morsel:
    morsel = Morsel.allocate(SCHEMA, ROOM, ones=ONES.ctypes.data, late_rows=True)
    data = morsel.data[0]
    assert data is not None
    data[: len(rows)] = rows
    morsel.words[ROWS], morsel.words[SERIAL] = len(rows), serial
    if punctuation is not None:
        morsel.words[PUNCTUATIONS] = 1
        morsel.punctuations[:3] = 0, punctuation, -1
    return morsel


@pytest.fixture
def workspace() -> Workspace:
    return workspace_of(ROOM)


def flat(chunks: list[list[int]]) -> list[int]:
    return [row for chunk in chunks for row in chunk]


def run(name: str, graph: Graph, morsels: list[Morsel], workspace: Workspace, us: int = 0) -> Sink:
    sink = Sink()
    runtime = runtime_of(name, graph, sink, workspace, slice_us=us)
    for morsel in morsels:
        runtime.admit(morsel, Edge(0, 0))
    runtime.drain()
    return sink


# -- order of calls --------------------------------------------------------------------------------


def calls(name: str, names: str, edges: dict[int, list[tuple[int, int]]], us: int = 0) -> str:
    """Sends three morsels through a graph of steps; returns the names of the steps in the order of
    their calls."""
    log: list[str] = []
    graph = graph_by_hand([Step(letter, log) for letter in names], edges)
    sink = run(name, graph, [morsel_of(k, serial=k) for k in range(3)], workspace_of(ROOM), us)
    assert sorted(set(sink.rows)) == [0, 1, 2]
    return "".join(log)


CHAIN = {0: [(1, 0)], 1: [(SINK, 0)]}
FORK = {0: [(1, 0), (2, 0)], 1: [(3, 0)], 2: [(SINK, 0)], 3: [(SINK, 0)]}


def test_depth_first_takes_each_morsel_through_the_plan() -> None:
    assert calls("depth_first", "ab", CHAIN) == "ababab"
    assert calls("depth_first", "abcd", FORK) == "abdcabdcabdc"


def test_fifo_gives_each_queue_one_turn() -> None:
    assert calls("fifo", "ab", CHAIN) == "ababab"
    assert calls("fifo", "abcd", FORK) == "abcadbcadbcd"


def test_fifo_slice_stays_until_its_time_is_over() -> None:
    long = 10_000_000
    assert calls("fifo_slice", "ab", CHAIN, us=long) == "aaabbb"
    assert calls("fifo_slice", "abcd", FORK, us=long) == "aaabbbcccddd"
    assert calls("fifo_slice", "ab", CHAIN, us=0) == "ababab"


def test_run_to_completion_goes_on_with_a_successor() -> None:
    assert calls("run_to_completion", "ab", CHAIN) == "aaabbb"
    assert calls("run_to_completion", "abcd", FORK) == "aaabbbdddccc"


# -- diamonds and cycles ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_THREAD)
def test_a_diamond(name: str, workspace: Workspace) -> None:
    """One operator feeds two, which meet in a union: it emits the rows of both and the lesser of
    their watermarks."""
    log: list[str] = []
    steps = [Step("a", log), Step("b", log, 10), Step("c", log, 100)]
    union = UnionOperator("d", SCHEMA, ("b", "c"), (0,), workspace)
    edges = {0: [(1, 0), (2, 0)], 1: [(3, 0)], 2: [(3, 1)], 3: [(SINK, 0)]}
    graph = graph_by_hand([*steps, union], edges)
    morsels = [morsel_of(k, k + 5, serial=k, punctuation=k) for k in range(4)]
    sink = run(name, graph, morsels, workspace)
    expected = [[k + 10, k + 15, k + 100, k + 105] for k in range(4)]
    assert sink.rows == flat(expected)
    assert sink.punctuations == [0, 1, 2, 3]
    assert union.counters() == {"rows_in": 16, "rows_out": 16}
    if name == "depth_first":
        assert "".join(log) == "abcabcabcabc"


@pytest.mark.parametrize("name", ONE_THREAD)
def test_an_operator_that_feeds_itself(name: str, workspace: Workspace) -> None:
    graph = graph_by_hand([Countdown()], {0: [(0, 0), (SINK, 0)]})
    sink = run(name, graph, [morsel_of(3, 1), morsel_of(2)], workspace)
    if name == "depth_first":
        assert sink.rows == [2, 0, 1, 0, 1, 0]
    assert sorted(sink.rows) == [0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("name", ONE_THREAD)
def test_a_long_cycle_beside_other_work(name: str, workspace: Workspace) -> None:
    """A cycle has more rounds than a queue has places, while another operator has work."""
    log: list[str] = []
    edges = {0: [(1, 0), (2, 0)], 1: [(1, 0), (SINK, 0)], 2: [(SINK, 0)]}
    graph = graph_by_hand([Step("a", log), Countdown(), Step("c", log, 1000)], edges)
    sink = run(name, graph, [morsel_of(150), morsel_of(70)], workspace)
    assert sorted(sink.rows) == sorted([*range(150), *range(70), 1150, 1070])


def test_depth_first_goes_on_with_the_least_recently_run(workspace: Workspace) -> None:
    """``c`` feeds ``a`` and ``b``. Both are on the stack, so both are queued. ``a`` ran before
    ``b``, so ``a`` runs first."""
    log: list[str] = []
    steps = [Step("a", log), Step("b", log), Step("c", log, -1)]
    edges = {0: [(1, 0)], 1: [(2, 0)], 2: [(0, 0), (1, 0), (SINK, 0)]}
    sink = run("depth_first", graph_by_hand(steps, edges), [morsel_of(1)], workspace)
    assert "".join(log) == "abc" + "abc" + "bc"
    assert sink.rows == [0]


def test_what_loops_back_is_a_copy(workspace: Workspace) -> None:
    """The morsel that closes the loop is reused before the queued data are read."""
    graph = graph_by_hand([Countdown(), Countdown()], {0: [(1, 0)], 1: [(0, 0), (SINK, 0)]})
    morsels = [morsel_of(9, 8, 7, 6), morsel_of(5, 4, 3, 2)]
    sink = run("depth_first", graph, morsels, workspace)
    first = [[7, 6, 5, 4], [5, 4, 3, 2], [3, 2, 1, 0], [1, 0]]
    second = [[3, 2, 1, 0], [1, 0]]
    assert sink.rows == flat([*first, *second])


# -- admission control -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_THREAD[1:])
def test_admission_is_limited(name: str, workspace: Workspace) -> None:
    log: list[str] = []
    steps = [Step(letter, log) for letter in "abcde"]
    edges = {k: [(k + 1, 0)] for k in range(4)} | {4: [(SINK, 0)]}
    sink = Sink()
    runtime = runtime_of(name, graph_by_hand(steps, edges), sink, workspace)
    inside = _inside(runtime)
    sink.on_delivery = lambda: most.append(inside())
    most: list[int] = []
    for k in range(100):
        runtime.admit(morsel_of(k, serial=k), Edge(0, 0))
        most.append(inside())
    assert max(most) == ADMITTED
    assert len(sink.rows) >= 100 - ADMITTED
    runtime.drain()
    assert inside() == 0
    assert sink.rows == list(range(100))
    assert isinstance(runtime, Queued)
    assert len(runtime._morsels) <= 5 * (ADMITTED + 2)


@pytest.mark.parametrize("name", ONE_THREAD[1:])
@pytest.mark.parametrize("burst", [1, 7, 32])
def test_bursts_run_to_the_end(name: str, burst: int, workspace: Workspace) -> None:
    steps = [Step(letter, []) for letter in "abc"]
    edges = {0: [(1, 0)], 1: [(2, 0)], 2: [(SINK, 0)]}
    sink = Sink()
    runtime = runtime_of(name, graph_by_hand(steps, edges), sink, workspace, burst=burst)
    inside = _inside(runtime)
    for k in range(40):
        runtime.admit(morsel_of(2 * k, 2 * k + 1, serial=k), Edge(0, 0))
        morsels = k + 1
        through = morsels - morsels % -(-burst // 2)
        assert sink.rows == list(range(2 * through))
        assert inside() == morsels - through
    runtime.drain()
    assert sink.rows == list(range(80))


def _inside(runtime: Runtime) -> Any:
    assert isinstance(runtime, Queued)
    return lambda: int(runtime._control[queued.QUEUED])


def test_a_burst_leaves_no_morsels_behind() -> None:
    """Repeated rows fill the next queue with morsels; the runtime frees these morsels when the work
    is done."""
    with cql.connect(False, morsel_rows=64, runtime="fifo", fuse=False) as session:
        session.create_stream("t", pa.table({"ts": range(500)}), "ts")
        query = session.sql(
            "SELECT ts + 1 AS n FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), 1, 100)) AS h WHERE ts > 3"
        )
        taken: list[int] = []
        left: list[int] = []
        run_on, shrink = Queued._run, Queued._shrink

        def watch(runtime: Queued, until: int) -> None:
            run_on(runtime, until)
            taken.append(len(runtime._morsels))

        def after(runtime: Queued) -> None:
            shrink(runtime)
            left.append(len(runtime._morsels))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Queued, "_run", watch)
            patched.setattr(Queued, "_shrink", after)
            assert query.to_arrow().num_rows == 496 * 100
        assert max(taken) > 60
        assert max(left) <= 3 * ADMITTED


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_nothing_waits_for_the_next_input(runtime: Settings) -> None:
    """The rows of a live source that falls silent are emitted without further input."""
    seen = threading.Event()
    in_time: list[bool] = []

    def live() -> Iterator[pa.Table]:
        yield pa.table({"ts": np.arange(5), "v": np.arange(5)})
        in_time.append(seen.wait(240))

    with Session(False) as session:
        session.create_stream("live", live(), ordered_by="ts", bounded=False)
        apply(session, runtime)
        rows: list[int] = []
        for batch in session.sql("SELECT ts, v + 1 AS w FROM live"):
            rows += batch["w"].to_pylist()
            seen.set()
    assert rows == [1, 2, 3, 4, 5]
    assert in_time == [True]


@pytest.mark.parametrize("name", ["fifo", "fifo_slice", "run_to_completion"])
def test_many_small_morsels_wait_in_little_memory(name: str) -> None:
    """A relation outputs the changes of each instant apart: hundreds of morsels of a few rows."""
    n = np.arange(400)
    table = pa.table({"t": n, "k": n % 3, "v": n * 7 % 11})
    ranked = "SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS p FROM n [RANGE 9]"
    with cql.connect(spark=False) as session:
        session.create_stream("n", table, ordered_by="t")
        apply(session, {"runtime": name, "fuse": False, "max_state": "100 MB"})
        found: Any = session.sql(f"SELECT k, v, p FROM ({ranked}) WHERE p <= 2")
        assert found.to_arrow().num_rows == 6


#: Queries in which several paths of one input meet.
MEETING = {
    "join": "SELECT a.v AS x, b.v AS y FROM n [RANGE 3] AS a JOIN n [RANGE 3] AS b ON a.k = b.k",
    "join of a selection": "SELECT a.v AS x, b.v AS y FROM n [RANGE 3] AS a JOIN"
    " (SELECT t, v + 1 AS v, k FROM n [NOW] WHERE v > 3) AS b ON a.k = b.k",
    "union": "SELECT k, v FROM n WHERE v > 4 UNION ALL SELECT v, k FROM n WHERE v < 8",
    "union that is joined": "SELECT a.v AS x, b.v AS y FROM (SELECT t, k, v FROM n WHERE v > 4"
    " UNION ALL SELECT t, k, v FROM n WHERE v < 8) [RANGE 2] AS a JOIN n [NOW] AS b ON a.k = b.k",
    "subquery": "SELECT ISTREAM(k, v) FROM n [RANGE 5] WHERE v > (SELECT avg(v) FROM n [RANGE 9])",
    "changes": "SELECT k, v FROM n [RANGE 5] EXCEPT SELECT k, v FROM n [RANGE 2]",
}
#: Queries without such paths.
CHAINS = {
    "windows": "SELECT k, sum(v) AS v FROM n [RANGE 8 SLIDE 2] GROUP BY k",
    "windows of windows": "SELECT k, sum(v) AS w FROM (SELECT window_start AS t, k, sum(v) AS v"
    " FROM n [RANGE 4 SLIDE 2] GROUP BY k) [RANGE 4 SLIDE 1] GROUP BY k",
}
BURSTS = tuple(
    {"runtime": name, "tuple_burst": burst} for name in ONE_THREAD[1:] for burst in (1, 20, 10_000)
)


@pytest.mark.sampled
@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("query", MEETING | CHAINS)
def test_runtimes_keep_the_order_of_depth_first(query: str, rows: int) -> None:
    n = np.arange(120)
    table = pa.table({"t": n // 3, "k": n * 5 % 4, "v": n * 7 % 11})
    found: dict[str, Any] = {}
    for settings in (*RUNTIMES, *BURSTS):
        with cql.connect(spark=False) as session:
            session.create_stream("n", table, ordered_by="t")
            apply(session, settings, {"fuse": rows == 64, "morsel_rows": rows})
            asked: Any = session.sql((MEETING | CHAINS)[query])
            found[named(settings)] = [row for b in asked.batches() for row in b.to_pylist()]
    first, *others = found
    assert all(found[other] == found[first] for other in others)
    assert len(found[first]) > 20
