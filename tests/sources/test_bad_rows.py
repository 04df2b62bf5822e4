"""Rows that a source cannot read: they are counted, listed with their place, and left out or fatal,
alike in every kind of source; offsets count them."""

from __future__ import annotations

import datetime as dt
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DOUBLE, STRING, TIMESTAMP, decimal
from cql.base.window import MAX_EVENT_TIME
from cql.catalog.files import text as text_module
from cql.catalog.files.follow import FollowSource
from cql.catalog.files.source import FileSource
from cql.catalog.memory import rows as rows_module
from cql.catalog.memory.iterables import IterableSource
from cql.catalog.memory.replay import ReplaySource
from cql.catalog.sources import DeclaredSource, TableSource
from cql.errors import CatalogError
from cql.executor.ledgers import bad_rows
from cql.executor.protocols import BLOCK_ROWS, Block, Source
from cql.session.session import Session
from tests.support.catalog_tools import FakeClock, check_replay, drain, rows_of
from tests.support.runtimes import RUNTIMES, Settings, named

SCHEMA = Schema((Field("n", BIGINT), Field("s", STRING), Field("t", TIMESTAMP)))
#: (line, its fault or None).
CSV_LINES = [
    ("1,x,2024-01-01", None),
    ("2,,", None),
    (',"q ""z""",2024-01-01T10:00:00+02:00', None),
    ("oops,x,2024-01-01", "column n: 'oops' is not a bigint"),
    ("1.5,x,2024-01-01", "column n: '1.5' is not a bigint"),
    ("99999999999999999999,x,", "column n: '99999999999999999999' is not a bigint"),
    ("1,x", "2 values for 3 columns"),
    ("1,x,2024-01-01,4", "4 values for 3 columns"),
    ("1,x,soon", "column t: 'soon' is not a timestamp"),
    ('1,"x,2024-01-01', "a quote is not closed"),
    ('1,x,"2024-01-01', "a quote is not closed"),
    ('1,x"y",2024-01-01', None),
    ('"1"5,x,"2024-01-01"', None),
    ("1,\udcff,2024-01-01", "byte 2 of the line, 0xFF, is not UTF-8"),
]
JSON_LINES = [
    ('{"n": 1, "s": "x", "t": "2024-01-01T00:00:00Z"}', None),
    ('  {"s": null, "more": [1, {}]} ', None),
    ("{}", None),
    ('{"n": "1"}', "column n: '1' is not a bigint"),
    ('{"n": 1.5}', "column n: 1.5 is not a bigint"),
    ('{"n": [1]}', "column n: [1] is not a bigint"),
    ('{"s": 5}', None),
    ('{"s": 1e3, "s2": 5, "S": 7}', None),
    ('{"S": {"x": [1, "\u2028"]}}', None),
    ('{"S": 7, "ſ": 1, "N": 2.5}', "column n: 2.5 is not a bigint"),
    ('{"N": 1, "t": 5}', "column t: 5 is not a timestamp"),
    ('{"t": "soon"}', "column t: 'soon' is not a timestamp"),
    ('{"n": 1', "not a JSON object: Expecting ',' delimiter"),
    ('{"n": 1} {"n": 2}', "not a JSON object: Extra data"),
    ("null", "not a JSON object"),
    ("[1]", "not a JSON object"),
    ('"x"', "not a JSON object"),
    ("\x00", "not a JSON object"),
    ('{"s": "\udcff"}', "byte 7 of the line, 0xFF, is not UTF-8"),
    ('{"q": ' + "[" * 5000 + "1", "not a JSON object"),
]
LINES = {"csv": CSV_LINES, "json": JSON_LINES}


def write(path: Path, kind: str, lines: list[str]) -> None:
    head = ["n,s,t"] if kind == "csv" else []
    text = "".join(f"{line}\n" for line in [*head, *lines])
    path.write_bytes(text.encode(errors="surrogateescape"))


def bad_of(blocks: list[Block]) -> list[tuple[int, str]]:
    """(row number in the source, reason) of every bad row."""
    found, before = [], 0
    for block in blocks:
        found += [(before + b.row, b.reason) for b in block.bad]
        before += block.batch.num_rows + len(block.bad)
    return found


def kept(source: Source, columns: list[str] | None = None) -> list[Block]:
    return drain(source.open(columns or list(source.schema.names)), keep=True)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", LINES)
