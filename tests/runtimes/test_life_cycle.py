"""A query under the ordered runtime from its start to its end: changes of the number of workers,
pauses, cuts, errors, interrupts and limits."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql.errors import CatalogError, RunError, SettingError
from cql.executor.kernels.morsel_layout import SERIAL
from cql.executor.kernels.ordered import tables
from cql.executor.operators.flow.replicas import PartitionedOperator
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.run import make_runtime
from cql.executor.run.execution import Execution
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.ordered import Ordered
from cql.executor.runtimes.paths import depth_first_ranks
from cql.executor.runtimes.protocol import Failure
from cql.executor.runtimes.tables import MOST_WORKERS, depth
from cql.query.query import Query
from cql.session.session import Session
from tests.support.growing_streams import stream as growing
from tests.support.runtime_queries import JOINED, QUERIES, WORKLISTS, interrupt, left_over, stream

SHAPES = {
    "many keys": JOINED["many keys"],
    "joined": JOINED["joined"],
    "filter and project": QUERIES["filter and project"],
    "sorted windows": QUERIES["sorted windows"],
}
#: Queries that fail in several operators, in each of them at other rows.
FAILING = {
    "two branches": """
        SELECT k, count(*) AS n, sum(d) AS total, window_end FROM (
            SELECT ts, k, 100 / (v - 50) AS d FROM a WHERE v % 3 <> 0
            UNION ALL SELECT ts, k, 100 / (v - 20) AS d FROM a WHERE v > 1) AS m
        [RANGE 30 SLIDE 10 WA ts] GROUP BY k""",
    "behind each other": """
        SELECT k, v, sum(d / (v - 40)) AS total, window_end FROM (
            SELECT ts, k, v, 100 / (v - 20) AS d FROM a WHERE v <> 3) AS m
        [RANGE 30 SLIDE 10 WA ts] GROUP BY k, v""",
    "texts": """
        SELECT ts, CAST(s AS BIGINT) AS n FROM (
            SELECT ts, v, concat(CAST(v AS STRING), CASE WHEN v = 77 THEN 'x' ELSE '' END) AS s
            FROM a WHERE 10 / (v - 33) < 100) AS t""",
}


@pytest.fixture
def session(seed: int) -> Iterator[Session]:
    session = Session(False)
    for i, name in enumerate("abc"):
        table = stream(seed + i, [0, 1, 2])
        session.create_stream(name, table, ordered_by="ts", unit="seconds", slack=5)
    session.set("morsel_rows", 7)
    session.set("on_bad_row", "keep")
    yield session
    session.close()
    assert left_over() == []


@pytest.fixture
def ungathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivers small results one by one, so that a test can act between two of them."""
    monkeypatch.setattr(make_runtime, "gathered", lambda *_, **__: {})


def depth_first(session: Session, text: str) -> pa.Table:
    session.set("runtime", "depth_first")
    answer = session.sql(text).to_arrow()
    session.set("runtime", "ordered")
    return answer


def execution_of(query: Query) -> Execution:
    execution: Execution = query._run._execution  # type: ignore[union-attr]
    return execution


def ordered_of(query: Query) -> Ordered:
    runtime = execution_of(query)._runtime
    assert isinstance(runtime, Ordered)
    return runtime


# -- more and fewer workers ------------------------------------------------------------------------


@pytest.mark.usefixtures("stress", "ungathered")
@pytest.mark.parametrize("shape", SHAPES)
def test_workers_come_and_go(session: Session, shape: str, seed: int) -> None:
    """The output does not depend on when the number of workers changes; here it changes between
    batches."""
    session.set("morsel_rows", 3)
    expected = depth_first(session, SHAPES[shape])
    rng = random.Random(seed)
    session.set("worklist", WORKLISTS[list(SHAPES).index(shape) % 3])
    session.set("workers", 2)
    query = session.sql(SHAPES[shape])
    seen, batches = Counter[int](), []
    for batch in query:
        batches.append(batch)
        seen[len(left_over())] += 1
        if rng.random() < 0.3:
            query.workers = rng.choice((1, 2, 3, 4, 9))
    assert pa.Table.from_batches(batches, expected.schema).equals(expected)
    assert left_over() == []
    assert len(seen) > 1 or len(batches) < 20  # a few may all be ready before the first is read


