"""Bad input raises one error that names the fault, its place and the remedy; committed rows stay,
every dropped row is counted, and the session stays usable."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.catalog.local import LocalCatalog
from cql.errors import BindError, CatalogError, CqlError, RunError
from cql.executor.codegen import module
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.run.execution import Execution
from cql.executor.state.store import Role
from cql.query.query import Query
from cql.session.session import CqlWarning, Session
from tests.support.paths import ROOT

ROWS = pa.table(
    {
        "ts": pa.array([0, 60_000_000, 120_000_000], pa.timestamp("us", "UTC")),
        "origin": ["JFK", "LGA", None],
        "n": pa.array([1, 0, 3], pa.int64()),
        "big": pa.array([1, 2**62, 2**62], pa.int64()),
    }
)
COUNT = "SELECT count(*) AS c FROM t [RANGE 1 minute SLIDE 1 minute]"


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(False) as made:
        made.create_stream("t", ROWS, ordered_by="ts")
        yield made
        # After any error, the session still answers queries.
        assert made.sql("SELECT n FROM t").to_arrow().num_rows == 3


def refused(session: Session, text: str, **parameters: Any) -> CqlError:
    with pytest.raises(CqlError) as caught:
        session.sql(text.replace("^", ""), **parameters).to_arrow()
    return caught.value


CASES = [
    # (text with ^ at the expected caret, message, hint)
    ("SELECT n FROM ^flihgts", "there is no stream or table flihgts", "there are: t"),
    ("SELECT n FROM ^tt", "there is no stream or table tt", "did you mean t?"),
    ("SELECT ^orign FROM t", "there is no column orign", "did you mean origin?"),
    ("SELECT ^x.n FROM t", "there is no x in FROM", ""),
    ("SELECT ^uper(origin) FROM t", "unknown function uper", "did you mean upper"),
    ("SELECT n FROM t WHERE ^origin", "WHERE needs a condition", ""),
    ("SELECT sum(^ts) FROM t", "timestamp", "sum(number)"),
    ("SELECT ^ts + 1 FROM t", "timestamp", ""),
    ("SELECT ^n FROM (SELECT n, n + 1 AS n FROM t) x", "n is ambiguous", "their own"),
    ("SELECT count(*) FROM t [RANGE 10 SLIDE 10 WA ^n]", "n has no watermark", "WA ts"),
    ("SELECT count(*) FROM t [RANGE 1 minute SLIDE ^0 minutes]", "longer than zero", ""),
    ("SELECT count(*) FROM t [RANGE ^0 minutes SLIDE 1 minute]", "longer than zero", ""),
    ("INSERT INTO ^nowhere SELECT n FROM t", "there is no stream or table nowhere",
     "CREATE TABLE nowhere AS SELECT"),
    ("CREATE STREAM ^u USING nope OPTIONS (path 'x')", "unknown format nope", "parquet"),
    ("CREATE STREAM ^u USING csv OPTIONS (pth 'x')", "path", "path"),
    ("DROP TABLE ^nowhere", "there is no table nowhere", "t"),
    ("^SELEC n FROM t", "not a statement", "did you mean SELECT?"),
    ("SELECT n FROM t ^GRUP BY n", "unexpected 'GRUP'", "did you mean GROUP?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "what", "remedy"), CASES, ids=[c[0][:50] for c in CASES])
def test_what_where_and_what_to_do(session: Session, text: str, what: str, remedy: str) -> None:
    error = refused(session, text)
    assert what in error.message
    assert remedy in (error.hint or "")
    assert (error.line, error.column) == (1, text.index("^") + 1)
    shown = str(error).splitlines()
    caret = next(k for k, line in enumerate(shown) if line.strip().startswith("^"))
    assert shown[caret].index("^") - 2 == text.index("^")
    assert shown[caret - 1] == "  " + text.replace("^", "")


def test_a_hole_between_windows_is_warned_about_once(session: Session) -> None:
    text = "SELECT count(*) AS c FROM t [RANGE 1 minute SLIDE 2 minutes]"
    with pytest.warns(CqlWarning, match="SLIDE 120 is larger than RANGE 60 in seconds"):
        query = session.sql(text)
    assert query.to_arrow()["c"].to_pylist() == [1, 1]
    skipped = [row.get("between_windows") for row in query.metrics()]
    assert 1 in skipped, "the row between two windows is counted"


def test_exploding_windows_show_the_arithmetic(session: Session) -> None:
    error = refused(session, "SELECT count(*) FROM t [RANGE 1000 days SLIDE 1 second]")
    assert "RANGE / SLIDE in seconds = 86,400,000 / 1 = 86,400,000 windows" in error.message
    assert "100,000" in error.message
    assert "max_overlap" in (error.hint or "")


# --------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    "value",
    [2**63, 10**5000, -(10**5000), "\ud800", object(), [1], complex(1, 1)],
    ids=["2**63", "huge", "-huge", "surrogate", "object", "list", "complex"],
)
def test_parameters_without_a_value_in_sql(session: Session, value: Any) -> None:
    error = refused(session, "SELECT :p AS x", p=value)
    assert error.message.startswith("parameter :p: ")
    assert error.column == 8


@pytest.mark.parametrize(
    "text", ["1e1000000", "1e100000000000", "1e-100000000000", "1." * 1 + "1" * 5000]
)
def test_decimals_beyond_measure(session: Session, text: str) -> None:
    from decimal import Decimal

    assert refused(session, "SELECT :p AS x", p=Decimal(text)).column == 8


def test_a_timedelta_beyond_64_bits(session: Session) -> None:
    from datetime import timedelta

    assert refused(session, "SELECT :p AS x", p=timedelta.max).column == 8


def test_texts_that_are_no_texts(session: Session) -> None:
    for value in (None, b"SELECT 1", 7):
        with pytest.raises(CqlError, match="text"):
            session.sql(value)


# --------------------------------------------------------------------------- files


@pytest.fixture
def file(tmp_path: Path, session: Session) -> Path:
    """The file behind stream ``f``, which the fixture declares."""
    path = tmp_path / "a.parquet"
    pq.write_table(ROWS, path)
    session.create_stream("f", str(path), ordered_by="ts")
    return path


def _garbage(path: Path) -> None:
    path.write_bytes(b"PAR1" + b"garbage" * 9 + b"PAR1")


def _damaged_pages(path: Path) -> None:
    many = pa.table({"ts": ROWS["ts"], "n": [1, 2, 3], "big": ["x" * 20_000] * 3})
    pq.write_table(many.set_column(2, "big", pa.array(range(3), pa.int64())), path)
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 3] = bytes(255 - b for b in data[4 : len(data) // 3])
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (os.unlink, "there is no file or folder"),
        (lambda p: p.write_bytes(b""), "cannot be read"),
        (_garbage, "cannot be read"),
        (_damaged_pages, "cannot be read"),
        (lambda p: pq.write_table(ROWS.drop_columns(["n"]), p), "it has no such column"),
        (
            lambda p: pq.write_table(ROWS.set_column(2, "n", pa.array(["a", "b", "c"])), p),
            "it holds it as string",
        ),
    ],
    ids=["gone", "empty", "garbage", "pages", "column gone", "type changed"],
)
def test_files_that_change_between_planning_and_running(
    session: Session, file: Path, damage: Callable[[Path], None], what: str
) -> None:
    query = session.sql("SELECT n\nFROM f")
    damage(file)
    with pytest.raises(CatalogError, match=what) as caught:
        query.to_arrow()
    assert str(file) in caught.value.message
    assert query.status == "failed"
    pq.write_table(ROWS, file)
    assert query.to_arrow()["n"].to_pylist() == [1, 0, 3]


def test_a_missing_file_is_told_at_its_name(session: Session, file: Path) -> None:
    query = session.sql("SELECT n\nFROM f")
    file.unlink()
    with pytest.raises(CatalogError) as caught:
        query.to_arrow()
    assert (caught.value.line, caught.value.column) == (2, 6)


def test_a_value_that_its_column_cannot_hold(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,n\n1,2\n3,abc\n")
    session.sql(
        f"CREATE STREAM c (ts BIGINT, n BIGINT) USING csv OPTIONS (path '{path}') ORDERED BY ts"
    )
    error = refused(session, "SELECT n FROM c")
    assert "abc" in error.message
    assert error.message == f"file {path}, line 3: column n: 'abc' is not a bigint"
    assert (error.line, error.column) == (1, 15)
    assert "STRING" in (error.hint or "")
    assert "ON BAD ROW KEEP" in (error.hint or "")


def test_a_dropped_table(session: Session) -> None:
    session.register_table("u", ROWS)
    query = session.sql("SELECT n FROM u")
    session.sql("DROP TABLE u")
    assert query.to_arrow().num_rows == 3, "a query keeps what it was planned over"
    assert "there is no stream or table u" in refused(session, "SELECT n FROM u").message


# --------------------------------------------------------------------------- bad rows


def test_division_by_zero_points_at_its_expression(session: Session) -> None:
    query = session.sql("SELECT n,\n  100 / n AS q FROM t")
    with pytest.raises(RunError, match="division by zero") as caught:
        query.to_arrow()
    error = caught.value
    assert (error.line, error.column) == (2, 3)
    assert "the row at offset 1 of t" in error.message
    assert "ON BAD ROW KEEP" in (error.hint or "")
    kept = session.sql("SELECT n,\n  100 / n AS q FROM t ON BAD ROW KEEP")
    assert kept.to_arrow()["q"].to_pylist() == [100, 33]
    assert kept.progress().bad == 1
    row = kept.bad_rows().to_pylist()[0]
    assert (row["source"], row["offset"]) == ("t", 1)
    assert "division by zero" in row["reason"]
    shown = session.sql("SHOW BAD ROWS").to_arrow().to_pylist()
    assert [(r["source"], r["offset"], r["reason"]) for r in shown] == [("t", 1, row["reason"])]


def test_overflow(session: Session) -> None:
    error = refused(session, "SELECT n, big + big FROM t")
    assert "bigint overflow in big + big" in error.message
    assert error.column == 11
    error = refused(session, "SELECT sum(big) FROM t [RANGE 1 hour SLIDE 1 hour] ON BAD ROW KEEP")
    assert "overflow in sum" in error.message, "no policy leaves out an overflow in an aggregate"
    assert error.column == 8
    assert "DOUBLE" in (error.hint or "")


def test_a_null_event_time(session: Session) -> None:
    times = pa.array([0, None, 5], pa.timestamp("us", "UTC"))
    session.create_stream("holes", pa.table({"ts": times}), ordered_by="ts")
    text = "SELECT count(*) AS c FROM holes [RANGE 1 minute SLIDE 1 minute]"
    error = refused(session, text)
    assert error.message == "the event time ts is NULL, in the row at offset 1 of holes"
    assert (error.line, error.column) == (1, text.index("holes") + 1)
    assert "ON BAD ROW KEEP" in (error.hint or "")
    kept = session.sql(text + " ON BAD ROW KEEP")
    assert kept.to_arrow()["c"].to_pylist() == [2]
    assert kept.progress().bad == 1
    assert kept.bad_rows()["offset"].to_pylist() == [1]


def test_offsets_of_bad_rows_count_through_blocks(session: Session) -> None:
    batches = pa.table({"ts": list(range(5000)), "n": [k % 1000 for k in range(5000)]})
    session.create_stream("long", batches, ordered_by="ts")
    kept = session.sql("SELECT /*+ morsel_rows(64) */ 1 / n AS q FROM long ON BAD ROW KEEP")
    assert kept.to_arrow().num_rows == 4995
    assert kept.bad_rows()["offset"].to_pylist() == [0, 1000, 2000, 3000, 4000]


def test_late_rows_are_counted(session: Session) -> None:
    times = pa.array([0, 180, 10, 200], pa.int64())
    session.create_stream("late", pa.table({"ts": times}), ordered_by="ts")
    query = session.sql("SELECT count(*) AS c FROM late [RANGE 60 SLIDE 60]")
    assert sum(query.to_arrow()["c"].to_pylist()) == 3
    assert query.progress().late == 1
    assert {(r["kind"], r["count"]) for r in query.late().to_pylist()} == {
        ("rows", 1),
        ("pairs", 1),
    }


# --------------------------------------------------------------------------- limits


def test_max_state(session: Session) -> None:
    """Groups, distinct values, sorted rows and texts all count towards ``max_state``, and the query
    fails before the memory is allocated."""
    n = 60_000
    session.set("morsel_rows", 256)
    texts = [f"{k:0>40}" for k in range(n)]
    session.create_stream("many", pa.table({"ts": range(n), "k": range(n), "s": texts}), "ts")
    session.set("max_state", "1 MB")
    window = "FROM many [RANGE 100000 SLIDE 100000]"
    for text in (
        f"SELECT k, count(*) AS c {window} GROUP BY k",
        f"SELECT count(DISTINCT k) AS c {window}",
        f"SELECT count(DISTINCT s) AS c {window}",
        "SELECT k, ts FROM many ORDER BY k",
    ):
        error = refused(session, text)
        assert isinstance(error, RunError)
        assert "over max_state = 1,000,000" in error.message
        assert "SET max_state" in (error.hint or "")
    session.set("max_state", "1 GB")
    assert session.sql("SELECT upper(s) AS u FROM many").to_arrow().num_rows == n
    session.set("morsel_rows", 65_536)
    session.set("max_state", "1 MB")
    error = refused(session, "SELECT k + 1 AS a, ts + 1 AS b FROM many")
    assert "the rows between its operators" in error.message
    assert "SET morsel_rows lower" in (error.hint or "")
    session.set("max_state", "1 GB")


@pytest.mark.sampled
@pytest.mark.parametrize("runtime", ["depth_first", "fifo"])  # their morsels can be counted
@pytest.mark.parametrize(
    "text",
    [
        "SELECT n % 7 AS k, count(*) AS c, count(DISTINCT n) AS d FROM w [RANGE 500 SLIDE 5]"
        " GROUP BY n % 7",
        "SELECT n, ts FROM w ORDER BY n LIMIT 5",
        "SELECT upper(s) AS u, n FROM w WHERE n > 3",
        "SELECT n, count(*) AS c, window_end FROM (SELECT n, ts FROM w UNION ALL SELECT n, ts FROM"
        " w) AS u [RANGE 9 SLIDE 9 WA ts] GROUP BY n, window_end ORDER BY window_end, n LIMIT 2",
        "SELECT ISTREAM n, count(*) AS c FROM w [RANGE 9 WA ts] GROUP BY n",
        "SELECT n, ts, row_number() OVER (PARTITION BY s, n ORDER BY ts) AS p"
        " FROM w [RANGE 9 WA ts] EMIT CHANGES",
        "SELECT ISTREAM n, s FROM w [RANGE 900 WA ts] ORDER BY s, n LIMIT 3",
        "SELECT RSTREAM n, s FROM w [RANGE 9 WA ts]",
        "SELECT a.n, b.s FROM w AS a, w AS b WHERE a.n = b.n AND b.ts BETWEEN a.ts AND a.ts + 9",
    ],
)
def test_all_memory_is_accounted_for(
    session: Session, monkeypatch: pytest.MonkeyPatch, text: str, runtime: str
) -> None:
    """At every batch and at the end, the bytes counted for ``max_state`` are those allocated."""
    seen: list[int] = []

    def compare(run: Execution) -> None:
        graph = run.graph
        assert graph is not None
        morsels = [*graph.morsels, *getattr(run._runtime, "_morsels", {}).values()]
        parts = [u.nbytes for u in morsels] + [f.nbytes for f in run.feeds]
        dictionary = run.workspace.dictionary
        parts += [dictionary.nbytes, dictionary._rank.nbytes]
        parts += [op.tables.nbytes for op in graph.operators if isinstance(op, StageOperator)]
        parts += [getattr(operator, "nbytes", 0) for operator in graph.operators]
        for store in (op.store for op in graph.operators if hasattr(op, "store")):
            scratch = [n for n, role in store.roles.items() if role is Role.SCRATCH]
            parts += [store.arrays[name].nbytes for name in scratch]
        assert run.workspace.used == sum(parts)
        seen.append(sum(parts))

    deliver, release = Execution.deliver, Execution._release
    monkeypatch.setattr(Execution, "deliver", lambda run, *of: (deliver(run, *of), compare(run)))
    monkeypatch.setattr(Execution, "_release", lambda run: (compare(run), release(run)))
    rows = {"ts": range(3000), "n": [k * k % 97 for k in range(3000)], "s": ["é"] * 3000}
    session.create_stream("w", pa.table(rows), "ts", slack=20)
    session.set("morsel_rows", 64)
    session.set("runtime", runtime)
    assert session.sql(text).to_arrow().num_rows > 0
    assert len(seen) > 1


def test_a_query_too_large_to_compile(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_: object) -> Any:
        raise RecursionError

    with monkeypatch.context() as patched:
        patched.setattr(module, "_import", deep)
        error = refused(session, "SELECT n + 77777 AS never_compiled_before, n FROM t")
    assert "too large to compile" in error.message


def test_a_time_of_a_type_that_no_column_has(session: Session) -> None:
    table = pa.table({"t": pa.array([1, 2], pa.uint64()), "x": [1, 2]})
    for clause in ({"ordered_by": "t"}, {"watermark": {"t": 5}}):
        with pytest.raises(
            CqlError, match="column t is no time: no column can hold values of type uint64"
        ):
            session.create_stream("u", table, **clause)


@pytest.mark.auto_runtime
def test_a_plan_deeper_than_the_stack(session: Session) -> None:
    """Twenty nested views of nested subqueries: 180 levels with two operators each."""
    below = "t"
    for view in range(20):
        inner = below
        for level in range(9):
            inner = f"(SELECT n + 1 AS n FROM {inner} AS q{level} WHERE n > -1)"
        session.sql(f"CREATE VIEW v{view} AS SELECT n FROM {inner} AS q")
        below = f"v{view}"
    session.set("fuse", False)
    query = session.sql(f"SELECT min(n) AS n FROM {below}")
    assert query.explain().count("Filter") == query.explain("logical").count("Filter") == 180
    assert query.to_arrow().to_pydict() == {"n": [180]}


# --------------------------------------------------------------------------- the kernel cache


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def _kernels(folder: Path, ending: str) -> list[Path]:
    return sorted(folder.rglob(f"cql_kernel_*{ending}"))


CACHED = "SELECT n * 3 AS m FROM t WHERE n >= 0"


def _in_new_process(session: Session) -> list[int]:
    """Runs the query like a new process: no kernel module is loaded yet."""
    for name in [m for m in sys.modules if m.startswith("cql_kernel_")]:
        del sys.modules[name]
    return list(session.sql(CACHED).to_arrow()["m"].to_pylist())


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        (".nbi", lambda p: p.write_bytes(b"")),
        (".nbi", _truncate),
        (".nbc", _truncate),
        (".nbc", lambda p: p.write_bytes(b"\x80\x04garbage")),
        (".py", lambda p: p.write_text("raise SystemExit('read from the cache')")),
        (".py", lambda p: p.write_bytes(b"\xff\xfe\x00")),
    ],
    ids=["no index", "half an index", "half the code", "garbage", "other source", "no text"],
)
def test_a_damaged_kernel_cache_is_made_anew(
    session: Session, tmp_path: Path, ending: str, damage: Callable[[Path], None]
) -> None:
    session.set("kernel_cache", str(tmp_path))
    assert _in_new_process(session) == [3, 0, 9]
    files = _kernels(tmp_path, ending)
    assert files
    for path in files:
        damage(path)
    assert _in_new_process(session) == [3, 0, 9]
    assert _in_new_process(session) == [3, 0, 9]


def test_a_kernel_cache_that_cannot_be_written(session: Session, tmp_path: Path) -> None:
    """The folder's path is a file: the process uses a temporary folder."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    session.set("kernel_cache", str(blocked))
    assert _in_new_process(session) == [3, 0, 9]
    assert blocked.read_text() == ""


