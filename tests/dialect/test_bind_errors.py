"""Statements that do not bind: the message, the position and the hint of the error."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cql.errors import BindError, CqlError, NotSupportedError, PlanError
from tests.support.bind_fixtures import world
from tests.support.refused_texts import BIND_CASES

W = world()


def refused(text: str, **parameters: object) -> CqlError:
    with pytest.raises(CqlError) as caught:
        W.bind(text.replace("^", ""), **parameters)
    error = caught.value
    assert error.position is not None, error
    assert isinstance(error, BindError | PlanError)
    return error


@pytest.mark.parametrize(
    ("text", "message", "hint"), BIND_CASES, ids=[c[0][:60] for c in BIND_CASES]
)
def test_refusals(text: str, message: str, hint: str) -> None:
    error = refused(text)
    assert message in error.message
    assert hint in (error.hint or "")
    assert error.position is not None


# Without UNION: there, the caret does not stand at the first word of the clause.
@pytest.mark.parametrize("text", [c[0] for c in BIND_CASES if "UNION" not in c[0]])
def test_the_caret_stands_at_the_fault(text: str) -> None:
    error = refused(text)
    assert (error.line, error.column) == (1, text.index("^") + 1)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM s GROUP BY ROLLUP(a)",
        "SELECT a FROM s QUALIFY row_number() OVER (ORDER BY a) = 1",
        "WITH RECURSIVE x AS (SELECT 1) SELECT * FROM x",
        "SELECT kurtosis(a) FROM s",
        "(SELECT a FROM s) WHERE a > 1",
        "SELECT * FROM s FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01'",
        "SELECT a FROM s WHERE (a, name) IN (SELECT a, name FROM s)",
        "SELECT s.a FROM s JOIN dim ON s.a IN (SELECT a FROM s)",
        "SELECT INTERVAL '1' MONTH",
    ],
)
def test_what_has_no_plan_is_not_supported(text: str) -> None:
    assert isinstance(refused(text), NotSupportedError)


def test_errors_inside_a_view_point_at_its_use() -> None:
    w = world().run("CREATE VIEW v AS SELECT a, name FROM s; CREATE VIEW w AS SELECT a FROM v")
    del w.catalog.relations[("s",)]
    with pytest.raises(BindError) as caught:
        w.bind("SELECT a\nFROM w")
    assert caught.value.message.startswith("in view w: there is no stream or table s")
    assert (caught.value.line, caught.value.column) == (2, 6)


def test_a_view_that_refers_to_itself() -> None:
    w = world().run("CREATE VIEW v AS SELECT a FROM s")
    with pytest.raises(BindError, match="refers to itself"):
        w.bind("CREATE OR REPLACE VIEW v AS SELECT a FROM v")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x + x AS b0, "
        + ", ".join(f"b{i} + b{i} AS b{i + 1}" for i in range(60))
        + " FROM s",
        "SELECT a FROM s WHERE " + "(" * 60 + "a > 1" + ") BETWEEN false AND true" * 60,
        "WITH c0 AS (SELECT x FROM s), "
        + ", ".join(f"c{i + 1} AS (SELECT a.x FROM c{i} a, c{i} b)" for i in range(30))
        + " SELECT x FROM c30",
        "WITH c0 AS (SELECT x FROM s), "
        + ", ".join(f"c{i + 1} AS (SELECT x FROM c{i})" for i in range(150))
        + " SELECT x FROM c150",
    ],
    ids=["aliases", "between", "doubling", "chain"],
)
def test_statements_that_explode_are_refused(text: str) -> None:
    assert isinstance(refused(text), PlanError)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("RANGE :d, SLIDE 1 s", "RANGE must be longer than zero"),
        ("RANGE 1 s, SLIDE :d", "SLIDE must be longer than zero"),
        ("RANGE :d", "RANGE must not be negative"),
    ],
)
def test_negative_lengths(window: str, message: str) -> None:
    error = refused(f"SELECT count(*) FROM s [{window}]", d=timedelta(seconds=-1))
    assert message in error.message


def test_a_parameter_without_a_sql_type() -> None:
    error = refused("SELECT :p", p=object())
    assert error.message.startswith("parameter :p: a value of type object")