def test_a_row_is_judged_by_itself(
    kind: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither other lines nor the cuts of pieces, row groups and blocks change a row's verdict."""
    rng = random.Random(seed)
    path = tmp_path / f"a.{kind}"
    for size in (40, 200, text_module.CHUNK):
        monkeypatch.setattr(text_module, "CHUNK", size)
        lines = [rng.choice(LINES[kind]) for _ in range(rng.randrange(60))]
        write(path, kind, [line for line, _ in lines])
        source = FileSource({"path": path}, what="s", declared=SCHEMA)
        head = 2 if kind == "csv" else 1
        blocks = kept(source)
        found = bad_of(blocks)
        expected = [(i, what) for i, (_, what) in enumerate(lines) if what is not None]
        assert [row for row, _ in found] == [row for row, _ in expected], f"seed {seed}"
        for (row, reason), (_, what) in zip(found, expected, strict=True):
            assert reason.startswith(f"file {path}, line {row + head}: {what}"), f"seed {seed}"
        good = sum(what is None for _, what in lines)
        assert sum(b.batch.num_rows for b in blocks) == good
        check_replay(source, limit=100)
        if expected:
            with pytest.raises(CatalogError, match=f"line {expected[0][0] + head}: "):
                drain(source.open(["n", "s", "t"]))


@pytest.mark.parametrize("kind", LINES)
def test_clean_files_have_no_bad_rows_however_they_end(kind: str, tmp_path: Path) -> None:
    good = [line for line, what in LINES[kind] if what is None]
    for end in ("\n", "\r\n", "\n\n", ""):
        path = tmp_path / f"a.{kind}"
        head = ["n,s,t"] if kind == "csv" else []
        text = "\n".join([*head, *good]).replace("\n", end or "\n") + end
        path.write_bytes(b"\xef\xbb\xbf" + text.encode())
        blocks = kept(FileSource({"path": path}, what="s", declared=SCHEMA))
        assert bad_of(blocks) == []
        assert [r["n"] for r in rows_of(blocks)] == (
            [1, 2, None, 1, 15] if head else [1, *[None] * 5]
        )


def test_carriage_returns_end_lines_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"n,s,t\r1,x,\rz,x,\r3,x,")
    blocks = kept(FileSource({"path": tmp_path / "a.csv"}, what="s", declared=SCHEMA))
    assert [r["n"] for r in rows_of(blocks)] == [1, 3]
    (bad,) = bad_of(blocks)
    assert bad[0] == 1
    assert "line 3: column n: 'z'" in bad[1]


def test_one_column_and_the_columns_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n\nx\n4\n")
    blocks = kept(FileSource({"path": path}, what="s", declared=Schema((Field("n", BIGINT),))))
    assert [r["n"] for r in rows_of(blocks)] == [1, None, 4]
    assert [row for row, _ in bad_of(blocks)] == [2]
    write(path, "csv", ["oops,x,2024-01-01", "2,y,soon"])
    source = FileSource({"path": path}, what="s", declared=SCHEMA)
    assert [r["s"] for r in rows_of(kept(source, ["s"]))] == ["x", "y"]  # column n is not read
    (bad,) = bad_of(kept(source, ["t", "s"]))
    assert bad == (1, f"file {path}, line 3: column t: 'soon' is not a timestamp")


@pytest.mark.usefixtures("small_blocks")
def test_quoted_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text('n,s,t\n1,"a\nb",\n2,"say ""x""\n\n",\nz,"c\nd",\n4," 5"" ",\n5,5" pipe,\n')
    schema, good = SCHEMA, [1, 2, 4, 5]
    for size in (20, text_module.CHUNK):
        monkeypatch.setattr(text_module, "CHUNK", size)
        source = FileSource({"path": path, "multiline": True}, what="s", declared=schema)
        blocks = kept(source)
        assert [r["n"] for r in rows_of(blocks)] == good
        assert bad_of(blocks) == [(2, f"file {path}, line 7: column n: 'z' is not a bigint")]
        check_replay(source)
    plain = bad_of(kept(FileSource({"path": path}, what="s", declared=schema)))
    assert len(plain) == 6, "without the option a value ends with its line"
    path.write_text('n,s,t\n1,"never closed,\n2,y,\n3,z,\n')
    source = FileSource({"path": path, "multiline": True}, what="s", declared=schema)
    assert [row for row, _ in bad_of(kept(source))] == [0]


def test_a_decimal_with_too_many_digits_and_a_null_in_a_not_null_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("d,n\n1.25,1\n1.23456,2\n3,\n")
    schema = Schema((Field("d", decimal(5, 2)), Field("n", BIGINT, False)))
    (_, digits), (_, null) = bad_of(kept(FileSource({"path": path}, what="s", declared=schema)))
    assert digits.startswith(f"file {path}, line 3: column d: ")
    assert null == f"file {path}, row 2, column n: NULL in a column declared NOT NULL"