def test_a_full_disk_under_the_kernel_cache(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.set("kernel_cache", str(tmp_path))

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        for name in [m for m in sys.modules if m.startswith("cql_kernel_")]:
            del sys.modules[name]
        with pytest.raises(RunError, match="kernel cache") as caught:
            session.sql(CACHED).to_arrow()
    assert "kernel_cache" in (caught.value.hint or "")
    assert _in_new_process(session) == [3, 0, 9]


_DAMAGED_LIBRARY = """
import pathlib, sys
from cql.executor.kernels.lib import dictionary
folder = pathlib.Path(sys.argv[1])
files = [*folder.rglob("*.nbi"), *folder.rglob("*.nbc")]
print(len(files), dictionary.__name__)
"""


@pytest.mark.slow
def test_a_damaged_library_cache(tmp_path: Path) -> None:
    """A damaged cache of the library's own kernels is compiled again."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def run() -> int:
        done = subprocess.run(
            [sys.executable, "-c", _DAMAGED_LIBRARY, str(tmp_path)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return int(done.stdout.split()[0])

    assert run() > 0
    for ending in ("*.nbi", "*.nbc"):
        for path in tmp_path.rglob(ending):
            _truncate(path)
        assert run() > 0


# --------------------------------------------------------------------------- inputs that break off


def _breaking_off(error: BaseException) -> Callable[[], Iterator[pa.RecordBatch]]:
    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 200_000, 50_000):
            numbers = pa.array(range(first, first + 50_000), pa.int64())
            yield pa.record_batch({"ts": numbers, "n": numbers})
        raise error

    return batches


def _declare(session: Session, error: BaseException) -> None:
    one = pa.record_batch({"ts": pa.array([0], pa.int64()), "n": pa.array([0], pa.int64())})
    made = iter(_breaking_off(error)())
    rest = [next(made) for _ in range(3)]

    def batches() -> Iterator[pa.RecordBatch]:
        yield one
        yield from rest
        raise error

    session.create_stream("breaks", batches, ordered_by="ts", replace=True)


def test_an_iterator_that_raises_leaves_nothing(session: Session) -> None:
    _declare(session, ValueError("boom"))
    session.sql("CREATE TABLE kept (n BIGINT)")
    session.sql("INSERT INTO kept SELECT n FROM t")
    with pytest.raises(
        CatalogError, match="stream breaks failed after row 150001: ValueError: boom"
    ):
        session.sql("INSERT INTO kept SELECT n FROM breaks")
    assert session.sql("SELECT n FROM kept").to_arrow()["n"].to_pylist() == [1, 0, 3]
    assert session.queries()[-1].status == "failed"
    with pytest.raises(CatalogError, match="boom"):
        session.sql("CREATE TABLE other AS SELECT n FROM breaks")
    assert "other" not in session._names()


def test_ctrl_c_in_to_arrow(session: Session) -> None:
    _declare(session, KeyboardInterrupt())
    query = session.sql("SELECT n FROM breaks")
    with pytest.raises(KeyboardInterrupt):
        query.to_arrow()
    assert query.status == "stopped"
    session.sql("CREATE TABLE kept (n BIGINT)")
    with pytest.raises(KeyboardInterrupt):
        session.sql("INSERT INTO kept SELECT n FROM breaks")
    assert session.sql("SELECT n FROM kept").to_arrow().num_rows == 0
    assert [q for q in session.queries() if q.is_active] == []


def test_every_reader_is_closed(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a query, and a failure while a run is built, close all readers that are open."""
    closed: list[bool] = []

    def rows() -> Iterator[dict[str, int]]:
        try:
            for k in range(200_000):
                yield {"ts": k, "n": k}
        finally:
            closed.append(True)

    session.create_stream("one", rows, ordered_by="ts")
    session.create_stream("two", rows, ordered_by="ts")
    before = threading.active_count()
    query = session.sql("SELECT n FROM one UNION ALL SELECT n FROM two")
    batches = iter(query)
    next(batches)
    batches.close()
    assert query.status == "stopped"
    made = len(closed)
    assert made >= 2

    def fail(*_: object, **__: object) -> Any:
        raise CatalogError("the kernel library is out of reach")

    with monkeypatch.context() as patched:
        patched.setattr("cql.executor.run.execution.build", fail)
        with pytest.raises(CatalogError, match="out of reach"):
            query.to_arrow()
    assert threading.active_count() <= before


# --------------------------------------------------------------------------- sinks


def test_a_full_disk_under_the_sink(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local: LocalCatalog = session._catalog.local
    local.create_table(("out",), path=tmp_path / "out", schema=_schema(), format="parquet")
    session.sql("INSERT INTO out SELECT n FROM t")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(CatalogError, match="no space left") as caught:
            session.sql("INSERT INTO out SELECT n FROM t")
    assert "nothing was published" in (caught.value.hint or "")
    assert session.sql("SELECT n FROM out").to_arrow().num_rows == 3
    session.sql("INSERT INTO out SELECT n FROM t")
    assert session.sql("SELECT n FROM out").to_arrow().num_rows == 6


def test_a_sink_that_fails_while_the_input_is_silent(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query ends with the sink's error and does not wait for the next row."""
    going = threading.Event()

    def rows() -> Iterator[dict[str, int]]:
        yield {"ts": 1, "n": 1}
        going.wait(60)

    session.create_stream("endless", rows, ordered_by="ts", bounded=False)
    session.sql("CREATE TABLE kept (n BIGINT); SET epoch_ms = 1")

    def full(*_: object) -> int:
        raise CatalogError("no space left")

    monkeypatch.setattr("cql.catalog.sinks.MemorySink.commit", full)
    query = session.sql("INSERT INTO kept SELECT n FROM endless")
    assert isinstance(query, Query)
    try:
        with pytest.raises(CatalogError, match="no space left"):
            query.await_termination(30)
        assert query.status == "failed"
    finally:
        going.set()
    assert session.sql("SELECT n FROM kept").to_arrow().num_rows == 0


def _schema() -> Any:
    from cql.base.model import Field, Schema
    from cql.base.types import BIGINT

    return Schema((Field("n", BIGINT),))


def test_errors_know_their_statement(session: Session) -> None:
    """Line and column of an error count from the start of the script, not of the statement."""
    with pytest.raises(BindError) as caught:
        session.sql("SET morsel_rows = 7;\n\nSELECT nope\nFROM t")
    assert (caught.value.line, caught.value.column) == (3, 8)
    with pytest.raises(RunError) as failed:
        session.sql("SET morsel_rows = 8;\nSELECT 1 /\n n FROM t").to_arrow()
    assert failed.value.line == 2


def test_columns_that_differ_in_case(session: Session) -> None:
    table = pa.table({"t": [1, 2, 3], "T": [9, 8, 7]})
    session.create_stream("cased", table, ordered_by="t")
    for text, expected in (
        ('"T" AS x FROM cased ORDER BY "T"', [7, 8, 9]),
        ('"T" AS x FROM cased', [9, 8, 7]),
    ):
        query = session.sql(f"SELECT {text}")
        assert query.to_arrow()["x"].to_pylist() == expected
        assert sum(query.late()["count"].to_pylist()) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE STREAM d", "needs to know where its rows come from"),
        ("SELECT k FROM s SORT BY k", "SORT BY is not supported"),
        ("SELECT k FROM s DISTRIBUTE BY k", "DISTRIBUTE BY is not supported"),
        ("SELECT k FROM s MINUS SELECT k FROM s", "MINUS is not supported"),
        ("SELECT * FROM s PIVOT (sum(t) FOR k IN ('a'))", "PIVOT is not supported"),
        ("SELECT k FROM s WHERE t = ANY (SELECT t FROM s)", "ANY over a query is not supported"),
        ("SELECT k FROM s WHERE t > ALL (SELECT t FROM s)", "ALL over a query is not supported"),
        ("SELECT s.k FROM s, LATERAL (SELECT t FROM s) x", "LATERAL is not supported: JOIN"),
    ],
)
def test_what_is_refused_is_named(session: Session, text: str, message: str) -> None:
    session.create_stream("s", pa.table({"t": [1], "k": ["a"]}), ordered_by="t")
    with pytest.raises(CqlError, match=message):
        session.sql(text)