def test_workers_are_changed_by_another_thread(session: Session, stress: None, seed: int) -> None:
    expected = depth_first(session, SHAPES["many keys"])
    query, rng = session.sql(SHAPES["many keys"]), random.Random(seed)
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            with suppress(RunError):  # the query is not running yet, or no longer
                query.workers = rng.choice((0, 1, 2, 4))

    thread = threading.Thread(target=change)
    thread.start()
    for _ in range(5):
        assert query.to_arrow().equals(expected)
    over.set()
    thread.join()


def test_tables_fit_the_workers(session: Session, ungathered: None) -> None:
    """The number of morsels follows the current number of workers, up and down."""
    session.set("morsel_rows", 1)
    session.set("runtime", "ordered")
    session.set("workers", 1)
    session.set("partitions", 3)
    query = session.sql(SHAPES["many keys"])
    batches = query.batches()
    next(batches)
    runtime = ordered_of(query)
    table, used = runtime._tasks, execution_of(query).workspace

    def views() -> int:
        return sum(1 for u in table.morsels.values() if all(d is None for d in u.data))

    few, bytes_of_few = views(), used.used
    query.workers = MOST_WORKERS
    while runtime.workers == 1:
        next(batches)
    assert views() == few // depth(1) * depth(MOST_WORKERS)
    assert used.used > bytes_of_few
    while not left_over():
        next(batches)
    assert len(left_over()) == MOST_WORKERS - 1
    runtime.change(1)
    assert views() == few
    assert {int(table.task(s)[tables.SIZE]) for s in range(len(table.order))} == {depth(1)}
    assert left_over() == []
    batches.close()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("ungathered")
@pytest.mark.parametrize("cores", [1, 3])
def test_workers_that_nobody_has_counted(
    session: Session, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """workers = 0: measurement chooses the number of workers, up to the number of cores; by the
    clock of this test every further worker makes the run faster."""
    session.set("morsel_rows", 1)
    expected = depth_first(session, SHAPES["many keys"])
    monkeypatch.setattr("cql.executor.run.control.cores", lambda: cores)
    session.set("workers", 1)
    query, now, batches = session.sql(SHAPES["many keys"]), 0.0, []

    def clock() -> float:
        nonlocal now
        now += 0.1 / (1 + len(left_over()))
        return now

    for batch in query:
        if not batches:
            execution_of(query).control._clock = clock
            query.workers = 0
        batches.append(batch)
        assert query.workers <= cores
    assert pa.Table.from_batches(batches, expected.schema).equals(expected)
    told = query._run.sharing()  # type: ignore[union-attr]
    assert told is None if cores == 1 else f"of {cores} cores" in str(told)


@pytest.mark.auto_runtime
def test_what_is_refused(session: Session) -> None:
    query = session.sql(SHAPES["joined"])
    with pytest.raises(RunError, match="is not running: it is ready"):
        query.workers = 2
    with pytest.raises(RunError, match="is not running: it is ready"):
        query.pause()
    batches = query.batches()
    next(batches)
    assert query.workers == 1
    with pytest.raises(RunError, match="runs depth first, in one thread"):
        query.workers = 2
    with pytest.raises(SettingError, match="workers does not take 65"):
        query.workers = 65
    batches.close()  # type: ignore[attr-defined]
    with pytest.raises(RunError, match="is not running: it is stopped"):
        query.resume()


# -- pauses ----------------------------------------------------------------------------------------


class Bell(SimpleQueue):  # type: ignore[type-arg]
    """Calls ``waits`` when the driver of a paused query begins to wait for its wake-up."""

    def __init__(self, waits: Callable[[], None]) -> None:
        self._waits = waits
        self._begun = False

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._begun:
            self._begun = True  # the driver may wait in several turns
            self._waits()
        item = super().get(block, timeout)
        self._begun = False
        return item


@pytest.mark.parametrize("runtime", ["ordered", "depth_first", "fifo"])
def test_a_paused_query_does_nothing(session: Session, ungathered: None, runtime: str) -> None:
    expected = depth_first(session, SHAPES["many keys"])
    session.set("runtime", runtime)
    session.set("workers", 3)
    session.set("morsel_rows", 1)
    query, answer = session.sql(SHAPES["many keys"]), []
    waits, pauses = SimpleQueue[int](), 0
    begun: list[Execution] = []
    attend = Execution._take_results

    def taking(execution: Execution) -> Any:
        """Pauses the query at some of its results."""
        nonlocal pauses
        if not begun:
            begun.append(execution)
            execution.control._bell = Bell(lambda: waits.put(pauses))
        if execution._results and pauses < 3 and not query.is_paused:
            pauses += 1
            execution.control.pause()  # a thread of the run must not call ``query.pause``
        return attend(execution)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Execution, "_take_results", taking)
        thread = threading.Thread(target=lambda: answer.append(query.to_arrow()))
        thread.start()
        for n in range(1, 4):
            assert waits.get(timeout=60) == n
            assert (query.status, query.is_active, pauses) == ("paused", True, n)
            assert left_over() == []
            scheduler = begun[0]._scheduler
            assert scheduler is not None
            admitted = scheduler.serial
            if runtime == "ordered":
                query.workers = n
            assert scheduler.serial == admitted
            query.resume()
        thread.join()
    assert answer == [expected]


