"""Operators as scripts: rows and punctuations go in, a transcript of both comes out. Each operator
is ``Checked``, alone and in whole plans under every runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    DONE,
    LATE_ROW_WORDS,
    LATE_ROWS,
    PUNCTUATIONS,
    ROWS,
    SERIAL,
)
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.joins import row_batch
from cql.planner.nodes.physical import FilterExec, Physical, sources
from tests.support.checked import Checked, ContractError, StreamCheck, check_graph
from tests.support.growing_streams import QUERIES, SETTINGS, stream
from tests.support.operator_tools import (
    Admissions,
    Recorder,
    admit_all,
    graph_of,
    plan_of,
    refresh,
    runtime_of,
    session_over,
    workspace_of,
)
from tests.support.python_operators import PythonOperator
from tests.support.script import END, Script

# -- filter, project -------------------------------------------------------------------------------


def test_filter() -> None:
    """Rows whose condition is not true are dropped; late rows stay marked at their new
    positions."""
    s = Script("SELECT * FROM a WHERE v > 10")
    s.push("1 x 11 \n 2 x 10 \n 3 y - \n 4 - 12").expect("row 1 x 11 \n row 4 - 12")
    s.punctuate(4).expect("punct ts 4")
    s.push("9 a 1 \n 3 b 20 \n 4 c 20 \n 2 d 20").expect("late 3 b 20 \n row 4 c 20 \n late 2 d 20")
    s.push("9 a 1").expect("")
    s.end().expect("end")


def test_a_filter_that_passes_nothing_passes_promises() -> None:
    s = Script("SELECT * FROM a WHERE v > 100")
    s.push("1 x 1 \n 2 y 2").punctuate(2).end().expect("punct ts 2 \n end")


def test_project_maps_promises_of_monotone_columns() -> None:
    s = Script("SELECT ts + 5 AS later, -ts AS gone, ts DIV 10 AS ten, k FROM a")
    s.push("12 x 1").punctuate(17)
    s.expect("row 17 -12 1 x \n punct later 22 \n punct ten 1")
    s.punctuate(19).expect("punct later 24 \n punct ten 1")
    s.push("3 y 2").expect("late 8 -3 0 y").end().expect("end")


def test_project_without_the_column_of_its_watermark_has_none() -> None:
    Script("SELECT v FROM a").push("1 x 7").punctuate(9).end().expect("row 7 \n end")


def test_a_failing_row_is_left_out_and_its_neighbours_pass() -> None:
    """Columns that pass by reference stay aligned with the rows that remain."""
    s = Script("SELECT ts, k, 10 / v AS q FROM a")
    s.push("1 a 0 \n 2 b 5 \n 3 c 0 \n 4 d 0 \n 5 e 2 \n 6 f 0").end()
    s.expect("""
        bad project#0 0 division by zero in 10 / v
        row 2 b 2
        bad project#0 2 division by zero in 10 / v
        bad project#0 3 division by zero in 10 / v
        row 5 e 5
        bad project#0 5 division by zero in 10 / v
        end""")


def test_a_table_asked_for_in_mid_morsel() -> None:
    """From the third row on, the second stage meets text codes that the first stage computed."""
    s = Script("""SELECT ts, k, CASE WHEN v > 2 THEN s LIKE '%3' END AS m
                  FROM (SELECT ts, k, v, concat(k, CAST(v AS STRING)) AS s FROM a) AS q""")
    s.push("1 a 1 \n 2 b 2 \n 3 c 3 \n 4 d 4 \n 5 e 13").end()
    s.expect("row 1 a - \n row 2 b - \n row 3 c 1 \n row 4 d 0 \n row 5 e 1 \n end")


def test_every_copy_of_a_column_with_a_watermark_carries_late_rows() -> None:
    """A full morsel has room for three late-row records per row."""
    s = Script("SELECT ts, ts + 1 AS t1, ts + 2 AS t2 FROM a", 4).punctuate(50)
    s.expect("punct ts 50 \n punct t1 51 \n punct t2 52")
    s.push("1 x 1 \n 2 x 1 \n 3 x 1 \n 4 x 1")
    s.expect("late 1 2 3 \n late 2 3 4 \n late 3 4 5 \n late 4 5 6")
    room = s.graph.morsels[-1].late_rows
    assert room is not None
    assert room.size >= 4 * 3 * LATE_ROW_WORDS


# -- bucket ----------------------------------------------------------------------------------------

HOPPING = """SELECT ts, window_start, window_end FROM TABLE(
    HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)) AS h"""


@pytest.mark.parametrize("morsel_rows", [2, 8])
def test_bucket_gives_each_row_per_window(morsel_rows: int) -> None:
    """Windows before the origin count, too; output beyond a morsel's room comes in several
    morsels."""
    s = Script(HOPPING, morsel_rows)
    s.push("3 x 1 \n 5 x 1").punctuate(7)
    s.expect("""
        row 3 -10 5
        row 3 -5 10
        row 3 0 15
        row 5 -5 10
        row 5 0 15
        row 5 5 20
        punct ts 7
        punct window_start -5
        punct window_end 10""")
    s.push("4 z 1").expect("late 4 -10 5 \n late 4 -5 10 \n late 4 0 15").end().expect("end")


# -- windowed aggregate ----------------------------------------------------------------------------


def test_tumbling_windows_close_by_promise() -> None:
    s = Script("SELECT k, count(*) AS n, window_end FROM a [RANGE 10 SLIDE 10 WA ts] GROUP BY k")
    s.push("1 x 1 \n 12 y 1 \n 2 - 1 \n 9 x 1").expect("")
    s.punctuate(9).expect("punct window_end 10")
    s.push("9 y 1").punctuate(10)
    s.expect("row x 2 10 \n row - 1 10 \n row y 1 10 \n punct window_end 20")
    s.punctuate(50).expect("row y 1 20 \n punct window_end 60")
    s.push("57 z 1").end().expect("row z 1 60 \n end")


def test_sliding_windows_leave_out_late_pairs_only() -> None:
    """A late row counts in those of its three windows whose end its row watermark has not
    reached."""
    s = Script(
        "SELECT count(*) AS n, window_end FROM a [RANGE 15 SLIDE 5 WA ts] GROUP BY window_end"
    )
    s.push("20 x 1").punctuate(27).expect("row 1 25 \n punct window_end 30")
    s.push("16 x 1 \n 28 x 1").expect("")
    assert s.operators[0].counters()["late_pairs"] == 2
    s.end().expect("row 3 30 \n row 2 35 \n row 1 40 \n end")


def test_windows_before_the_origin() -> None:
    s = Script("SELECT sum(v) AS v, window_start FROM a [RANGE 10 SLIDE 10 WA ts] GROUP BY 2")
    s.push("-1 x 1 \n -10 x 2 \n -11 x 3 \n 0 x 4").end()
    s.expect("row 3 -20 \n row 3 -10 \n row 4 0 \n end")


def test_a_null_event_time_is_a_bad_row() -> None:
    s = Script("SELECT count(*) AS n, window_end FROM a [RANGE 10 SLIDE 10 WA ts] GROUP BY 2")
    s.push("1 x 1 \n - x 1 \n 2 x 1").end()
    s.expect("bad aggregate#0 1 the event time ts is NULL \n row 2 10 \n end")


def test_results_longer_than_a_morsel() -> None:
    """The punctuation comes with the last rows, not before."""
    s = Script("SELECT k, count(*) AS n, window_end FROM a [RANGE 9 SLIDE 9 WA ts] GROUP BY k", 2)
    s.push("1 a 1 \n 2 b 1").push("3 c 1 \n 4 d 1").push("5 e 1 \n 10 f 1").punctuate(9)
    rows = [f"row {k} 1 9" for k in "abcde"]
    s.expect("\n".join([*rows, "punct window_end 18"])).end().expect("row f 1 18 \n end")


def test_order_sensitive_aggregates_follow_event_time() -> None:
    s = Script(
        "SELECT first(v) AS f, last(v) AS l, window_end FROM a [RANGE 9 SLIDE 9 WA ts] GROUP BY 3"
    )
    s.push("5 x 1 \n 3 x 2 \n 3 x 3 \n 5 x 4").end().expect("row 2 4 9 \n end")


def test_count_distinct() -> None:
    s = Script(
        "SELECT count(DISTINCT k) AS n, window_end FROM a [RANGE 9 SLIDE 9 WA ts] GROUP BY 2"
    )
    s.push("1 x 1 \n 2 y 1 \n 3 x 1 \n 4 - 1").end().expect("row 2 9 \n end")


def test_extremes_of_text_that_another_operator_computes() -> None:
    """The computed texts have newer codes than the ranks that the aggregate started with."""
    s = Script("""SELECT min(s) AS low, max(s) AS high, window_end FROM (
        SELECT ts, concat(k, CAST(v AS STRING)) AS s FROM a) AS q [RANGE 9 SLIDE 9 WA ts]
        GROUP BY window_end""")
    s.push("1 b 2 \n 2 a 30 \n 3 - 1").push("4 c 1 \n 5 a 4").end().expect("row a30 c1 9 \n end")


def test_having_and_an_aggregate_over_an_aggregate() -> None:
    s = Script("""SELECT max(n) AS n, window_end FROM (
        SELECT k, count(*) AS n, window_time FROM a [RANGE 5 SLIDE 5 WA ts] GROUP BY k
        HAVING count(*) > 1) AS w [RANGE 10 SLIDE 10 WA window_time] GROUP BY 2""")
    s.push("1 x 1 \n 2 x 1 \n 3 y 1 \n 6 z 1 \n 7 z 1 \n 8 z 1").punctuate(10)
    s.expect("row 3 10 \n punct window_end 20").end().expect("end")


def test_an_aggregate_without_window_waits_for_the_end() -> None:
    s = Script("SELECT count(*) AS n, sum(v) AS v FROM a")
    s.punctuate(10).expect("").end().expect("row 0 - \n end")
    s = Script("SELECT k, count(*) AS n FROM a GROUP BY k")
    s.push("1 x 1 \n 2 y 1 \n 3 x 1").end().expect("row x 2 \n row y 1 \n end")


# -- union, sort -----------------------------------------------------------------------------------

UNION = "SELECT ts, k FROM a UNION ALL SELECT ts, k FROM b"


def test_union_promises_the_least() -> None:
    s = Script(UNION)
    s.push("5 x 1").push("3 y 1", "b").punctuate(5).expect("row 5 x \n row 3 y")
    s.punctuate(3, "b").expect("punct ts 3").punctuate(8, "b").expect("punct ts 5")
    s.end("b").expect("").punctuate(9).expect("punct ts 9").push("8 z 1").expect("late 8 z")
    s.end("a").expect("end")


SORTED = """SELECT k, count(*) AS n, window_end FROM a [RANGE 10 SLIDE 10 WA ts] GROUP BY k
            ORDER BY n DESC, k"""


def test_sort_within_each_window() -> None:
    s = Script(f"{SORTED} LIMIT 9")
    s.push("1 b 1 \n 2 a 1 \n 3 - 1 \n 4 c 1 \n 5 c 1 \n 11 z 1").punctuate(10)
    s.expect("""
        row c 2 10
        row - 1 10
        row a 1 10
        row b 1 10
        punct window_end 20""")
    s.end().expect("row z 1 20 \n end")


def test_limit_and_offset_hold_for_each_window() -> None:
    s = Script(f"{SORTED} LIMIT 1 OFFSET 1")
    s.push("1 b 1 \n 2 a 1 \n 3 a 1 \n 4 c 1 \n 11 z 1 \n 12 y 1 \n 21 x 1").end()
    s.expect("row b 1 10 \n row z 1 20 \n end")


def test_sort_of_the_whole_input() -> None:
    """No punctuation comes before the end; output beyond a morsel's room comes in several
    morsels."""
    s = Script("SELECT k, v FROM a ORDER BY v DESC NULLS LAST, k", 2)
    s.push("1 a 3 \n 2 b -").push("3 c 9 \n 4 d 3").punctuate(9).expect("").end()
    s.expect("row c 9 \n row a 3 \n row d 3 \n row b - \n end")


# -- whole plans, checked at every operator --------------------------------------------------------


PROGRESS = {
    "late output": "SELECT k, count(*) AS n, window_end FROM a [RANGE 20 SLIDE 5 WA ts] WHERE v > 0"
    " GROUP BY k LATE OUTPUT INTO l",
    "relation": "SELECT k, count(*) AS n FROM a [RANGE 20 WA ts] WHERE v > 0 GROUP BY k",
    "each row once": "SELECT k, v FROM a [RANGE 20 WA ts] WHERE v > 0",
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("morsel_rows", [1, 7, 256])
@pytest.mark.parametrize("query", [*QUERIES, *PROGRESS])
def test_every_operator_keeps_the_contract(
    query: str, morsel_rows: int, seed: int, full: bool
) -> None:
    tables = {name: stream(seed + i) for i, name in enumerate("ab")}
    if not full:
        tables = {name: table.slice(0, 200) for name, table in tables.items()}
    session = session_over(tables, slack=5, settings=SETTINGS.get(query))
    root = plan_of(session, {**QUERIES, **PROGRESS}[query]).root
    answers = []
    for name in ("depth_first", "fifo", "run_to_completion"):
        rows, operators = run_checked(root, morsel_rows, name, seed)
        answers.append(rows)
        for operator in operators:
            operator.conserve()
            assert operator.given.ended
    assert answers[0] == answers[1] == answers[2]


def run_checked(
    root: Physical, morsel_rows: int, name: str, seed: int
) -> tuple[list[tuple[Any, ...]], list[Checked]]:
    workspace = workspace_of(morsel_rows)
    graph = graph_of(root, workspace)
    admissions = Admissions.of(root, workspace, seed)
    refresh(graph)
    operators = check_graph(graph, root)
    feeds = [StreamCheck(s.name, s.schema, s.progressing) for s in sources(root)]
    for source, morsel in admissions.morsels:
        morsel.words[CAPACITY] = morsel_rows
        feeds[source].see(morsel)
    recorder = Recorder(root.schema, workspace.dictionary)
    admit_all(runtime_of(name, graph, recorder, workspace), graph, admissions.morsels)
    return recorder.rows, operators


# -- the checks themselves -------------------------------------------------------------------------


class Liar(PythonOperator):
    """Outputs the rows and punctuation that a test sets, whatever the input."""

    def __init__(self) -> None:
        super().__init__("liar")
        self.rows: list[int] = []
        self.punctuations: list[tuple[int, int]] = []
        self.serial = 0
        self.mask = 1
        self.late: list[tuple[int, int, int]] = []

    def call(self, morsel: Morsel, out: Morsel) -> int:
        assert out.late_rows is not None
        data, valid = out.data[0], out.masks[0]
        assert data is not None
        assert valid is not None
        data[: len(self.rows)], valid[: len(self.rows)] = self.rows, self.mask
        out.words[ROWS], out.words[SERIAL] = len(self.rows), self.serial
        out.words[PUNCTUATIONS], out.words[LATE_ROWS] = len(self.punctuations), len(self.late)
        for k, punctuation in enumerate(self.punctuations):
            out.punctuations[4 * k : 4 * k + 3] = *punctuation, -1
        for k, record in enumerate(self.late):
            out.late_rows[3 * k : 3 * k + 3] = record
        self.punctuations = []
        return DONE


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "row below": ({"rows": [9, 10]}, "after the promise of 10"),
    "falling promise": ({"punctuations": [(0, 9)]}, "falls to 9"),
    "unknown attribute": ({"punctuations": [(1, 20)]}, "a promise on column 1"),
    "serial": ({"serial": -1}, "goes back"),
    "mask": ({"rows": [10], "mask": 2}, "not 0/1"),
    "late row on no row": ({"late": [(3, 0, 10)]}, "late row 3 of 0"),
    "punctual late row": ({"rows": [11], "late": [(0, 0, 10)]}, "not below its row watermark"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_noticed(lie: str) -> None:
    changes, message = LIES[lie]
    liar, checked, morsel = _liar()
    liar.punctuations = [(0, 10)]
    checked.call(morsel, morsel)
    for name, value in changes.items():
        setattr(liar, name, value)
    with pytest.raises(ContractError, match=message):
        checked.call(morsel, morsel)


def test_nothing_comes_after_the_end() -> None:
    liar, checked, morsel = _liar()
    liar.punctuations = [(END, 0)]
    checked.call(morsel, morsel)
    liar.rows = [99]
    with pytest.raises(ContractError, match="after the end"):
        checked.call(morsel, morsel)


def test_a_late_row_may_come_below_the_promise() -> None:
    liar, checked, morsel = _liar()
    liar.punctuations = [(0, 10)]
    checked.call(morsel, morsel)
    liar.rows, liar.late = [9, 10], [(0, 0, 10)]
    assert checked.call(morsel, morsel) == DONE


def test_rows_that_vanish_are_missed() -> None:
    s = Script("SELECT * FROM a WHERE v > 1")
    s.push("1 x 1 \n 2 x 2")
    s.operators[0].inner.descriptor[:] += 1  # every counter
    with pytest.raises(ContractError, match="accounted for"):
        s.end()


def _liar() -> tuple[Liar, Checked, Morsel]:
    session = session_over({"a": stream(0).select(["ts"])})
    root = plan_of(session, "SELECT ts FROM a WHERE ts > 0").root
    node = root if isinstance(root, FilterExec) else next(iter(root.inputs))
    assert isinstance(node, FilterExec)
    liar = Liar()
    schema = Schema((Field("ts", BIGINT),))
    morsel = Morsel.allocate(schema, 8, ones=0, late_rows=True, masks=True)
    return liar, Checked(liar, node), morsel


def test_rows_that_wait_are_copied_few_times() -> None:
    copied = [0]

    def join(parts: Sequence[Any]) -> Any:
        copied[0] += sum(map(row_batch.count, parts))
        return row_batch.joined(parts)

    n, parts = 1 << 12, []
    for k in range(n):
        row_batch.append_part(parts, {"c0": np.array([k])}, join)
    assert row_batch.joined(parts)["c0"].tolist() == list(range(n))
    assert copied[0] < n * 13
