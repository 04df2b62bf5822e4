"""Settings of the ordered runtime's schedulers and reorder buffers: each setting changes the run,
and EXPLAIN shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import SettingError
from cql.executor.kernels.ordered import tables
from cql.executor.run.execution import Execution
from cql.executor.runtimes.tables import Tasks

ROWS, MORSEL = 20_000, 64
TEXT = (
    "SELECT k, count(*) AS n, max(v) AS m, window_end FROM (SELECT * FROM a WHERE v > 2) AS f"
    " [RANGE 100 SLIDE 100] GROUP BY k"
)
#: One worker that chooses a task after each morsel: its choice depends only on waiting morsels.
BASE = {"runtime": "ordered", "workers": 1, "fuse": "off", "morsel_rows": MORSEL, "slice_us": 1}


class Sizes:
    """An observer that notes the sizes of a run's reorder buffers, in slots."""

    found: tuple[int, ...] = ()

    def begun(self, made: Tasks) -> None:
        self.found = tuple(int(made.task(s)[tables.SIZE]) for s in range(len(made.order)))

    def ended(self, made: Tasks) -> None:
        pass


@pytest.fixture(scope="module")
def session() -> Iterator[cql.Session]:
    numbers = np.arange(ROWS)
    with cql.connect(spark=False) as made:
        table = pa.table({"ts": numbers, "k": numbers % 7, "v": numbers % 11})
        made.create_stream("a", table, ordered_by="ts", unit="seconds")
        yield made


def _set(session: cql.Session, settings: dict[str, Any]) -> None:
    session.sql("RESET")
    for name, value in {**BASE, **settings}.items():
        session.set(name, value)


def _run(session: cql.Session, settings: dict[str, Any]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The metrics by operator, with the average (``queue``) and maximal (``longest``) number of
    waiting morsels, and the sizes of the reorder buffers. Requires the rows of depth first."""
    _set(session, {"runtime": "depth_first"})
    expected = session.sql(TEXT).to_arrow()
    _set(session, settings)
    sizes = Sizes()
    execution = Execution(session.sql(TEXT)._plan, session.settings, observer=sizes)
    execution.timed = True
    found = pa.Table.from_batches([batch for _, batch in execution.results()])
    assert found.to_pydict() == expected.to_pydict()
    metrics = execution.queries[0].metrics()
    named = {str(entry["operator"]).partition("#")[0]: entry for entry in metrics}
    return named, sizes.found


@pytest.mark.auto_runtime
def test_lp_waits_for_as_many_inputs(session: cql.Session) -> None:
    one, _ = _run(session, {"scheduler": "lp", "lp_threshold": 1, "reorder_buffer": 16})
    many, _ = _run(session, {"scheduler": "lp", "lp_threshold": 8, "reorder_buffer": 16})
    for operator in ("aggregate", "project"):
        assert many[operator]["longest"] >= 8
        assert one[operator]["queue"] < 2 < many[operator]["queue"]


@pytest.mark.auto_runtime
def test_qst_lets_as_many_outputs_wait(session: cql.Session) -> None:
    few, _ = _run(session, {"scheduler": "qst", "qst_capacity": 1, "reorder_buffer": 16})
    many, _ = _run(session, {"scheduler": "qst", "qst_capacity": 1_000_000, "reorder_buffer": 16})
    for operator in ("aggregate", "project"):
        assert few[operator]["queue"] < 2
        assert many[operator]["longest"] == 16


@pytest.mark.auto_runtime
def test_ct_compares_over_its_window(session: cql.Session) -> None:
    """In a window that is always over no task has done any work, so CT takes the first schedulable
    task."""
    short, _ = _run(session, {"ct_window_us": 1, "reorder_buffer": 16})
    long, _ = _run(session, {"ct_window_us": 1_000_000_000, "reorder_buffer": 16})
    assert short["project"]["queue"] > 2 * long["project"]["queue"]
    assert short["project"]["longest"] == 16


@pytest.mark.parametrize(("asked", "size"), [(0, 4), (1, 1), (2, 2), (5, 8), (256, 256)])
def test_buffers_have_the_size_that_is_asked_for(
    session: cql.Session, asked: int, size: int
) -> None:
    """A buffer has the requested size, rounded up to a power of two, and no more inputs wait at an
    operator. A serial operator has room for at least two inputs."""
    settings = {"scheduler": "qst", "qst_capacity": 1_000_000, "reorder_buffer": asked}
    named, sizes = _run(session, settings)
    assert set(sizes) <= {size, max(size, 2)}
    assert max(named[operator]["longest"] for operator in ("aggregate", "project")) <= max(size, 2)
    if 1 < size < 16:
        assert named["aggregate"]["longest"] == size


@pytest.mark.parametrize("scheduler", ["ct", "lp", "qst", "et"])
def test_more_workers_than_the_buffer_has_room_for(session: cql.Session, scheduler: str) -> None:
    settings = {"workers": 3, "partitions": 4, "reorder_buffer": 1, "scheduler": scheduler}
    _run(session, {**settings, "lp_threshold": 7, "qst_capacity": 1, "ct_window_us": 1})


@pytest.mark.auto_runtime
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {},
            "ct over windows of 100 µs, slices of 1 µs; non-blocking reorder buffers of 4 inputs",
        ),
        ({"slice_us": 2_000}, "ct over windows of 200 ms, slices of 2 ms; "),
        ({"ct_window_us": 3_000_000}, "ct over windows of 3 s, "),
        ({"scheduler": "ct_printed", "ct_window_us": 70}, "ct_printed over windows of 70 µs, "),
        ({"scheduler": "lp"}, "lp from 1 input on, "),
        ({"scheduler": "lp", "lp_threshold": 9}, "lp from 9 inputs on, "),
        ({"scheduler": "qst", "qst_capacity": 5_000}, "qst with a capacity of 5,000, "),
        ({"scheduler": "et", "reorder": "lock_based"}, "et, slices of 1 µs; lock-based reorder "),
        ({"reorder_buffer": 5}, "reorder buffers of 8 inputs"),
        ({"partitions": 3, "worklist": "shared"}, "; shared worklists; "),
    ],
)
def test_explain_tells_the_scheduler(
    session: cql.Session, settings: dict[str, Any], line: str
) -> None:
    _set(session, settings)
    query = session.sql(TEXT)
    told = [text for text in query.explain().splitlines() if text.startswith("scheduler: ")]
    assert len(told) == 1
    assert line in told[0]
    assert told[0] in query.explain("analyze")


@pytest.mark.parametrize("runtime", ["depth_first", "fifo", "run_to_completion", "fifo_slice"])
def test_other_runtimes_have_slices_at_most(session: cql.Session, runtime: str) -> None:
    _set(session, {"runtime": runtime, "workers": 0, "slice_us": 7})
    told = [t for t in session.sql(TEXT).explain().splitlines() if t.startswith("scheduler: ")]
    assert told == (["scheduler: slices of 7 µs"] if runtime == "fifo_slice" else [])


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("lp_threshold", 0, "1 to 1,000,000"),
        ("qst_capacity", 0, "1 to 1,000,000,000"),
        ("ct_window_us", -1, "0 to 1,000,000,000"),
        ("reorder_buffer", 257, "0 to 256"),
    ],
)
def test_ranges(session: cql.Session, name: str, value: int, takes: str) -> None:
    with pytest.raises(SettingError) as raised:
        session.set(name, value)
    assert takes in f"{raised.value}"
