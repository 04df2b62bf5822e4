"""A run that stops between two morsels and continues from its checkpoint, in a new run whose
dictionary numbers texts otherwise, gives the results and the ledgers of a run that never
stopped."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import cql
from cql.base.model import Punctuation
from cql.errors import NotSupportedError
from cql.executor.run.execution import Execution
from cql.executor.state.checkpoint import Checkpoint, from_ipc, to_ipc
from cql.planner.placement.multi_query import plan_query_set
from cql.session.session import Session
from tests.support import growing_streams
from tests.support.catalog_tools import blocks_of_eight
from tests.support.checkpoints import CASES
from tests.support.operator_tools import session_over
from tests.support.paths import ROOT
from tests.support.query_files import RUNNING, planned
from tests.support.run_checkpoints import (
    RUNTIMES,
    plan_of,
    query_of_case,
    run,
    session_of_case,
    stop_and_continue,
    until_checkpoint,
)


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_a_run_continues(case: str, seed: int, full: bool) -> None:
    choice = random.Random(f"{case} {seed}")
    for small in (False, True) if full else (choice.random() < 0.5,):
        with (
            blocks_of_eight() if small else nullcontext(),
            session_of_case(case, morsel_rows=choice.choice((16, 64))) as session,
        ):
            plan = plan_of(session, query_of_case(case))
            for _ in range(5 if full else 1):
                stop_and_continue(plan, session.settings, choice, stops=2)


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("path", RUNNING, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_query_files_continue(path: Path, seed: int, full: bool) -> None:
    choice = random.Random(f"{path.stem} {seed}")
    with cql.connect(spark=False, morsel_rows=7) as session:
        plan = planned(session, path)._plan
        for _ in range(5 if full else 1):
            stop_and_continue(plan, session.settings, choice)


@pytest.mark.parametrize("case", ["outer join"])
def test_in_a_new_process(case: str, tmp_path: Path) -> None:
    with session_of_case(case, morsel_rows=16) as session:
        plan = plan_of(session, query_of_case(case))
        whole = run(plan, session.settings)
        before = run(plan, session.settings, stop=whole.morsels // 2)
    assert before.saved is not None
    (tmp_path / "run.arrow").write_bytes(to_ipc(before.saved))
    subprocess.run(
        [sys.executable, "-m", "tests.support.run_checkpoints", case, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        check=True,
    )
    rows, ledgers = ast.literal_eval((tmp_path / "rest").read_text("utf-8"))
    assert [[*a, *b] for a, b in zip(before.rows, rows, strict=True)] == whole.rows
    assert ledgers == whole.ledgers


# -- runtimes --------------------------------------------------------------------------------------

#: Queries with filters, joins, relations, LIMITs, and with Python work for each morsel.
UNDER_ALL = (
    *("union to wid", "growing keys", "outer join", "relation", "merge", "limit", "except"),
    "newest names",
)


@pytest.mark.sampled
@pytest.mark.parametrize("case", UNDER_ALL)
def test_under_another_runtime(case: str, seed: int, full: bool) -> None:
    """Each part of a run has a runtime of its own."""
    choice = random.Random(f"{case} {seed}")
    plans, partitions = [], int(case in DIVIDED)
    for runtime in RUNTIMES:
        session = session_of_case(
            case, morsel_rows=16, runtime=runtime, workers=2, partitions=partitions
        )
        plans.append((plan_of(session, query_of_case(case)), session.settings))
    for _ in range(20 if full else 1):
        stop_and_continue(*choice.choice(plans), choice, stops=3, others=plans,
                          partitions_differ=True)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("case", ["two keys", "join", "outer join", "asof"])
def test_partitions(case: str, partitions: int, seed: int, stress: None) -> None:
    """A run without a number of partitions in its settings continues with those of the
    checkpoint."""
    choice, plans = random.Random(f"{case} {seed}"), []
    for parts, workers in ((partitions, 2), (0, 3)):
        session = session_of_case(
            case, morsel_rows=16, runtime="ordered", workers=workers, partitions=parts
        )
        plans.append((plan_of(session, query_of_case(case)), session.settings))
    stop_and_continue(*plans[0], choice, stops=2, others=plans[1:])


#: Queries whose operators divide their state among other partitions.
DIVIDED = (
    "relation",
    "names of a relation",
    "values of a relation",
    "relation of rows",
    "first row of each",
    "distinct",
    "except",
    "rows with a partner",
    "relations joined",
    "left join of relations",
    "asof",
    "join",
    "filter to wid",
    "union to wid",
    "nothing passes",
    "growing keys",
    "bad rows",
    "panes",
    "two keys",
    "medians",
    "sessions",
    "join to wid",
    "newest",
    "newest names",
    "newest, truth",
)
#: Runtimes, with numbers of partitions and of workers.
ELSEWHERE = (
    ("ordered", 1, 2),
    ("ordered", 3, 3),
    ("ordered", 8, 2),
    ("ordered", 5, 1),
    ("depth_first", 0, 1),
    ("fifo", 0, 1),
)


@pytest.mark.sampled
@pytest.mark.parametrize("case", DIVIDED)
def test_other_partitions(case: str, seed: int, full: bool, stress: None) -> None:
    """Each part of a run has other partitions and workers, or none. The checkpoint after no row has
    empty state; most others have rows that wait."""
    choice, plans = random.Random(f"{case} {seed}"), []
    for runtime, parts, workers in ELSEWHERE:
        session = session_of_case(
            case, morsel_rows=16, runtime=runtime, workers=workers, partitions=parts
        )
        plans.append((plan_of(session, query_of_case(case)), session.settings))
    for first in plans if full else choice.sample(plans, 3):
        stop_and_continue(*first, choice, stops=4, others=plans, partitions_differ=True)
    before = run(*choice.choice(plans), stop=0)
    assert before.saved is not None
    plan, settings = choice.choice(plans)
    assert run(plan, settings, before.saved).behind(before).rows == run(plan, settings).rows


@pytest.mark.parametrize("operator", ["wid", "panes"])
def test_groups_of_many_windows_stay_in_order(operator: str) -> None:
    """Without partitions no group knows its row: those of windows that overlap are more than the
    rows so far, and still come before the groups of later rows."""
    rows = 24
    data = pa.table(
        {"ts": pa.array(range(rows), pa.int64()), "k": [7 * t % 11 for t in range(rows)]}
    )
    with cql.connect(spark=False) as session:
        session.create_stream("s", data, ordered_by="ts")
        session.set("morsel_rows", 4)
        session.set("window_operator", operator)
        text = "SELECT k, count(*) AS n, window_end FROM s [RANGE 16 SLIDE 2] GROUP BY k"
        plan, settings = plan_of(session, text), dict(session.settings)
        whole = run(plan, settings)
        for partitions in (1, 4, 64):
            for name, value in (("runtime", "ordered"), ("partitions", partitions), ("workers", 2)):
                session.set(name, value)
            there, parted = plan_of(session, text), dict(session.settings)
            for stop in (1, 2, 4):
                first = run(plan, settings, stop=stop)
                assert first.saved is not None
                then = run(there, parted, from_ipc(to_ipc(first.saved)))
                assert [*first.rows[0], *then.rows[0]] == whole.rows[0], (partitions, stop)


@pytest.mark.parametrize("by", ["HASH(v, k)", "RANGE(v)"])
def test_partition_by(by: str, seed: int) -> None:
    choice = random.Random(f"{by} {seed}")
    text = "SELECT k, v, count(*) AS n, window_end FROM a [RANGE 20 SLIDE 20 WA ts] GROUP BY k, v"
    plans = []
    for runtime in ("ordered", "depth_first"):
        session = session_of_case("panes", morsel_rows=16, runtime=runtime, workers=2)
        plans.append((plan_of(session, f"{text} PARTITION BY {by} INTO 4"), session.settings))
    parted, alone = plans
    stop_and_continue(*parted, choice, stops=2)
    stop_and_continue(*parted, choice, others=[alone], partitions_differ=True)


@pytest.mark.parametrize("by", ["HASH(a.k)", "RANGE(a.k)"])
def test_partition_by_of_a_join(by: str, seed: int) -> None:
    """A join goes on without the partitions of the text, and again in them if a hash decides."""
    text = f"{query_of_case('join')} PARTITION BY {by} INTO 3"
    plans = []
    for runtime in ("ordered", "depth_first"):
        session = session_of_case("join", morsel_rows=16, runtime=runtime, workers=2, partitions=2)
        plans.append((plan_of(session, text), session.settings))
    parted, alone = plans
    choice = random.Random(f"{by} {seed}")
    stop_and_continue(*parted, choice, others=[alone], partitions_differ=True)
    if by.startswith("HASH"):
        stop_and_continue(*alone, choice, others=[parted], partitions_differ=True)
        return
    error = run(*parted, run(*alone, stop=20).saved).error
    assert error is not None
    assert "the checkpoint has no ranges of the partitions of join" in error


#: Windows with steps below them. In partitions, these are operators of their own, and a filter
#: between two windows is the lower one's; without, they are part of the windows above.
STEPS = {
    "filters and texts": "SELECT upper(name) AS n, count(DISTINCT v) AS c FROM (SELECT ts, name, v,"
    " k + 1 AS k FROM a WHERE k <> 3 AND name <> 'n2') [RANGE 20 SLIDE 10 WA ts]"
    " WHERE k > 1 AND name <> 'n1' GROUP BY upper(name)",
    "filter only": "SELECT k, count(*) AS c FROM a [RANGE 20 WA ts] WHERE v % 3 > 0 GROUP BY k",
    "sessions": "SELECT k, count(*) AS c FROM (SELECT ts, k, v FROM a WHERE v % 5 > 0)"
    " [SESSION 4 WA ts] WHERE k > 1 GROUP BY k",
    "values of sessions": "SELECT k, collect_set(name) AS ns, array_agg(v) AS vs, mode(v) AS m,"
    " time_weighted_avg(v, ts) AS w,"
    " count(DISTINCT name) AS d, collect_set(v % 3) AS s, sum(DISTINCT v % 4) AS t"
    " FROM a [SESSION 4 WA ts] WHERE k > 1 GROUP BY k",
    "nested": "SELECT c, count(*) AS n FROM (SELECT k, count(*) AS c, window_time FROM a"
    " [RANGE 10 SLIDE 10 WA ts] GROUP BY k) [RANGE 30 SLIDE 30 WA window_time] GROUP BY c",
    "nested, with HAVING": "SELECT c, count(*) AS n FROM (SELECT k, count(*) AS c, window_time"
    " FROM a [RANGE 10 SLIDE 10 WA ts] WHERE v > 1 GROUP BY k HAVING count(*) > 1)"
    " [RANGE 30 SLIDE 30 WA window_time] WHERE c < 9 GROUP BY c",
}


@pytest.mark.sampled
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("case", STEPS)
def test_steps_below_windows(case: str, fuse: bool, seed: int, full: bool) -> None:
    choice, plans = random.Random(f"{case} {fuse} {seed}"), []
    for runtime, parts, workers in ELSEWHERE:
        own = {"runtime": runtime, "partitions": parts, "workers": workers, "fuse": fuse}
        session = session_of_case("panes", morsel_rows=16, **own)
        plans.append((plan_of(session, STEPS[case]), session.settings))
    for first in plans if full else choice.sample(plans, 3):
        stop_and_continue(*first, choice, stops=4, others=plans, partitions_differ=True)


# -- queries ---------------------------------------------------------------------------------------

#: Queries over the streams ``a`` and ``b`` and the table ``t``.
OVER_TABLE = {
    "in": "SELECT ts, k, name FROM a WHERE k IN (SELECT k FROM t)",
    "not in": "SELECT ts, k, name FROM a WHERE name NOT IN (SELECT name FROM t)",
    "exists": "SELECT ts, k FROM a WHERE EXISTS (SELECT 1 FROM t WHERE t.k = a.k)",
    "scalar": "SELECT ts, k, (SELECT max(name) FROM t) AS most FROM a",
    "lookup": "SELECT a.ts, a.k, t.name AS other, a.name FROM a JOIN t ON a.k = t.k",
    "outer lookup": "SELECT a.ts, a.k, t.w FROM a LEFT JOIN t ON a.name = t.name",
    "all rows": "SELECT a.ts, t.name FROM a CROSS JOIN t WHERE a.v < 9",
    "constants": """
        SELECT ts, k, name FROM a UNION ALL VALUES (1, 2, 'n1'), (7, NULL, 'new')""",
}


@pytest.fixture
def with_table() -> Iterator[Session]:
    streams = {"a": growing_streams.stream(1), "b": growing_streams.stream(2)}
    with session_over(streams, slack=5, settings={"morsel_rows": 16}) as session:
        names = ["n1", "n2", "n30", None, "n55"]
        table = {"k": [0, 1, 2, 2, None], "name": names, "w": [1.5, 2.0, 3.0, 4.0, 5.0]}
        session.create_stream("t", pa.table(table))
        yield session


@pytest.mark.sampled
@pytest.mark.parametrize("query", OVER_TABLE)
def test_tables(with_table: Session, query: str, seed: int) -> None:
    """The stop may be inside the table."""
    choice = random.Random(f"{query} {seed}")
    with_table.set("morsel_rows", 2)
    plan = plan_of(with_table, OVER_TABLE[query])
    for stop in (0, 1, 2):
        whole = run(plan, with_table.settings)
        before = run(plan, with_table.settings, stop=stop)
        assert run(plan, with_table.settings, before.saved).behind(before) == whole
    stop_and_continue(plan, with_table.settings, choice, stops=2)


def test_late_output(with_table: Session, seed: int) -> None:
    with_table.sql("CREATE TABLE kept (ts BIGINT, k INT, v BIGINT, x DOUBLE, name STRING)")
    text = "SELECT k, count(*) AS n FROM a [RANGE 5 SLIDE 5 WA ts] GROUP BY k LATE OUTPUT INTO kept"
    plan = plan_of(with_table, text)
    assert run(plan, with_table.settings).late_output != [[]]
    stop_and_continue(plan, with_table.settings, random.Random(seed), stops=2)


def test_a_query_set(with_table: Session, seed: int) -> None:
    texts = (
        "SELECT k, count(*) AS n FROM a [RANGE 20 SLIDE 20 WA ts] GROUP BY k",
        "SELECT ts, name FROM a WHERE v > 50",
        "SELECT k, sum(v) AS n FROM b [RANGE 10 SLIDE 10 WA ts] GROUP BY k",
    )
    plans = [plan_of(with_table, text) for text in texts]
    plan = plan_query_set(plans, with_table.settings, panes=True)
    stop_and_continue(plan, with_table.settings, random.Random(seed), stops=2)


def test_a_row_that_fails_behind_a_limit(with_table: Session) -> None:
    """The run fails, or does not, as without the stop."""
    for bound, fails in ((30, False), (700, True)):
        text = f"SELECT ts, 100 / (ts - 300) AS q FROM a LIMIT {bound} ON BAD ROW FAIL"
        plan = plan_of(with_table, text)
        whole = run(plan, with_table.settings)
        assert (whole.error is not None) == fails
        stop_and_continue(plan, with_table.settings, random.Random(bound), stops=2)


# -- sources ---------------------------------------------------------------------------------------

COUNT = "SELECT k, count(*) AS n, min(name) AS low, window_end FROM s [RANGE 20 SLIDE 10 WA ts]"
READS = {
    "rows": "SELECT ts, k, name FROM s",
    "windows": f"{COUNT} GROUP BY k",
    "two inputs": "SELECT s.ts, s.name, b.name AS other FROM s JOIN b ON s.k = b.k"
    " AND s.ts BETWEEN b.ts - 3 AND b.ts + 3",
    "texts": "SELECT ts, upper(name) AS u FROM s WHERE name LIKE '%1%'",
}


def continues(session: Session, choice: random.Random) -> None:
    session.set("morsel_rows", 7)
    for text in READS.values():
        with blocks_of_eight() if choice.random() < 0.7 else nullcontext():
            stop_and_continue(plan_of(session, text), session.settings, choice, stops=2)


def lines_of(kind: str, first: int, count: int) -> list[str]:
    """Rows as lines of a file; every ninth row cannot be read."""
    found = []
    for n in range(first, first + count):
        ts = str(n // 2) if n % 9 else "none"
        k, name = n % 3, f"n{n % 41}"
        csv = kind == "csv"
        line = f"{ts},{k},{name}" if csv else f'{{"ts": {ts}, "k": {k}, "name": "{name}"}}'
        found.append(line)
    return found


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_text_files(kind: str, tmp_path: Path, seed: int) -> None:
    """Some lines cannot be read."""
    (tmp_path / "data").mkdir()
    for n in range(3):
        lines = [*(["ts,k,name"] if kind == "csv" else []), *lines_of(kind, 40 * n, 40)]
        (tmp_path / "data" / f"{n}.{kind}").write_text("\n".join([*lines, ""]), "utf-8")
    with session_over({"b": growing_streams.stream(2)}, slack=5) as session:
        session.set("on_bad_row", "keep")
        session.sql(
            f"CREATE STREAM s (ts BIGINT, k INT, name STRING) USING {kind}"
            f" OPTIONS (path '{tmp_path / 'data'}') ORDERED BY ts WITHIN 5"
        )
        continues(session, random.Random(f"{kind} {seed}"))


def table(rows: int = 120) -> pa.Table:
    ts = [n // 2 for n in range(rows)]
    names = pa.array([f"n{n % 41}" for n in range(rows)])
    return pa.table({"ts": ts, "k": pa.array([n % 3 for n in ts], pa.int32()), "name": names})


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_files_of_columns(kind: str, tmp_path: Path, seed: int) -> None:
    for n in range(2):
        ds.write_dataset(
            table().slice(60 * n, 60),
            tmp_path / "data" / f"{n}",
            format=kind,
            max_rows_per_group=25,
        )
    with session_over({"b": growing_streams.stream(2)}, slack=5) as session:
        path = tmp_path / "data"
        session.sql(f"CREATE STREAM s USING {kind} OPTIONS (path '{path}') ORDERED BY ts")
        continues(session, random.Random(f"{kind} {seed}"))


REPLAYABLE: dict[str, Callable[[], Any]] = {
    "batches": lambda: table().to_batches(max_chunksize=13),
    "frame": lambda: table().to_pandas(),
    "mappings": lambda: table().to_pylist(),
    "function": lambda: lambda: iter(table().to_pylist()),
    "function of batches": lambda: lambda: table().to_batches(max_chunksize=5),
    "dataset": lambda: ds.dataset(table()),
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", REPLAYABLE)
def test_data_in_memory(kind: str, seed: int) -> None:
    with session_over({"b": growing_streams.stream(2)}, slack=5) as session:
        session.create_stream("s", REPLAYABLE[kind](), ordered_by="ts", unit="seconds")
        continues(session, random.Random(f"{kind} {seed}"))


def test_punctuation_in_a_list(seed: int) -> None:
    with session_over({"b": growing_streams.stream(2)}, slack=5) as session:
        rows: list[Any] = []
        for n, row in enumerate(table().to_pylist()):
            rows += [row, Punctuation("ts", row["ts"])] if n % 13 == 0 else [row]
        session.create_stream("s", rows, ordered_by="ts", slack=30, unit="seconds")
        continues(session, random.Random(seed))


def test_generated_and_replayed_rows(seed: int) -> None:
    """The replays are read by the time of their arrival: one lags behind the other."""
    choice = random.Random(seed)
    with cql.connect(False, morsel_rows=7) as session:
        session.sql(
            "CREATE STREAM r USING rate OPTIONS (rows '200', rows_per_second '10', disorder '0.3',"
            " max_delay '5 seconds', columns 'ts, key, name') ORDERED BY ts WITHIN 5 SECONDS"
        )
        for name, skew in (("a", 0), ("b", 3)):
            session.sql(
                f"CREATE STREAM {name} USING replay OPTIONS (table 'r', time 'ts', step '1 second',"
                f" skew '{skew} seconds') ORDERED BY ts WITHIN 5 SECONDS"
            )
        for text in (
            "SELECT key, count(*) AS n FROM r [RANGE 3 SECONDS SLIDE 1 SECOND] GROUP BY key",
            "SELECT ts, 'a' AS s FROM a UNION ALL SELECT ts, 'b' AS s FROM b",
        ):
            with blocks_of_eight():
                stop_and_continue(plan_of(session, text), session.settings, choice, stops=2)


def test_a_source_that_was_read_to_its_end() -> None:
    """A table that can be read once is not read again."""
    with session_over({"a": growing_streams.stream(1)}, slack=5) as session:
        session.set("morsel_rows", 16)
        text = "SELECT a.ts, t.name AS other FROM a JOIN t ON a.k = t.k"

        def once() -> Any:
            return pa.table({"k": [0, 1], "name": ["zero", "one"]}).to_reader()

        session.create_stream("t", once())
        whole = run(plan_of(session, text), session.settings)
        session.create_stream("t", once(), replace=True)
        plan = plan_of(session, text)
        before = run(plan, session.settings, stop=10)
        assert before.saved is not None
        saved = from_ipc(to_ipc(before.saved))
        assert run(plan, session.settings, saved).behind(before) == whole


ONCE: dict[str, Callable[[], Any]] = {
    "an iterator": lambda: iter(table().to_pylist()),
    "a generator": lambda: (row for row in table().to_pylist()),
    "a reader": lambda: table().to_reader(),
}


@pytest.mark.parametrize("kind", [*ONCE, "a live iterable", "pushed rows"])
def test_a_source_that_cannot_be_read_again(kind: str) -> None:
    with cql.connect(False, morsel_rows=7) as session:
        if kind == "pushed rows":
            session.sql("CREATE STREAM s (ts BIGINT, k INT, name STRING) ORDERED BY ts")
        else:
            live = kind == "a live iterable"
            data = table().to_pylist if live else ONCE[kind]()
            session.create_stream("s", data, ordered_by="ts", bounded=not live)
        plan = plan_of(session, READS["rows"])
        with pytest.raises(NotSupportedError, match="the rows of s cannot be read again"):
            run(plan, session.settings, stop=0)


def test_followed_files(tmp_path: Path) -> None:
    """The file grows after the checkpoint."""
    path = tmp_path / "s.csv"
    lines = [line for line in lines_of("csv", 1, 100) if "none" not in line]
    whole = followed(path, lines, [(len(lines), None)])
    assert whole
    for at in (0, 3, 7):
        assert followed(path, lines, [(60, at), (len(lines), None)]) == whole


def followed(path: Path, lines: list[str], parts: list[tuple[int, int | None]]) -> list[Any]:
    """The results over a followed file. Each part finds a number of ``lines`` in it, and stops at a
    checkpoint behind a number of morsels (None: behind all lines)."""
    found: list[Any] = []
    saved: Checkpoint | None = None
    for count, stop in parts:
        path.write_text("\n".join(["ts,k,name", *lines[:count], ""]), "utf-8")
        with cql.connect(False, morsel_rows=7) as session:
            session.sql(
                "CREATE STREAM s (ts BIGINT, k INT, name STRING) USING csv"
                f" OPTIONS (path '{path}', follow 'true', poll '5 ms') ORDERED BY ts"
            )
            plan = plan_of(session, f"{COUNT} GROUP BY k")
            made = Execution(plan, session.settings, resume=saved)
            rows, saved = until_checkpoint(made, stop, partial(_has_read, made, len(lines)))
            found += rows
    return found


def _has_read(made: Execution, rows: int) -> bool:
    return made.queries[0].progress().rows_in >= rows


# -- what is refused -------------------------------------------------------------------------------


def test_another_query_is_refused(with_table: Session) -> None:
    first, second = (
        plan_of(with_table, f"SELECT ts, k FROM a WHERE v > {bound}") for bound in (1, 2)
    )
    saved = run(first, with_table.settings, stop=3).saved
    error = run(second, with_table.settings, saved).error
    assert error is not None
    assert "the checkpoint is of another query" in error


def test_other_data_is_refused(with_table: Session) -> None:
    plan = plan_of(with_table, "SELECT ts, k FROM a")
    before = run(plan, with_table.settings, stop=30)
    with_table.create_stream(
        "a", growing_streams.stream(1).slice(0, 100), ordered_by="ts", unit="seconds", slack=5,
        replace=True,
    )  # fmt: skip
    error = run(plan_of(with_table, "SELECT ts, k FROM a"), with_table.settings, before.saved).error
    assert error is not None
    assert "a ends 700 rows before the place of the checkpoint" in error
