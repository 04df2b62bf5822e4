"""Queries over a fake run without an engine: reading, inserting, stopping and failing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cql.errors import CqlError, PlanError, Position, RunError
from tests.support.fake_run import FakeRun, FakeSink, batch, make_query


def test_to_arrow_runs_anew_each_time() -> None:
    runs: list[FakeRun] = []

    def start() -> FakeRun:
        runs.append(FakeRun(batch(1, 2), batch(), batch(3)))
        return runs[-1]

    query = make_query(start)
    assert query.status == "ready"
    assert runs == []
    for _ in range(2):
        assert query.to_arrow().to_pydict() == {"a": [1, 2, 3]}
        assert query.status == "finished"
        assert query.row_count == 3
    assert len(runs) == 2
    assert all(r.closed for r in runs)


def test_no_rows_still_have_columns() -> None:
    assert make_query(FakeRun()).to_arrow().schema.names == ["a"]


def test_frames() -> None:
    query = make_query(lambda: FakeRun(batch(1)))
    assert query.to_pandas().to_dict("list") == {"a": [1]}
    assert query.to_polars().to_dict(as_series=False) == {"a": [1]}


def test_iteration_skips_empty_batches_and_closing_ends_the_run() -> None:
    run = FakeRun(batch(1), batch(), batch(2), endless=True)
    query = make_query(run, bounded=False)
    rows = iter(query)
    assert next(rows).to_pydict() == {"a": [1]}
    assert query.is_active
    assert next(rows).to_pydict() == {"a": [2]}
    rows.close()
    assert run.closed
    assert query.status == "stopped"
    assert query.exception is None


def test_one_run_at_a_time() -> None:
    query = make_query(FakeRun(batch(1), batch(2)))
    rows = query.batches()
    next(rows)
    with pytest.raises(RunError, match="running already"):
        query.to_arrow()
    assert query.is_active
    rows.close()


def test_an_endless_query_has_no_whole_result() -> None:
    query = make_query(FakeRun(), bounded=False)
    for whole in (query.to_arrow, query.to_pandas, query.to_polars):
        with pytest.raises(PlanError, match="does not end") as caught:
            whole()
        assert "INSERT" in str(caught.value)
    with pytest.raises(PlanError, match="does not end"):
        query.explain("analyze")


def test_show_stops_an_endless_query(capsys: pytest.CaptureFixture[str]) -> None:
    run = FakeRun(batch(1, 2), batch(3, 4), endless=True)
    make_query(run, bounded=False).show(3)
    out = capsys.readouterr().out
    assert "3 rows, and more that are not shown" in out
    assert run.closed


def test_errors_know_the_text() -> None:
    run = FakeRun(batch(1))
    run.error = RunError("overflow", position=Position(1, 8))
    query = make_query(run)
    with pytest.raises(RunError) as caught:
        query.to_arrow()
    assert caught.value.text == "SELECT a FROM s;"
    assert "       ^" in str(caught.value)
    assert query.status == "failed"
    assert query.exception is caught.value


def test_about_a_run_needs_a_run() -> None:
    query = make_query(FakeRun(batch(1)))
    for ask in (query.progress, query.metrics, query.late, query.bad_rows):
        with pytest.raises(RunError, match="has not run"):
            ask()
    query.to_arrow()
    assert query.metrics()[0]["rows_in"] == 10
    assert query.late().num_rows == 1
    assert query.bad_rows().num_rows == 1


def test_explain() -> None:
    query = make_query(FakeRun(batch(1)))
    plan = query.explain()
    assert plan == "plan: physical"
    assert repr(plan) == "plan: physical"
    assert query.explain("ANALYZE") == "plan: analyze"
    assert query.status == "finished"
    with pytest.raises(PlanError, match="no EXPLAIN mode"):
        query.explain("why")


def test_pyspark_spellings() -> None:
    query = make_query(lambda: FakeRun(batch(1)))
    assert query.toPandas().shape == (1, 1)
    assert query.toArrow() == query.to_arrow()
    assert query.awaitTermination()
    assert query.isActive is False
    assert not hasattr(query, "_finishInsert")


# --------------------------------------------------------------------------- INSERT


def test_insert_publishes_once_at_the_end() -> None:
    sink = FakeSink()
    query = make_query(FakeRun(batch(1, 2), batch(3)), sink)
    assert query.insert() is query
    assert sink.epochs == [[1, 2, 3]]
    assert query.row_count == 3
    assert query.to_arrow().to_pydict() == {"rows": [3]}  # the query does not run again
    assert sink.epochs == [[1, 2, 3]]
    assert query.summary().startswith("3 rows inserted into t")


def test_a_failed_insert_leaves_nothing() -> None:
    run, sink = FakeRun(batch(1)), FakeSink()
    run.error = RunError("overflow")
    query = make_query(run, sink)
    with pytest.raises(RunError, match="overflow"):
        query.insert()
    assert (sink.epochs, sink.aborted, query.row_count) == ([], 1, 0)


def test_an_insert_gives_no_rows() -> None:
    query = make_query(FakeRun(), FakeSink())
    with pytest.raises(RunError, match="gives no rows"):
        query.batches()


def test_a_select_cannot_start() -> None:
    with pytest.raises(RunError, match="no target"):
        make_query(FakeRun()).start()


def test_insert_in_the_background() -> None:
    sink = FakeSink()
    query = make_query(FakeRun(batch(1)), sink).start()
    assert query.await_termination(10)
    assert (query.status, sink.epochs) == ("finished", [[1]])


def test_a_stopped_bounded_insert_leaves_nothing() -> None:
    run, sink = FakeRun(batch(1), endless=True), FakeSink()
    query = make_query(run, sink).start()
    assert run.waiting.wait(60)
    assert not query.await_termination(0)
    assert query.stop()
    assert (query.status, sink.epochs, sink.aborted) == ("stopped", [], 1)


def test_an_unbounded_insert_publishes_while_nothing_comes() -> None:
    run, sink = FakeRun(batch(1), batch(2), endless=True), FakeSink()
    query = make_query(run, sink, bounded=False, epoch=0.001).start()
    assert sink.committed.wait(60)
    assert query.is_active
    assert query.stop()
    assert query.status == "stopped"
    assert [v for epoch in sink.epochs for v in epoch] == [1, 2]
    assert query.row_count == 2
    assert sink.aborted == 0


def test_an_unbounded_insert_publishes_what_it_has_when_stopped() -> None:
    run, sink = FakeRun(batch(1), endless=True), FakeSink()
    query = make_query(run, sink, bounded=False, epoch=3600).start()
    assert run.waiting.wait(60)
    assert query.stop()
    assert sink.epochs == [[1]]


def test_a_background_failure_is_handed_over() -> None:
    run, sink = FakeRun(batch(1)), FakeSink()
    run.error = RunError("boom")
    query = make_query(run, sink, bounded=False, epoch=3600).start()
    with pytest.raises(RunError, match="boom"):
        query.await_termination(10)
    assert query.status == "failed"
    assert isinstance(query.exception, CqlError)
    assert sink.aborted == 1


def test_a_sink_that_fails_at_an_epoch_fails_the_query() -> None:
    class Broken(FakeSink):
        def commit(self) -> int:
            self.committed.set()
            raise RunError("disk full")

    run, sink = FakeRun(batch(1), endless=True), Broken()
    query = make_query(run, sink, bounded=False, epoch=0.001).start()
    assert sink.committed.wait(60)
    query.stop()
    with pytest.raises(RunError, match="disk full"):
        query.await_termination(10)


def test_stop_before_the_run_exists_is_not_lost() -> None:
    query = make_query(FakeRun())

    def start() -> FakeRun:
        query.stop(0)
        return run

    run = FakeRun(batch(1), batch(2), endless=True)
    query._new_run = start
    assert list(query.batches()) == [batch(1)]
    assert query.status == "stopped"


def test_an_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(RunError, match="polars is not installed") as caught:
        make_query(FakeRun(batch(1))).to_polars()
    assert "cql-streams[polars]" in str(caught.value)


def test_head_takes_no_more_than_it_needs() -> None:
    table, more = make_query(FakeRun(batch(1), batch(2)))._head(2)
    assert isinstance(table, pa.Table)
    assert (table.num_rows, more) == (2, False)