def test_rows_that_do_not_tell_their_columns(tmp_path: Path) -> None:
    for name, text, what in (
        ("a.csv", "n,s\n1,x\n2\n", r"does not tell its columns: .*\nhint: declare them"),
        ("a.jsonl", '{"n": 1}\n{"n": "x"}\n', r"does not tell its columns: .*\nhint: declare them"),
        ("b.jsonl", "null\n", "line 1: not a JSON object"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(CatalogError, match=what):
            FileSource({"path": tmp_path / name}, what="s")


def items(n: int) -> list[Any]:
    """Every third item is bad; six kinds of fault take turns."""
    wrong = [{"n": "x"}, {"n": 2**70}, 5, {"n": 1, "s": 2}, ("too", "short"), {"n": True}]
    return [wrong[i // 3 % len(wrong)] if i % 3 == 2 else {"n": i, "s": None} for i in range(n)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("bounded", [True, False])
def test_python_rows(bounded: bool) -> None:
    schema = Schema((Field("n", BIGINT), Field("s", STRING), Field("x", DOUBLE)))
    source = IterableSource(lambda: items(40), what="stream s", declared=schema, bounded=bounded)
    blocks = kept(source)
    assert [r["n"] for r in rows_of(blocks)] == [i for i in range(40) if i % 3 != 2]
    assert [row for row, _ in bad_of(blocks)] == list(range(2, 40, 3))
    assert all(reason.startswith(f"stream s, row {row}") for row, reason in bad_of(blocks))
    assert bad_of(blocks)[0][1] == "stream s, row 2, column n: 'x' (str) is not a bigint"
    if bounded:
        check_replay(source)
    again = drain(source.open(["n", "s", "x"], {"row": 20}), keep=True)
    assert [r["n"] for r in rows_of(again)] == [i for i in range(20, 40) if i % 3 != 2]


@pytest.mark.usefixtures("small_blocks")
def test_values_that_do_not_fit_their_type() -> None:
    """Tables have no text to parse, but a timestamp may have digits below a microsecond."""
    nanos = [1000 * k + (k % 7 == 3) for k in range(50)]
    table = pa.table({"t": pa.array(nanos, pa.timestamp("ns")), "n": range(50)})
    source = TableSource(table, what="t")
    blocks = kept(source)
    assert [row for row, _ in bad_of(blocks)] == list(range(3, 50, 7))
    assert [r["n"] for r in rows_of(blocks)] == [k for k in range(50) if k % 7 != 3]
    assert "row 3, column t: 1970-01-01 00:00:00.000003001" in bad_of(blocks)[0][1]
    check_replay(source)
    narrow = Schema((Field("n", decimal(1, 0)),))
    declared = DeclaredSource(source, narrow, what="d", unsupported={})
    assert [row for row, _ in bad_of(kept(declared))] == list(range(10, 50))


@pytest.mark.usefixtures("small_blocks")
def test_a_replay_gives_them_in_their_place() -> None:
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows = [
        {
            "t": None if k % 4 == 1 else start + dt.timedelta(seconds=k),
            "n": "x" if k % 5 == 2 else k,
        }
        for k in range(30)
    ]
    schema = Schema((Field("t", TIMESTAMP), Field("n", BIGINT)))
    inner = IterableSource(rows, what="s", declared=schema)
    clock = FakeClock()
    source = ReplaySource(inner, {"time": "t", "speed": 1}, what="r", clock=clock)
    reader, seen, bad, row = source.open(["n"]), [], [], 0
    while (block := reader.next()) is not None:
        bad += [row + b.row for b in block.bad]
        seen += block.batch.to_pylist()
        row += block.batch.num_rows + len(block.bad)
        rest = drain(source.open(["n"], block.offset), keep=True)
        assert [r["n"] for r in rows_of(rest)] == [k for k in range(row, 30) if k % 5 != 2]
        clock.time = min(clock.time, row)
    assert bad == list(range(2, 30, 5))
    assert [r["n"] for r in seen] == [k for k in range(30) if k % 5 != 2]


@pytest.mark.usefixtures("small_blocks")
def test_a_followed_file_goes_on(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "1.csv"
    write(path, "csv", ["1,x,", "oops,x,", "", "3,x,"])

    def append() -> None:
        with open(path, "a") as file:
            file.write("4,x\n5,x,\n")

    clock.events = [(1.0, append)]
    source = FollowSource({"path": tmp_path}, what="s", format="csv", declared=SCHEMA, clock=clock)
    reader, blocks = source.open(["n"]), []
    for _ in range(4):
        block = reader.next(timeout=1)
        assert block is not None
        blocks.append(block)
    assert [r["n"] for r in rows_of(blocks)] == [1, 3, 5]
    places = [(row, reason.split(", ", 1)[1]) for row, reason in bad_of(blocks)]
    assert places == [
        (1, "line 3: column n: 'oops' is not a bigint"),
        (3, "line 6: 2 values for 3 columns"),
    ]
    for block in blocks:
        again = source.open(["n"], block.offset).next(timeout=0)
        assert again is not None
        left = [
            (n, b) for n, b in zip([1, 3, 5], [0, 2, 4], strict=True) if b >= block.offset["row"]
        ]
        assert [r["n"] for r in again.batch.to_pylist()] == [n for n, _ in left]
        assert [b.reason.split(", ", 1)[1] for b in again.bad] == [
            reason for row, reason in places if row >= block.offset["row"]
        ]


# ------------------------------------------------------------------------------------ queries


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    lines = ["0,a,2024-01-01", "oops,b,2024-01-01", "2,c,", "0,d,2024-01-02", "4,e"]
    write(tmp_path / "a.csv", "csv", lines)
    with cql.connect(False) as made:
        made.sql(
            f"CREATE STREAM c (n BIGINT, s STRING, t TIMESTAMP)"
            f" USING csv OPTIONS (path '{tmp_path / 'a.csv'}') ORDERED BY t"
        )
        yield made


def test_kept_rows_are_counted_and_listed(session: Session, tmp_path: Path) -> None:
    """Offsets count the rows of the file, whether the source or an operator found a row bad."""
    kept = session.sql("SELECT s, 10 / n AS q FROM c ON BAD ROW KEEP")
    assert kept.to_arrow().to_pylist() == [{"s": "c", "q": 5}]
    path = tmp_path / "a.csv"
    ledger = [tuple(row.values()) for row in kept.bad_rows().to_pylist()]
    assert ledger[0] == (
        "c",
        1,
        "source",
        f"file {path}, line 3: column n: 'oops' is not a bigint",
        "oops,b,2024-01-01",
    )
    assert sorted(row[1] for row in ledger) == [0, 1, 3, 4]
    assert {row[1] for row in ledger if "division by zero" in row[3]} == {0, 3}
    progress = kept.progress()
    assert (progress.rows_in, progress.rows_out, progress.bad) == (5, 1, 4)
    assert kept.metrics()[0] | {"rows_in": 5, "rows_out": 3, "bad": 2} == kept.metrics()[0]
    shown = session.sql("SHOW BAD ROWS").to_arrow()
    assert shown.column("offset").to_pylist() == [row[1] for row in ledger]
    with pytest.raises(CatalogError, match="line 3: column n") as caught:
        session.sql("SELECT s,\n n FROM c").to_arrow()
    assert (caught.value.line, caught.value.column) == (2, 9)
    assert (caught.value.hint or "").endswith("leave such rows out: ON BAD ROW KEEP")


@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
@pytest.mark.parametrize("morsel_rows", [1, 3, 64])
def test_rows_refused_in_and_behind_a_filter(
    runtime: Settings, morsel_rows: int, seed: int, stress: None
) -> None:
    """The filter runs over many rows before the projection computes the first of them."""
    values = random.Random(seed).choices(range(-4, 7), k=200)
    with cql.connect(False, morsel_rows=morsel_rows, **runtime) as session:
        session.create_stream("p", pa.table({"ts": range(200), "v": values}), ordered_by="ts")
        kept = session.sql("SELECT v, 12 / (v - 3) AS q FROM p WHERE 6 / v <= 2 ON BAD ROW KEEP")
        rows, ledger, metrics = kept.to_arrow(), kept.bad_rows(), kept.metrics()[1]
    passing = [v for v in values if v < 0 or v > 3]
    assert rows.to_pydict() == {"v": passing, "q": [int(12 / (v - 3)) for v in passing]}, (
        f"seed {seed}"
    )
    assert ledger["offset"].to_pylist() == [k for k, v in enumerate(values) if v in (0, 3)]
    found = metrics["filtered_0"], metrics["bad"], metrics["rows_out"]
    assert found == (values.count(1) + values.count(2), ledger.num_rows, len(passing))


def test_null_event_times_are_traced_through_unions(session: Session) -> None:
    union = "(SELECT t, n FROM c UNION ALL SELECT t, n FROM c) AS u"
    window = f"SELECT count(*) AS k FROM {union} [RANGE 1 day SLIDE 1 day WA t]"
    kept = session.sql(f"{window} ON BAD ROW KEEP")
    assert kept.to_arrow()["k"].to_pylist() == [4, 2]
    nulls = [row for row in kept.bad_rows().to_pylist() if "NULL" in row["reason"]]
    assert [(r["source"], r["offset"], r["reason"]) for r in nulls] == 2 * [
        ("c", 2, "the event time t is NULL")
    ]


def test_the_ledger_is_bounded_and_the_count_exact(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_rows, "LEDGER_ROWS", 10)
    rows = [{"ts": k, "n": "x" * 1000 if k % 2 else 0} for k in range(100)]
    session.create_stream("p", lambda: iter(rows), ordered_by="ts")
    kept = session.sql("SELECT 1 / n AS q FROM p ON BAD ROW KEEP")
    assert kept.to_arrow().num_rows == 0
    assert (kept.bad_rows().num_rows, kept.progress().bad) == (10, 100)
    texts = kept.bad_rows()["text"].to_pylist()
    assert all(text is None or len(text) <= rows_module.SHOWN + 1 for text in texts)


def test_failing_does_not_wait_for_the_other_bad_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    salvage = rows_module.salvage

    def spy(count: int, attempt: Any, blame: Any) -> Any:
        tried.append(count)
        return salvage(count, attempt, blame)

    monkeypatch.setattr(rows_module, "salvage", spy)
    table = pa.table({"t": pa.array([1] * (BLOCK_ROWS + 1), pa.timestamp("ns"))})
    with cql.connect(False) as session:
        session.create_stream("t", table)
        with pytest.raises(CatalogError, match="row 0, column t"):
            session.sql("SELECT t FROM t").to_arrow()
    assert tried == [rows_module.TOGETHER]


# ---------------------------------------------------------------------------------- where rows went


def test_every_pair_is_late_or_counted() -> None:
    """With any overlap of windows, count(*) is the aggregate's pairs less its late pairs."""
    rng = random.Random(3)
    ts = [k + rng.randrange(40) for k in range(500)]
    table = pa.table({"ts": ts, "n": [rng.randrange(5) for _ in ts]})
    with cql.connect(False, on_bad_row="keep") as session:
        session.create_stream("t", table, ordered_by="ts", slack=10)
        for window in ("RANGE 20 SLIDE 20", "RANGE 60 SLIDE 20", "RANGE 5 SLIDE 20"):
            text = f"SELECT count(*) AS c FROM t [{window}] WHERE 6 / n > 1"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the hole between windows is intended
                query = session.sql(text)
            total = sum(query.to_arrow()["c"].to_pylist())
            (aggregate,) = (m for m in query.metrics() if "groups_out" in m)
            assert aggregate["bad"] == query.progress().bad > 0
            assert aggregate["late_pairs"] > 0
            assert total == aggregate["pairs"] - aggregate["late_pairs"]
            assert aggregate["windows_closed"] == aggregate["groups_out"] == query.row_count
            assert f"{aggregate['pairs']:,}" in query.explain("analyze")


@pytest.mark.parametrize("slide", [10, 5, 1])
@pytest.mark.parametrize("rows", [1, 64])
def test_event_times_out_of_range_beside_one_in_range(rows: int, slide: int) -> None:
    """An event time within MAX_EVENT_TIME counts and one beyond it is bad, with any morsel cuts."""
    edge = MAX_EVENT_TIME
    with cql.connect(False, morsel_rows=rows) as session:
        session.create_stream("t", pa.table({"ts": [-edge - 1, -edge, edge, edge + 1]}), "ts")
        text = f"SELECT count(*) AS c FROM t [RANGE 10 SLIDE {slide}] ON BAD ROW KEEP"
        query = session.sql(text)
        assert sum(query.to_arrow()["c"].to_pylist()) == 2 * 10 // slide
        assert query.bad_rows()["offset"].to_pylist() == [0, 3]


def test_limits_count_what_they_drop() -> None:
    with cql.connect(False) as session:
        session.create_stream("t", pa.table({"n": range(10)}))
        query = session.sql("SELECT n FROM t ORDER BY n LIMIT 3 OFFSET 2")
        assert query.to_arrow()["n"].to_pylist() == [2, 3, 4]
        assert query.metrics()[-1]["over_limit"] == 7
