"""Physical plans travel as JSON (``cql.planner.nodes.plan_json``): the reader makes an equal plan,
which gives the same rows in another process."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import cql
from cql.errors import PlanError
from cql.planner.nodes.physical import Physical, PhysicalPlan
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.nodes.plan_hash import plan_hash
from cql.planner.nodes.plan_json import from_json, to_json
from cql.query.query import Query
from cql.session.session import CqlWarning, Session
from tests.support.fuzz.random_cases import make_case, open_session
from tests.support.fuzz.random_shapes import SHAPES
from tests.support.paths import ROOT
from tests.support.query_files import RUNNING, planned
from tests.support.run_checkpoints import run


def read(session: Session, text: str) -> Physical:
    return from_json(text, session._catalog, session._functions)


def travels(session: Session, query: Query) -> None:
    root = query._plan.root
    text = to_json(root)
    made = read(session, text)
    assert made == root
    assert plan_hash(made) == plan_hash(root)
    assert to_json(made) == text  # reasons, places and what the plan shares included
    assert list(map(type, NodeNumbers(made))) == list(map(type, NodeNumbers(root)))


@pytest.mark.parametrize("path", RUNNING, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_plan_makes_the_round_trip(path: Path) -> None:
    with cql.connect(spark=False) as session:
        travels(session, planned(session, path))


@pytest.mark.sampled
@pytest.mark.parametrize("first", range(0, SHAPES, 20))
def test_a_random_plan_makes_the_round_trip(first: int) -> None:
    for index in range(first, min(first + 20, SHAPES)):
        case = make_case(index, 0)
        with warnings.catch_warnings(), open_session(case) as session:
            warnings.simplefilter("ignore", CqlWarning)  # SLIDE larger than RANGE is intended
            query = session.sql(case.text, **case.params)
            assert isinstance(query, Query)
            travels(session, query)


ELSEWHERE = [p for p in RUNNING if p.stem != "insert_istream"][::4]


def rows_of(session: Session, plan: PhysicalPlan) -> list[list[str]]:
    return run(plan, session.settings).rows


def run_elsewhere(folder: str) -> None:
    """Reads the plans in ``folder`` and writes the rows that they give."""
    for number, path in enumerate(ELSEWHERE):
        with cql.connect(spark=False, runtime="depth_first") as session:
            here = planned(session, path)._plan
            root = read(session, Path(folder, f"{number}.json").read_text("utf-8"))
            assert root is not here.root
            rows = rows_of(session, replace(here, root=root))
        Path(folder, f"{number}.rows").write_text(json.dumps(rows), "utf-8")


@pytest.mark.slow
def test_a_plan_gives_the_same_rows_in_another_process(tmp_path: Path) -> None:
    wanted = []
    for number, path in enumerate(ELSEWHERE):
        with cql.connect(spark=False, runtime="depth_first") as session:
            plan = planned(session, path)._plan
            (tmp_path / f"{number}.json").write_text(to_json(plan.root), "utf-8")
            wanted.append(rows_of(session, plan))
    code = f"from {__name__} import run_elsewhere; run_elsewhere({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    for number, rows in enumerate(wanted):
        assert json.loads((tmp_path / f"{number}.rows").read_text("utf-8")) == rows
    assert sum(map(bool, (r for rows in wanted for r in rows))) > len(wanted) * 0.7


# -- what the reader refuses -----------------------------------------------------------------------

RATE = 2


def double(x: int) -> int:
    return x * RATE


def with_function(text: str = "SELECT double(k) AS d FROM s") -> tuple[Session, str]:
    session = cql.connect(spark=False)
    session.create_stream("s", [{"ts": 1, "k": 1}, {"ts": 2, "k": 2}], ordered_by="ts")
    session.register_functions([double])
    query = session.sql(text)
    assert isinstance(query, Query)
    return session, to_json(query._plan.root)


def test_a_missing_function_is_named() -> None:
    session, text = with_function()
    with pytest.raises(PlanError, match="the plan calls double, and there is no such function"):
        from_json(text, session._catalog, {})


def test_a_function_with_another_content_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The content includes constants that the function reads."""
    session, text = with_function()
    assert read(session, text)
    monkeypatch.setitem(double.__globals__, "RATE", 3)
    with pytest.raises(PlanError, match="the plan calls double, and the function of that name is"):
        read(session, text)


def test_the_content_of_equal_functions_is_equal() -> None:
    session, text = with_function()
    again, same = with_function()
    assert text == same
    assert read(again, text) == read(again, same)
    assert read(session, text) != read(again, text)  # two declarations are never equal


def test_a_limit_travels() -> None:
    session, _ = with_function()
    session.sql("SET function_timeout = '1 second'")
    query = session.sql("SELECT double(k) AS d FROM s")
    assert isinstance(query, Query)
    travels(session, query)


def test_a_missing_relation_is_named() -> None:
    session, text = with_function()
    session.sql("DROP STREAM s")
    with pytest.raises(PlanError, match="the plan reads s, and there is no such relation here"):
        read(session, text)


def test_another_declaration_is_refused() -> None:
    session, text = with_function()
    session.sql("DROP STREAM s")
    session.create_stream("s", [{"ts": 1, "k": 1}], ordered_by="ts", slack=5)
    with pytest.raises(PlanError, match="the plan reads s, and its stream is another one here"):
        read(session, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 2, "root": 1, "records": []}',
        '{"format": 1, "root": 1, "records": []}',
        '{"format": 1, "root": {"at": 0}, "records": []}',
        '{"format": 1, "root": {"at": 0}, "records": [{"is": "Popen", "args": ["ls"]}]}',
        '{"format": 1, "root": {"at": 0}, "records": [{"is": "ValuesExec", "no": 1}]}',
        '{"format": 1, "root": {"at": 0}, "records": [{"is": "FilterExec", "input": {"at": 0}}]}',
    ],
)
def test_another_text_is_no_plan(text: str) -> None:
    session, _ = with_function()
    with pytest.raises(PlanError, match=r"no plan|format 2"):
        read(session, text)