def test_a_paused_query_stops(session: Session, ungathered: None) -> None:
    session.set("runtime", "ordered")
    session.set("workers", 2)
    query = session.sql(SHAPES["many keys"])
    batches = query.batches()
    next(batches)
    execution_of(query).control._bell = Bell(lambda: query.stop(0) and None)
    query.pause()
    assert sum(batch.num_rows for batch in batches) < 500
    assert (query.status, left_over()) == ("stopped", [])


# -- cuts ------------------------------------------------------------------------------------------


def groups(execution: Execution) -> Counter[tuple[Any, ...]]:
    """The groups of all open windows, in all partitions."""
    found: Counter[tuple[Any, ...]] = Counter()
    assert execution.graph is not None
    for operator in execution.graph.operators:
        instances = operator.instances if isinstance(operator, PartitionedOperator) else (operator,)
        for one in instances:
            if not isinstance(one, StageOperator) or one.spec.aggregate is None:
                continue
            ids = one.state["window_ids"]
            free = one.state["spares"][: one.scalars()["spare"]]
            slots = np.setdiff1d(np.arange(ids.size), free)
            entries = one._entries_of(slots, "")
            windows = ids[slots].repeat(one.state["counts"][slots])
            # Positions may be counted before or behind a filter; only their order matters.
            named = [n for n, _ in one._table("").columns]
            names = [n for n in named if n != "born" and not n.endswith("q")]
            columns = [one.column(name)[entries].tolist() for name in names]
            found.update(zip(windows.tolist(), *columns, strict=True))
    return found


def at_a_cut(session: Session, text: str, serial: int) -> tuple[Any, ...]:
    """The output before and behind the cut at ``serial``; at the cut the groups, the watermark and
    late rows of each input, and the sequence number."""
    query = session.sql(text)
    before: list[pa.RecordBatch] = []
    state: list[Any] = []

    def then() -> None:
        execution = execution_of(query)
        before.extend(batch for _, batch in execution._results)
        before[:0] = behind
        behind.clear()
        execution._results.clear()
        assert execution._scheduler is not None
        progress = [(f.attributes[0].watermark(), f.late_rows) for f in execution.feeds]
        state.extend((groups(execution), progress, execution._scheduler.sequence))
        if isinstance(execution._runtime, Ordered):
            assert execution._runtime._plan[tables.INSIDE] == 0
        assert execution._scheduler.serial == serial

    behind: list[pa.RecordBatch] = []
    make = Execution.__init__

    def making(execution: Execution, *given: Any) -> None:
        make(execution, *given)
        execution.control.quiesce_at(serial, then)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Execution, "__init__", making)
        behind.extend(query)
    schema = query.schema.to_arrow()
    assert state
    return pa.Table.from_batches(before, schema), pa.Table.from_batches(behind, schema), *state


