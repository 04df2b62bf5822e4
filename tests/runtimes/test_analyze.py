"""EXPLAIN ANALYZE: the metrics and times that every runtime measures, and the table that shows
them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import RunError
from cql.executor.run.run_report import Timing
from cql.executor.runtimes.times import WorkerTime
from cql.query.explanation import measured
from cql.session.session import Session
from tests.support.fake_run import FakeRun
from tests.support.runtime_queries import QUERIES, stream
from tests.support.runtimes import ONE_THREAD, ORDERED, Settings, apply, named

TEXT = QUERIES["window over a union"]
ALL = (*ONE_THREAD, "ordered")
SEVERAL: Settings = {"workers": 2, "partitions": 3}


@pytest.fixture(scope="module")
def session(seed: int) -> Session:
    session = Session(False)
    apply(session, SEVERAL)
    for i, name in enumerate("ab"):
        table = stream(seed + i, [None, 0, 1, 2, 3])
        session.create_stream(name, table, ordered_by="ts", unit="seconds", slack=5)
    return session


def explained(session: Session, runtime: str) -> tuple[list[dict[str, Any]], str]:
    """The metrics of a run, and the table that EXPLAIN ANALYZE prints behind the plan."""
    session.set("runtime", runtime)
    query = session.sql(TEXT)
    text = query.explain("analyze")
    return query.metrics(), text.split("\n\n")[1]


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


@pytest.mark.parametrize("runtime", ALL)
def test_every_runtime_takes_the_time_of_operators(session: Session, runtime: str) -> None:
    metrics, text = explained(session, runtime)
    lines = text.split("\n")
    names = cells(lines[0])
    assert names[:6] == ["operator", "rows in", "rows out", "out/in", "a row", "share"]
    for entry, line in zip(metrics, lines[1:], strict=False):
        shown = dict(zip(names, cells(line), strict=False))
        assert shown["operator"] == entry["operator"]
        assert shown["rows in"] == f"{entry['rows_in']:,}"
        assert shown["rows out"] == f"{entry['rows_out']:,}"
        assert float(shown["out/in"]) == pytest.approx(
            entry["rows_out"] / entry["rows_in"], rel=0.01
        )
        assert re.fullmatch(r"[\d.,]+ (ns|µs|ms|s)", shown["a row"])
        assert re.fullmatch(r"\d+%", shown["share"])
    assert all(entry["nanoseconds"] > 0 for entry in metrics)
    said = [line for line in lines if re.match("prepared in .*, ran for ", line)]
    assert len(said) == 1


def test_what_the_ordered_runtime_measures_besides(session: Session) -> None:
    metrics, text = explained(session, "ordered")
    header = cells(text.split("\n")[0])
    assert header[6:12] == ["response", "queue", "most", "reorder", "parts", "largest"]
    inputs, operators = metrics[:2], metrics[2:]
    assert not any("queue" in entry for entry in inputs)
    assert all(0 <= entry["queue"] <= entry["longest"] for entry in operators)
    parted = [entry for entry in operators if "partitions" in entry]
    assert [entry["partitions"] for entry in parted] == [3]
    assert all(1 / 3 <= entry["largest"] <= 1 for entry in parted)
    assert all(entry["reorder"] >= 0 for entry in parted)
    assert len(re.findall(r"\d+% \(\d+%\)", text)) == 2  # workers


def test_no_time_is_taken_unless_it_is_asked_for(session: Session) -> None:
    for runtime in ("depth_first", "ordered"):
        session.set("runtime", runtime)
        query = session.sql(TEXT)
        query.to_arrow()
        assert not any("nanoseconds" in entry for entry in query.metrics())
        query.explain("analyze")
        assert all("nanoseconds" in entry for entry in query.metrics())
        query.to_arrow()
        assert not any("nanoseconds" in entry for entry in query.metrics())


PUNCTUATION = ("punctuation_in", "punctuation_out")


@pytest.mark.parametrize("runtime", ALL)
def test_punctuation_of_each_operator(session: Session, runtime: str) -> None:
    """An operator receives the items that the operator before it sends; the partitions of an
    operator together count an item once."""
    metrics, text = explained(session, runtime)
    counted = {e["operator"].split("#")[0]: tuple(map(e.get, PUNCTUATION)) for e in metrics}
    assert counted.pop("a") == counted.pop("b") == (None, None)
    (filtered, passed), (taken, united) = counted["filter"], counted["union"]
    assert filtered == passed > 1  # watermarks of the input, and its end
    assert taken > united >= filtered
    last, out = counted["aggregate"]
    assert last == counted.get("split", (0, united))[1] == united
    assert 1 < out <= last
    header, *lines = text.split("\n")
    at = header.index("punct. in") + len("punct. in")
    shown = [lines[k][:at].split(" ")[-1] for k in range(2, len(metrics))]
    assert shown == [f"{e['punctuation_in']:,}" for e in metrics[2:]]


@pytest.mark.parametrize(("by", "numbers"), [(None, (6, 5)), ("p", (7, 1))])
def test_items_of_punctuation(by: str | None, numbers: tuple[int, int]) -> None:
    """Without a key: one item after each row that advances the watermark, if the advance can close
    a window. With a key: one item for each watermark of a value, which the aggregate does not pass
    on. The end of the input is one more item."""
    with cql.connect(spark=False) as session:
        session.set("morsel_rows", 1)
        rows = pa.table({"t": [1, 2, 11, 3, 12, 21, 5, 31], "p": list("abababba")})
        session.create_stream("s", rows, ordered_by="t", punctuated_by=by)
        for runtime in ONE_THREAD:
            session.set("runtime", runtime)
            query = session.sql(
                "SELECT p, count(*) AS n, window_end FROM s [RANGE 10 SLIDE 10] GROUP BY p"
            )
            query.explain("analyze")
            assert tuple(query.metrics()[-1][name] for name in PUNCTUATION) == numbers


@pytest.mark.parametrize("runtime", ONE_THREAD[1:])
def test_runtimes_of_one_thread_count_the_same(session: Session, runtime: str) -> None:
    assert counts(explained(session, runtime)[0]) == counts(explained(session, "depth_first")[0])


@pytest.mark.parametrize("settings", ORDERED, ids=named)
def test_an_operator_in_partitions_counts_what_one_does(
    session: Session, settings: Settings, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: apply(session, SEVERAL))
    apply(session, settings)
    parted, whole = (
        next(e for e in explained(session, runtime)[0] if e["operator"].startswith("aggregate"))
        for runtime in ("ordered", "depth_first")
    )
    for name in ("rows_out", "groups_out", "late_pairs", "bad"):
        assert parted[name] == whole[name], name
    assert parted["pairs"] > 0


def counts(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The metrics without times and without bytes of morsels."""
    return [
        {
            n: v
            for n, v in entry.items()
            if n not in ("nanoseconds", "response") and not n.endswith("bytes")
        }
        for entry in metrics
    ]


