"""The queries over an access log (``queries/access_log``): from the command line over the log that
is kept with them, and over generated logs under every runtime, against DuckDB's batch answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import cql
from benchmarks import access_log
from cql.repl import cli as command
from queries.access_log import make_log
from tests.reference import naive_compare
from tests.support.paths import ROOT
from tests.support.runtimes import RUNTIMES, Settings, share
from tests.support.stream_queries import golden_text, table_of

FOLDER = access_log.FOLDER
NAMES = [path.stem for path in sorted(FOLDER.glob("*.cql"))]
ROWS = 20_000
#: Settings of the command line.
LINE = ([], ["morsel_rows=7"], ["morsel_rows=50", "runtime=ordered", "workers=2", "partitions=4"])


def theirs(name: str, log: pa.Table) -> pa.Table:
    """DuckDB's answer over all lines at once."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("log", log.append_column("row", pa.array(np.arange(log.num_rows))))
    return connection.sql(access_log.duckdb_text(name).format(log="log")).to_arrow_table()


def same(found: pa.Table, expected: pa.Table) -> None:
    expected = expected.rename_columns(found.column_names).cast(found.schema)
    rows = map(naive_compare.storage_rows, (expected, found))
    difference = naive_compare.difference(*rows)
    assert difference is None, difference


def golden(name: str) -> str:
    """The text of a golden file: DuckDB's answer over the lines of the kept log."""
    lines = make_log.SAMPLE.read_text("utf-8").removesuffix("\n").split("\n")
    answer = theirs(name, pa.table({"line": pa.array(lines)}))
    for k, field in enumerate(answer.schema):
        if pa.types.is_timestamp(field.type):
            plain = answer.column(k).cast(pa.timestamp("us"))
            answer = answer.set_column(k, field.name, plain)
    rows = [tuple(row.values()) for row in answer.to_pylist()]
    return golden_text(",".join(answer.column_names), rows)


def test_each_query_has_a_golden_file_and_its_like_in_sql() -> None:
    assert set(NAMES) == set(access_log.DUCKDB)
    assert set(NAMES) == {path.stem for path in (FOLDER / "golden").iterdir()}


def test_the_queries_declare_the_same_streams() -> None:
    """Below the header, which says what the query is about."""
    declared = {
        (lines[lines.index("CREATE") :], pattern, requests)
        for lines, pattern, requests, _ in map(access_log.statements, NAMES)
    }
    assert len(declared) == 1


@pytest.mark.parametrize("name", NAMES)
def test_golden_is_the_answer_of_duckdb(name: str, rewrite: bool) -> None:
    path = FOLDER / "golden" / f"{name}.csv"
    if rewrite:
        path.write_text(golden(name), encoding="utf-8")
    assert table_of(path.read_text("utf-8")) == table_of(golden(name))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_query_gives_its_golden_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    head, want = table_of((FOLDER / "golden" / f"{name}.csv").read_text("utf-8"))
    for settings in LINE:
        options = [word for setting in settings for word in ("--set", setting)]
        path = str(FOLDER / f"{name}.cql")
        run = CliRunner().invoke(command.cli, ["run", path, "--format", "csv", *options])
        assert run.exit_code == 0, run.output
        found_head, found = table_of(run.stdout)
        assert found_head == head
        difference = naive_compare.difference(want, found)
        assert difference is None, f"{settings}: {difference}"


# ----------------------------------------------------------------------------------- larger logs


@pytest.fixture(scope="module")
def log(request: pytest.FixtureRequest) -> pa.Table:
    """Some hours of lines, of which some per mille are damaged."""
    return make_log.access_log(ROWS, seed=request.config.getoption("--seed"), rate=2)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_equals_duckdb_under_any_runtime(name: str, log: pa.Table, seed: int, full: bool) -> None:
    expected = theirs(name, log)
    assert expected.num_rows > 3
    choices: list[Settings] = [
        {"runtime": "depth_first"},
        *share(RUNTIMES[1:], NAMES.index(name), 2, seed, full=full),
        {"runtime": "ordered", "workers": 2, "partitions": 4, "morsel_rows": 999},
    ]
    for settings in choices:
        with cql.connect(spark=False, **settings) as session:
            query = declared(session, name, log)
            same(query.to_arrow(), expected)
            assert all(entry["count"] == 0 for entry in query.late().to_pylist())
            assert query.bad_rows().num_rows == 0


def declared(session: cql.Session, name: str, log: Any, **clauses: Any) -> Any:
    """The query of a file over lines in memory."""
    _, pattern, requests, query = access_log.statements(name)
    session.create_stream("log", log, **clauses)
    session.sql(f"{pattern}; {requests}")
    return session.sql(query)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_over_endless_input(name: str, log: pa.Table) -> None:
    """Each window leaves once the times of the requests have passed its end by ten seconds, while
    the input still waits for more lines."""
    left = threading.Event()

    def lines() -> Iterator[pa.RecordBatch]:
        yield from log.to_batches(1_000)
        assert left.wait(60)

    with cql.connect(spark=False, morsel_rows=500) as session:
        batches = iter(declared(session, name, lines(), bounded=False))
        first = next(batch for batch in batches if batch.num_rows)
        left.set()
        found = pa.Table.from_batches([first, *batches])
    expected = theirs(name, log)
    if name != "requests":
        passed = pc.max(theirs("requests", log)["ts"]).as_py() - timedelta(seconds=10)
        closed = pc.field("window_end") < passed
        found, expected = found.filter(closed), expected.filter(closed)
        assert expected.num_rows > 3 - 2 * (name == "robots")
    same(found, expected)


# ----------------------------------------------------------------------------------- the generator


def test_the_kept_log_is_what_the_script_makes() -> None:
    assert make_log.SAMPLE.read_text("utf-8") == make_log.text_of(make_log.sample())


def test_written_as_a_file(tmp_path: Path) -> None:
    made = tmp_path / "access.log"
    done = CliRunner().invoke(make_log.main, [str(made), "--rows", "1000", "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert made.read_text("utf-8") == make_log.text_of(make_log.access_log(1000, seed=3))


def test_the_log_is_like_a_real_one(log: pa.Table, seed: int) -> None:
    """Repeatable; nearly all lines are new; some are damaged; times fall back by some seconds; the
    clocks go back; clients come again."""
    assert log.equals(make_log.access_log(ROWS, seed, rate=2))
    assert not log.equals(make_log.access_log(ROWS, seed + 1, rate=2))
    assert pc.count_distinct(log["line"]).as_py() > 0.99 * ROWS
    requests = theirs("requests", log)
    assert 0 < ROWS - requests.num_rows < 0.01 * ROWS
    back = np.diff(requests["ts"].cast(pa.int64()).to_numpy()).min()
    assert -10_000_000 < back <= -2_000_000
    zones = [pc.sum(pc.match_substring(log["line"], zone)).as_py() for zone in ("+0200]", "+0100]")]
    assert min(zones) > 1_000
    visits = theirs("visits", log)
    assert pc.max(visits["requests"]).as_py() > 20
    assert visits.num_rows > 1.5 * pc.count_distinct(visits["client"]).as_py()
    raw, encoded = (pc.sum(pc.match_substring(requests["path"], p)).as_py() for p in "é%")
    assert min(raw, encoded) > 100