@pytest.mark.parametrize("shape", ["many keys", "joined", "filter and project"])
def test_a_cut_is_consistent(session: Session, stress: None, shape: str, seed: int) -> None:
    """The state and the output after n morsels are those of depth first after n morsels."""
    rng = random.Random(seed)
    for serial in (0, 1, *rng.sample(range(2, 43), 4)):
        session.set("runtime", "depth_first")
        expected = at_a_cut(session, SHAPES[shape], serial)
        session.set("runtime", "ordered")
        session.set("workers", rng.choice((2, 4)))
        before, behind, *state = at_a_cut(session, SHAPES[shape], serial)
        assert before.equals(expected[0])
        assert behind.equals(expected[1])
        assert state == list(expected[2:])
    assert shape != "many keys" or state[0]


# -- errors ----------------------------------------------------------------------------------------


def failure(session: Session, text: str) -> tuple[type, str]:
    with pytest.raises((RunError, CatalogError)) as caught:
        session.sql(text).to_arrow()
    assert left_over() == []
    return type(caught.value), str(caught.value)


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Makes errors name the morsel and the row in it, even if the row is not a row of a source.
    Delays some failures, so that other workers fail too. Collects for each run the ranks of the
    operators that failed."""
    found: list[set[int]] = []
    failed, first, rng = Execution.failed, Ordered._first_failure, random.Random(1)

    def located(execution: Execution, failure: Failure) -> None:
        if rng.random() < 0.5:
            time.sleep(0.001)
        try:
            failed(execution, failure)
        except RunError as error:
            serial = int(failure.morsel.words[SERIAL])
            error.message = f"morsel {serial}, row {failure.row}: {error.message}"
            raise

    def noted(runtime: Ordered) -> Exception:
        error = first(runtime)
        places = [place for place, _ in runtime._failures]
        assert len(set(places)) == len(places)
        found.append({rank for _, _, rank, *_ in places})
        return error

    monkeypatch.setattr(Execution, "failed", located)
    monkeypatch.setattr(Ordered, "_first_failure", noted)
    return found


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.usefixtures("stress")
@pytest.mark.parametrize(
    ("shape", "fuse"), [("two branches", False), ("behind each other", False), ("texts", True)]
)
def test_the_failure_of_depth_first_is_told(
    failed: list[set[int]], shape: str, fuse: bool, seed: int, full: bool
) -> None:
    """The error is that of depth first, although workers run ahead of each other and several of
    them fail. (Within one morsel the reported row can differ if the stages differ: depth first
    fuses operators that partitions keep apart.)"""
    seen = set()
    for k in range(200 if full else 8):
        rng = random.Random(f"{seed} {k}")
        session = Session(False)
        for name in "ab":
            table = growing(rng.randrange(10**6))
            session.create_stream(name, table, ordered_by="ts", unit="seconds", slack=5)
        session.set("on_bad_row", "fail")
        session.set("fuse", fuse)
        session.set("morsel_rows", rng.choice((1, 3, 7)))
        expected = failure(session, FAILING[shape])
        seen.add(expected)
        session.set("runtime", "ordered")
        for _ in range(4):
            session.set("workers", rng.choice((1, 2, 4, 8)))
            session.set("partitions", rng.choice((0, 2, 5)))
            session.set("worklist", rng.choice(WORKLISTS))
            session.set("scheduler", rng.choice(("ct", "lp", "et", "qst", "ct_printed")))
            session.set("reorder", rng.choice(("non_blocking", "lock_based")))
            assert failure(session, FAILING[shape]) == expected
    assert len(seen) > 4
    # How far a worker runs ahead is chance; in many runs several operators fail.
    assert not full or max(map(len, failed)) > 1 or shape != "behind each other"


def test_a_source_that_fails_is_told_behind_its_rows(stress: None, small_blocks: None) -> None:
    """If a row that the source delivered before its error fails, the failure of the row is
    reported."""
    rows = [{"ts": i, "v": i % 50} for i in range(100)]

    def source(until: int) -> Iterator[dict[str, int]]:
        yield from rows[:until]
        raise ValueError("the line is dead")

    for until, told in ((17, "the line is dead"), (25, "division by zero")):
        for runtime in ("depth_first", "ordered"):
            session = Session(False)
            session.create_stream(
                "s", lambda n=until: source(n), ordered_by="ts", unit="seconds", bounded=True
            )
            for name, value in {"runtime": runtime, "workers": 3, "morsel_rows": 2}.items():
                session.set(name, value)
            session.set("on_bad_row", "fail")
            assert told in failure(session, "SELECT ts, 1 / (v - 20) AS x FROM s")[1]


@pytest.mark.parametrize("reorder", ["non_blocking", "lock_based"])
def test_outputs_of_more_morsels_than_a_pool_has_cells(
    ungathered: None, monkeypatch: pytest.MonkeyPatch, reorder: str
) -> None:
    """Morsels beyond the cells of a pool are reused too: a later window needs no more morsels than
    an earlier one."""
    monkeypatch.setattr("cql.executor.runtimes.tables._POOL", 64)
    n, groups = 4000, 500
    table = pa.table({"ts": np.arange(n) // groups * 10, "k": np.arange(n) % groups})
    session = Session(False)
    session.create_stream("s", table, ordered_by="ts", unit="seconds")
    settings = {"morsel_rows": 1, "partitions": 2, "reorder": reorder, "runtime": "depth_first"}
    for name, value in settings.items():
        session.set(name, value)
    text = "SELECT k, count(*) AS n, window_end FROM s [RANGE 10 SLIDE 10] GROUP BY k"
    expected = session.sql(text).to_arrow()
    session.set("runtime", "ordered")
    session.set("workers", 2)
    query = session.sql(text)
    found, morsels = [], []
    for batch in query.batches():
        found.append(batch)
        if execution_of(query).graph is not None:
            morsels.append(len(ordered_of(query)._tasks.morsels))
    assert pa.Table.from_batches(found).equals(expected)
    assert groups < morsels[-1] < 1.2 * morsels[len(morsels) // 2]
    session.close()


@pytest.mark.parametrize("until", [160, 96])
def test_blocks_are_read_ahead(
    stress: None, small_blocks: None, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    """While there is no room for morsels, the next block is read; if this read fails, the rest of
    the current block is not lost."""
    ahead, failed = 0, False
    read_ahead = InputScheduler.read_ahead

    def source() -> Iterator[dict[str, int]]:
        for i in range(until):
            yield {"ts": i, "v": i}
        raise ValueError("the line is dead")

    def noted(scheduler: InputScheduler) -> None:
        nonlocal ahead, failed
        (feed,) = scheduler.feeds
        assert scheduler.is_open(0)
        assert feed.pending is None
        read_ahead(scheduler)
        ahead += 1
        failed |= feed.pending is None

    monkeypatch.setattr(InputScheduler, "read_ahead", noted)
    monkeypatch.setattr(make_runtime, "gathered", lambda *_, **__: {})
    for _ in range(20):
        session = Session(False)
        session.create_stream("s", source, ordered_by="ts", unit="seconds", bounded=True)
        for name, value in {"runtime": "ordered", "workers": 2, "morsel_rows": 1}.items():
            session.set(name, value)
        seen: list[int] = []
        batches = session.sql("SELECT ts FROM s WHERE v % 3 <> 0").batches()
        with pytest.raises(CatalogError, match="the line is dead"):
            seen.extend(ts for batch in batches for ts in batch["ts"].to_pylist())
        assert seen == [i for i in range(until) if i % 3 != 0]
    assert ahead > 20
    assert failed


def test_ranks_of_depth_first(session: Session) -> None:
    """An operator has a higher rank than the operators that it feeds."""
    session.set("runtime", "ordered")
    session.set("workers", 2)
    session.set("fuse", False)
    for text in (FAILING["two branches"], SHAPES["joined"]):
        query = session.sql(text)
        batches = query.batches()
        with suppress(StopIteration):
            next(batches)
        graph = execution_of(query).graph
        if graph is not None:
            ranks = depth_first_ranks(graph)
            assert sorted(ranks) == list(range(len(graph.operators)))
            fed = [(k, e.target) for k, edges in enumerate(graph.edges) for e in edges]
            assert all(ranks[to] < ranks[k] for k, to in fed if to >= 0)
        batches.close()  # type: ignore[attr-defined]


# -- interrupts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("place", ["function", "source", "paused", "results"])
def test_ctrl_c(session: Session, interrupts: None, workers: int, place: str) -> None:
    """Wherever the interrupt arrives, the query ends, no thread stays, and the session still
    works."""
    calls = count()

    def at_some_call(v: int) -> int:
        if next(calls) == 150 and place == "function":
            interrupt()
        return v + 1

    def rows() -> Iterator[dict[str, int]]:
        for i in range(400):
            if i == 250 and place == "source":
                interrupt()
            yield {"ts": i, "v": i % 9}

    session.register_function("plus_one", at_some_call, ["bigint"], "bigint")
    session.create_stream("s", rows, ordered_by="ts", unit="seconds", bounded=False)
    session.set("runtime", "ordered")
    session.set("workers", workers)
    text = "SELECT ts, w FROM (SELECT ts, plus_one(v) AS w FROM s WHERE v >= 0) AS f WHERE w > 0"
    query = session.sql(text)

    def read() -> None:
        given = 0
        for batch in query:
            given += batch.num_rows
            if place == "paused" and not query.is_paused:
                execution_of(query).control._bell = Bell(interrupt)
                query.pause()
            if place == "results" and given > 100:
                interrupt()

    with pytest.raises(KeyboardInterrupt):
        read()
    assert query.status == "stopped"
    assert left_over() == []
    expected = depth_first(session, SHAPES["many keys"])
    assert session.sql(SHAPES["many keys"]).to_arrow().equals(expected)


# -- limits ----------------------------------------------------------------------------------------


def test_the_limit_of_memory_fails_the_query(session: Session, stress: None) -> None:
    """The query fails whichever worker reaches the limit."""
    table = pa.table({"ts": list(range(20_000)), "k": [i * 7 for i in range(20_000)]})
    session.create_stream("wide", table, ordered_by="ts", unit="seconds")
    text = (
        "SELECT k, count(*) AS n, window_end FROM wide [RANGE 30000 SLIDE 30000 WA ts] GROUP BY k"
    )
    session.set("morsel_rows", 512)
    session.set("max_state", 1_000_000)
    kind, told = failure(session, text)
    assert kind is RunError
    assert "over max_state = 1,000,000" in told
    session.set("runtime", "ordered")
    for workers in (1, 2, 4):
        session.set("workers", workers)
        session.set("partitions", 8)
        session.set("max_state", 2_500_000)
        assert "over max_state = 2,500,000" in failure(session, text)[1]
        session.set("max_state", 100_000_000)
        assert session.sql(text).to_arrow().num_rows == 20_000


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("shape", ["filter and project", "joined"])
def test_who_takes_no_results_holds_back_the_source(
    session: Session, shape: str, workers: int
) -> None:
    session.set("runtime", "ordered")
    session.set("workers", workers)
    session.set("morsel_rows", 1)
    query = session.sql(SHAPES[shape])
    given = 0
    for batch in query:
        given += 1
        execution = execution_of(query)
        runtime, scheduler = execution._runtime, execution._scheduler
        if not isinstance(runtime, Ordered):
            break  # the whole input has been read
        inside = int(runtime._plan[tables.INSIDE])
        places = sum(len(runtime._tasks.ports(s)) + 2 for s in range(len(runtime._tasks.order)))
        assert inside <= places * depth(workers) + len(execution._results)
        assert scheduler is not None
        if shape == "filter and project" and given > 1:
            # Each row that passes the filter is a batch, and no row waits for another.
            taken = int(batch.num_rows)
            assert taken == 1
    assert given > 100
