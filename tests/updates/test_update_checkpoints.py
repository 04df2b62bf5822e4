"""Runs over update streams that stop and continue from a checkpoint: rows wait in the queue."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cql
from cql.errors import NotSupportedError
from cql.executor.run.execution import Execution
from cql.executor.state.checkpoint import Checkpoint, from_ipc, to_ipc
from cql.planner.placement.multi_query import plan_query_set
from tests.support.paths import ROOT
from tests.support.run_checkpoints import plan_of, run, stop_and_continue, until_checkpoint
from tests.support.updates.arrivals import QUEUES, Arrival, UpdateCase, update_session

#: Two or three rows of keys a to e in each arrival; the query takes two and falls behind.
ARRIVALS = tuple(
    Arrival(
        100,
        tuple((2 * n + r, n % 3, "abcde"[(2 * n + r * r) % 5], n, 0.5) for r in range(2 + n % 2)),
    )
    for n in range(40)
)
ROWS = "SELECT t, s, upper(s) AS h, v FROM u"
WINDOWS = "SELECT s, count(*) AS n, sum(v) AS v, window_end FROM u [RANGE 8 SLIDE 4] GROUP BY s"


def case_of(clauses: str, text: str, arrivals: Sequence[Arrival] = ARRIVALS) -> UpdateCase:
    return UpdateCase("case", text, f"ORDERED BY t {clauses}", arrivals, (2, 300), {})


CASES = {
    **{queue: (f"UPDATE KEY (s) QUEUE {queue}", ROWS) for queue in QUEUES},
    "no key": ("QUEUE IN-PLACE", ROWS),
    "two columns": ("UPDATE KEY (s, k)", ROWS),
    **{
        f"REFRESH {queue}": (
            f"UPDATE KEY (s) QUEUE {queue} REFRESH s IN ('a', 'b') EVERY 2 microseconds,"
            " s > 'c' EVERY 700 microseconds",
            ROWS,
        )
        for queue in ("FIFO", "IN-PLACE", "LINECUTTING")
    },
    "LIMIT": ("UPDATE KEY (s)", f"{ROWS} LIMIT 30"),
    "LAZY": ("UPDATE KEY (s) WINDOWS LAZY", WINDOWS),
    "EAGER": ("UPDATE KEY (s) WINDOWS EAGER", WINDOWS),
    "LAZY FIFO": ("UPDATE KEY (s) QUEUE FIFO WINDOWS LAZY", WINDOWS),
    "EAGER LINECUTTING": ("UPDATE KEY (s) QUEUE LINECUTTING WINDOWS EAGER", WINDOWS),
}


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_each_stop(case: str) -> None:
    """The rows, the staleness and all other counts are those of a run without a stop."""
    with update_session(case_of(*CASES[case])) as session:
        plan = plan_of(session, CASES[case][1])
        whole = run(plan, session.settings)
        for stop in range(0, whole.morsels, 7):
            before = run(plan, session.settings, stop=stop)
            assert before.saved is not None
            after = run(plan, session.settings, from_ipc(to_ipc(before.saved)))
            assert after.behind(before).rows == whole.rows, stop
            assert after.ledgers == whole.ledgers, stop


@pytest.mark.parametrize("case", ["IN-PLACE", "LAZY"])
def test_rows_wait_at_the_checkpoint(case: str) -> None:
    """Rows are counted once, and those of IN-PLACE are superseded, held or out in both parts. Their
    staleness goes on: the last of them is the stalest."""
    arrivals = (ARRIVALS[0], replace(ARRIVALS[1], rows=[r for a in ARRIVALS for r in a.rows]))
    with update_session(case_of(*CASES[case], arrivals)) as session:
        plan = plan_of(session, CASES[case][1])
        parts = [run(plan, session.settings, stop=2)]
        assert parts[0].saved is not None
        parts.append(run(plan, session.settings, from_ipc(to_ipc(parts[0].saved))))
        counts: list[dict[str, Any]] = [
            next(c for n, c in part.ledgers[0].items() if n.endswith(" u")) for part in parts
        ]
    assert counts[0]["held"] > 0
    assert counts[1]["held"] == 0
    assert counts[1]["superseded"] >= counts[0]["superseded"] > 0
    if case == "IN-PLACE":
        for one in counts:
            assert one["rows_in"] == one["rows_out"] + one["superseded"] + one["held"]
        assert counts[1]["rows_in"] == sum(len(a.rows) for a in arrivals)
        assert counts[1]["staleness"] > counts[0]["staleness"] > 0


def test_rows_rest_at_the_checkpoint() -> None:
    """Keys that are not due when a run stops are due in the next one after the time left."""
    with update_session(case_of(*CASES["REFRESH IN-PLACE"])) as session:
        plan = plan_of(session, ROWS)
        whole = run(plan, session.settings)
        before = run(plan, session.settings, stop=whole.morsels - 3)
        assert before.saved is not None
        after = run(plan, session.settings, from_ipc(to_ipc(before.saved)))
    counts: list[dict[str, Any]] = [
        next(c for n, c in part.ledgers[0].items() if n.endswith(" u")) for part in (before, after)
    ]
    assert counts[0]["held"] >= counts[0]["resting"] > 0
    assert (counts[1]["held"], counts[1]["resting"]) == (0, 0)
    for one in counts:
        assert one["rows_in"] == one["rows_out"] + one["superseded"] + one["held"]
    assert after.behind(before).rows == whole.rows


def test_a_burst_of_several_morsels_is_let_through() -> None:
    """A checkpoint that is due inside a burst waits for its end."""
    case = replace(case_of(*CASES["LAZY"]), burst=(16, 300), settings={"morsel_rows": 2})
    with update_session(case) as session:
        plan = plan_of(session, case.text)
        whole = run(plan, session.settings)
        later = 0
        for stop in range(whole.morsels):
            before = run(plan, session.settings, stop=stop)
            later += before.morsels > stop
            if before.saved is not None:
                after = run(plan, session.settings, from_ipc(to_ipc(before.saved)))
                assert after.behind(before).rows == whole.rows, stop
                assert after.ledgers == whole.ledgers, stop
        assert later > 0


@pytest.mark.parametrize("clauses", ["UPDATE KEY (s)", "UPDATE KEY (s, k)"])
def test_a_query_set(clauses: str) -> None:
    """Each query gives what it gives alone, over a queue of its own or over one that another query
    has, too."""
    group = "s, k" if "k)" in clauses else "s"
    windows = WINDOWS.replace("GROUP BY s", f"GROUP BY {group}")
    more = windows.replace("sum(v) AS v", "max(v) AS v"), windows.replace("sum(v) AS v", "1 AS v")
    with update_session(case_of(clauses, "")) as session:
        plans = [plan_of(session, text) for text in (windows, ROWS, *more, "SELECT v, s FROM u")]
        alone = [run(plan, session.settings).rows[0] for plan in plans]
        together = plan_query_set(plans, session.settings, panes=True)
        whole = run(together, session.settings)
        assert whole.rows == alone
        for stop in range(0, whole.morsels, 50):
            before = run(together, session.settings, stop=stop)
            assert before.saved is not None
            after = run(together, session.settings, from_ipc(to_ipc(before.saved)))
            assert after.behind(before).rows == alone, stop


def test_only_bad_rows_come_first() -> None:
    rows = [(None, 1, "a", 1, 0.0)], [(1, 1, "a", 1, 0.0)]
    with update_session(case_of(*CASES["LAZY"], [Arrival(1, r) for r in rows])) as session:
        plan = plan_of(session, WINDOWS)
        assert len(run(plan, session.settings).rows[0]) == 1
        assert stop_and_continue(plan, session.settings, random.Random(1)) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("case", ["LINECUTTING", "REFRESH IN-PLACE", "EAGER"])
def test_in_a_new_process(case: str, tmp_path: Path) -> None:
    """Its clock has another base, and its dictionary has other codes."""
    with update_session(case_of(*CASES[case])) as session:
        plan = plan_of(session, CASES[case][1])
        whole = run(plan, session.settings)
        before = run(plan, session.settings, stop=whole.morsels // 2)
    assert before.saved is not None
    (tmp_path / "run.arrow").write_bytes(to_ipc(before.saved))
    subprocess.run(
        [sys.executable, "-m", "tests.updates.test_update_checkpoints", case, str(tmp_path)],
        cwd=ROOT,
        check=True,
        env=os.environ,
    )
    rows, ledgers = ast.literal_eval((tmp_path / "rest").read_text("utf-8"))
    assert [[*a, *b] for a, b in zip(before.rows, rows, strict=True)] == whole.rows
    assert ledgers == whole.ledgers


def continue_elsewhere(case: str, folder: str) -> None:
    with update_session(case_of(*CASES[case])) as session:
        saved = from_ipc(Path(folder, "run.arrow").read_bytes())
        ran = run(plan_of(session, CASES[case][1]), session.settings, saved)
    Path(folder, "rest").write_text(repr((ran.rows, ran.ledgers)), "utf-8")


# -- sources ---------------------------------------------------------------------------------------


def test_followed_files(tmp_path: Path) -> None:
    """With the clock of the machine: the newest rows of all keys come, each once."""
    path, found = tmp_path / "s.csv", list[Any]()
    saved: Checkpoint | None = None
    lines = [f"{n},{n % 7},n{n}" for n in range(200)]
    for count, stop in ((120, 2), (200, None)):
        path.write_text("\n".join(["ts,k,name", *lines[:count], ""]), "utf-8")
        with cql.connect(False) as session:
            session.sql(
                "CREATE STREAM s (ts BIGINT, k INT, name STRING) USING csv"
                f" OPTIONS (path '{path}', follow 'true', poll '5 ms') ORDERED BY ts"
                " UPDATE KEY (k)"
            )
            plan = plan_of(session, "SELECT ts, k, name FROM s")
            made = Execution(plan, session.settings, resume=saved)
            rows, saved = until_checkpoint(made, stop, partial(_is_through, made, len(lines)))
            found += rows
            told = made.queries[0].metrics()[0]
    assert {row["k"]: row["name"] for row in found} == {n % 7: f"n{n}" for n in range(200)}
    assert len({row["ts"] for row in found}) == len(found)
    assert told["rows_in"] == 200
    assert told["rows_in"] == told["rows_out"] + told["superseded"]
    assert told["rows_out"] == len(found)


def _is_through(made: Execution, rows: int) -> bool:
    """Whether this many rows have come, and none waits."""
    told = made.queries[0].metrics()
    return bool(told) and told[0]["rows_in"] == rows and told[0]["held"] == 0


def test_pushed_rows_cannot_be_read_again() -> None:
    with cql.connect(False) as session:
        session.sql("CREATE STREAM s (ts BIGINT, k INT) ORDERED BY ts UPDATE KEY (k)")
        plan = plan_of(session, "SELECT ts, k FROM s")
        with pytest.raises(NotSupportedError, match="the rows of s cannot be read again"):
            run(plan, session.settings, stop=0)


if __name__ == "__main__":
    continue_elsewhere(*sys.argv[1:])