# --------------------------------------------------------------------------- queries by name


@pytest.mark.auto_runtime
def test_the_ledgers_and_the_plan_of_a_query_by_its_name() -> None:
    with cql.connect(spark=False) as session:
        rows = pa.table({"ts": [0, 1, 30, 2], "v": [1, 0, 1, 1]})
        session.create_stream("s", rows, ordered_by="ts", unit="seconds")
        windows = "SELECT count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
        first = session.sql(windows)
        first.to_arrow()
        second = session.sql("SELECT 1 % v AS z FROM s ON BAD ROW KEEP")
        running = second.batches()
        next(running)
        assert second.is_active
        late = session.sql(f"SHOW LATE {first.name}").rows
        assert ("s", "rows", 1) in [row[:3] for row in late]
        assert session.sql(f"SHOW LATE {second.name}").rows != late
        assert len(session.sql(f"SHOW BAD ROWS {second.name.upper()}").rows) == 1
        assert session.sql(f"SHOW BAD ROWS {first.name}").rows == ()
        for query in (first, second):
            measured = session.sql(f"EXPLAIN ANALYZE {query.name}").text
            assert "4 rows in" in measured
            plan = session.sql(f"EXPLAIN {query.name}").text
            assert plan == query.explain()
            assert "4 rows in" not in plan
            assert session.sql(f"EXPLAIN LOGICAL {query.name}").text == query.explain("logical")
        assert sum(batch.num_rows for batch in running) == 2
        assert second.status == "finished"


