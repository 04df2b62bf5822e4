"""Faults at random times leave no thread, memory or row behind, and the next run is complete."""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cql.errors import CatalogError, RunError
from cql.executor.runtimes.tables import Tasks
from cql.query.query import Query
from cql.session.session import Session
from tests.support.catalog_tools import blocks_of_eight
from tests.support.runtime_queries import WORKLISTS, interrupt, left_over, stream
from tests.support.runtimes import RUNTIMES, Settings, apply, named


class FaultError(Exception):
    pass


@pytest.mark.slow
@pytest.mark.usefixtures("interrupts", "stress")
def test_random_faults(seed: int, full: bool) -> None:
    """Functions, sources and sinks raise, and runs are abandoned, stopped, interrupted, paused or
    given other workers, at random times: no thread, memory or row stays, and the next run is
    complete."""
    rng, session = random.Random(seed), Session(False)
    session.set("morsel_rows", 7)
    faults: dict[str, int] = {}  # number of calls until each fault
    table = stream(seed, [0, 1, 2, 3])
    seen: Counter[str] = Counter()

    def due(what: str) -> bool:
        faults[what] = faults.get(what, -1) - 1
        return faults[what] == 0

    def doubtful(v: int) -> int:
        if due("function"):
            raise FaultError("function")
        if due("signal"):
            interrupt()
        return v + 1

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=60):
            if due("source"):
                raise FaultError("source")
            yield batch

    session.register_function("doubtful", doubtful, ["bigint"], "bigint")
    session.create_stream("s", rows, ordered_by="ts", unit="seconds", slack=5, bounded=False)
    session.set("on_bad_row", "fail")
    texts = (
        """SELECT k, count(*) AS n, sum(w) AS total, last(w) AS w, window_end FROM (
            SELECT ts, k, doubtful(v) AS w FROM s WHERE v > 10) AS f
        [RANGE 30 SLIDE 10 WA ts] GROUP BY k""",
        """SELECT ts, k, w FROM (SELECT ts, k, doubtful(v) AS w FROM s WHERE v > 10) AS f
        WHERE w > 3""",
    )
    expected = [whole(session, text) for text in texts]
    session.set("runtime", "ordered")
    kinds = ("function", "signal", "source", "left", "stop", "sink", "none")
    runs, early = 2000 if full else 60, 0
    for k in range(runs):
        if k == runs // 4:
            early = resident() if full else 0
        session.set("workers", rng.choice((1, 2, 3, 5)))
        session.set("partitions", rng.choice((0, 3)))
        session.set("worklist", rng.choice(WORKLISTS))
        which, kind = rng.randrange(2), kinds[k % len(kinds)]
        faults.clear()
        if kind in ("function", "signal", "source"):
            faults[kind] = rng.randrange(1, 8 if kind == "source" else 400)
        told, ending, query = "", rng.randrange(8), session.sql(texts[which])
        batches, taken = query.batches(), []
        try:
            for n, batch in enumerate(batches):
                taken.append(batch)
                if kind == "sink" and n == ending:
                    raise FaultError("sink")
                if kind == "left" and n == ending:
                    break
                if kind == "stop" and n == ending:
                    query.stop(0)
                if rng.random() < 0.2 and query.is_active:
                    query.workers = rng.choice((0, 1, 2, 4))
                if rng.random() < 0.1 and query.is_active:
                    query.pause().resume()
        except (FaultError, RunError, CatalogError, KeyboardInterrupt) as error:
            seen[type(error).__name__] += 1
            told = str(error)
        finally:
            batches.close()  # type: ignore[attr-defined]
        assert kind not in ("function", "source") or faults[kind] > 0 or told
        got = pa.Table.from_batches(taken, query.schema.to_arrow())
        assert got.equals(expected[which].slice(0, got.num_rows)), kind
        assert kind in told or kind in ("signal", "function") or not told
        assert kind != "none" or got.num_rows == expected[which].num_rows
        assert left_over() == []
        if k % 10 == 0:
            faults.clear()
            assert whole(session, texts[which]).equals(expected[which])
    gc.collect()
    assert tables() <= 3  # those of the latest runs, kept with their exceptions
    assert not full or resident() < early + (64 << 20)
    assert all(seen[name] > 1 for name in ("FaultError", "CatalogError", "KeyboardInterrupt")), seen


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["finished", "left"])
def test_a_run_that_is_over_is_let_go(ending: str) -> None:
    """The run is freed at once, not by the garbage collector, because its morsels may be large."""
    session = Session(False)
    session.set("runtime", "ordered")
    session.set("workers", 2)
    session.create_stream("s", stream(1, [0]), ordered_by="ts", unit="seconds", slack=5)
    gc.collect()
    gc.disable()
    try:
        batches = session.sql("SELECT ts, v FROM s").batches()
        if ending == "left":
            next(batches)
            batches.close()  # type: ignore[attr-defined]
        else:
            list(batches)
        assert tables() == 0
    finally:
        gc.enable()


def tables() -> int:
    """The number of runs whose tables, with their morsels, are kept."""
    return sum(type(found) is Tasks for found in gc.get_objects())  # isinstance would call proxies


def resident() -> int:
    """The resident memory of the process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def whole(session: Session, text: str) -> pa.Table:
    query = session.sql(text)
    return pa.Table.from_batches(query.batches(), query.schema.to_arrow())


def _collect(query: Query, found: list[int]) -> None:
    for batch in query.batches():
        found += batch["k"].to_pylist()


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "apart"])
@pytest.mark.parametrize("runtime", RUNTIMES, ids=named)
def test_results_before_a_failure_come_out(runtime: Settings, fuse: bool) -> None:
    """Also small ones, which are gathered; at most those of the failed row's own morsel lack."""
    keys = [i % 7 for i in range(1, 401) if i % 7 > 0]
    keys[250] = 0
    table = pa.table({"ts": pa.array(range(len(keys)), pa.timestamp("s")), "k": keys})
    with blocks_of_eight(), Session(False) as session:
        apply(session, runtime, {"fuse": fuse})
        session.create_stream("s", table, ordered_by="ts")
        query = session.sql("SELECT 60 / k AS q, k FROM s WHERE k <> 3")
        assert isinstance(query, Query)
        found = list[int]()
        with pytest.raises(RunError, match="division by zero"):
            _collect(query, found)
    before = [k for k in keys[:250] if k != 3]
    assert found == before[: len(found)]
    assert len(found) >= len([k for k in keys[:248] if k != 3])