def test_a_query_by_its_name_that_has_not_run() -> None:
    with cql.connect(spark=False) as session:
        waiting = session.sql("SELECT 1 AS one")
        for what in ("SHOW LATE", "SHOW BAD ROWS", "EXPLAIN ANALYZE"):
            with pytest.raises(RunError, match=r"has not run yet \(line 1, column") as caught:
                session.sql(f"{what} {waiting.name}")
            assert caught.value.hint == "read its rows first, or start() it"


# --------------------------------------------------------------------------- the table


class Measured(FakeRun):
    """A run with given metrics and timing."""

    def __init__(self, metrics: list[dict[str, Any]], timing: Timing | None) -> None:
        super().__init__()
        self._metrics, self._timing = metrics, timing

    def metrics(self) -> list[dict[str, Any]]:
        return self._metrics

    def timing(self) -> Timing | None:  # type: ignore[override]
        return self._timing


def entry(name: str, rows: int, out: int, **more: Any) -> Mapping[str, Any]:
    return {"operator": name, "rows_in": rows, "rows_out": out, "bad": 0, "late": 0, **more}


def test_a_table_for_a_terminal() -> None:
    counted = {f"counter_{k}": 1_000_000 * k for k in range(8)}
    aggregate = entry(
        "aggregate#12",
        800_000_000,
        1_700_000_000,
        nanoseconds=58_000_000_000,
        queue=7.93,
        longest=16,
        reorder=491_234.5,
        partitions=8,
        largest=0.134,
        state_bytes=7,
        peak_bytes=10_500_000,
        **counted,
    )
    read = entry("clicks", 1_000_000_000, 1_000_000_000, nanoseconds=1_340_000_000, late=12)
    workers = (WorkerTime(800_000_000, 40_000_000), WorkerTime(920_000_000, 0))
    run = Measured([dict(read), dict(aggregate)], Timing(0.25, 1.0, workers))
    run.state.elapsed = 1.25
    shown = measured(run)
    assert shown.split("\n") == [
        "operator            rows in       rows out  out/in    a row  share  queue  most  reorder"
        "  parts  largest  late    state",
        "clicks        1,000,000,000  1,000,000,000       1  1.34 ns     2%" + " " * 42 + "12",
        "aggregate#12    800,000,000  1,700,000,000    2.12  72.5 ns    98%    7.9    16   491 µs"
        "      8      13%        10.5 MB",
        "aggregate#12: counter_1 1,000,000, counter_2 2,000,000, counter_3 3,000,000, counter_4"
        " 4,000,000,",
        "  counter_5 5,000,000, counter_6 6,000,000, counter_7 7,000,000",
        "0 rows in, 0 out in 1.2 s (0 rows/s); 0 late, 0 bad",
        "prepared in 250 ms, ran for 1.0 s",
        "time of each worker at operators (and asleep): 80% (4%), 92% (0%); the first also reads,"
        " and gives the results",
    ]
    assert max(map(len, shown.split("\n"))) < 120


def test_what_was_not_measured_has_no_column() -> None:
    run = Measured([dict(entry("a", 0, 0)), {"operator": "b", "rows_in": 5}], None)
    assert measured(run).split("\n")[:-1] == [
        "operator  rows in  rows out",
        "a               0         0",
        "b               5",
    ]
