"""LIMIT over random rows, under every runtime, against the reference. The rows must be equal if the
query defines their order; otherwise they must be rows of the whole answer, in the right number."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

import cql
from cql.dialect import parse_one
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes.catalog import Catalog, Progress, Relation, StreamSpec
from cql.planner.nodes.logical import Logical
from cql.planner.nodes.statements import Query as Bound
from tests.reference.naive import evaluate
from tests.reference.naive_tables import NaiveRelation, fields_of
from tests.support.runtimes import RUNTIMES, apply, share

COLUMNS, SLACK, ROWS = "t bigint, k bigint, v bigint", 4, 60
WINDOWS = (
    "SELECT k, count(*) AS n, sum(v) AS s, window_end AS e FROM a [RANGE 10 SLIDE 5] GROUP BY k"
)
#: Queries that define the order of their rows: arrival order or ORDER BY.
EXACT = (
    "SELECT t, k, v FROM a WHERE k <> 1 LIMIT :n OFFSET :m",
    "SELECT t, k, v FROM a ORDER BY t, k, v LIMIT :n OFFSET :m",
    f"{WINDOWS} ORDER BY n DESC, k LIMIT :n PER WINDOW",
    f"{WINDOWS} ORDER BY n DESC, k LIMIT :n OFFSET :m",
    f"SELECT * FROM ({WINDOWS} ORDER BY n DESC, k LIMIT 2 PER WINDOW) LIMIT :n OFFSET :m",
    f"SELECT count(*) AS c FROM ({WINDOWS} LIMIT :n OFFSET :m)",
)
#: Queries that do not define the order of their rows.
SOME = (
    WINDOWS,
    "SELECT t, v FROM a UNION b AS u",
    "SELECT l.v AS v, r.v AS w FROM a [RANGE 5] AS l, b [RANGE 5] AS r WHERE l.k = r.k",
)


def rows_of(rng: random.Random) -> list[tuple[int, int, int]]:
    """Fewer than ROWS rows (t, k, v), some of them late; v differs in each row."""
    return [
        (n // 2 + rng.choice((0, 0, 1, 3, -3, -7)), rng.randrange(4), n)
        for n in range(rng.randrange(ROWS))
    ]


class _Catalog:
    def find(self, name: tuple[str, ...]) -> Relation | None:
        spec = StreamSpec((Progress("t", SLACK),))
        return NaiveRelation(name, fields_of(COLUMNS), spec) if name[-1] in "ab" else None

    def names(self) -> list[tuple[str, ...]]:
        return [("a",), ("b",)]


def plan_of(text: str, parameters: dict[str, int]) -> Logical:
    statement = bind(parse_one(text), cast(Catalog, _Catalog()), Context(parameters=parameters))
    assert isinstance(statement, Bound)
    return statement.plan


Rows = list[tuple[Any, ...]]


def answers(text: str, case: int, full: bool) -> Iterator[tuple[Rows, dict[str, Rows], int, int]]:
    """Under several runtimes: the output rows of the engine, the input rows that ``case`` draws,
    LIMIT and OFFSET."""
    rng = random.Random(f"{text} {case}")
    inputs: dict[str, Rows] = {name: [*rows_of(rng)] for name in ("a", "b")}
    n, m = rng.choice((0, 1, 2, 3, 7, 20, 100)), rng.choice((0, 0, 1, 5))
    for settings in share(RUNTIMES, case, 2, full=full):
        with cql.connect(spark=False) as session:
            apply(session, settings)
            session.set("morsel_rows", rng.choice((1, 7, 1000)))
            schema = fields_of(COLUMNS).to_arrow()
            for name, rows in inputs.items():
                columns = list(zip(*rows, strict=True)) or [[], [], []]
                table = pa.table([*map(pa.array, columns)], names=schema.names).cast(schema)
                session.create_stream(name, table, ordered_by="t", slack=SLACK)
            found = session.sql(text, n=n, m=m).to_arrow()
        yield [tuple(row.values()) for row in found.to_pylist()], inputs, n, m


@pytest.mark.filterwarnings("ignore:keys are in one partition")
@pytest.mark.parametrize("text", EXACT)
def test_where_the_order_is_defined(text: str, full: bool) -> None:
    for case in range(200 if full else 5):
        for found, inputs, n, m in answers(text, case, full):
            answer = evaluate(plan_of(text, {"n": n, "m": m}), inputs)
            assert found == answer.rows, (case, n, m)


@pytest.mark.filterwarnings("ignore:keys are in one partition")
@pytest.mark.parametrize("text", SOME)
def test_where_it_is_not(text: str, full: bool) -> None:
    for case in range(200 if full else 5):
        for found, inputs, n, m in answers(f"{text} LIMIT :n OFFSET :m", case, full):
            whole = evaluate(plan_of(text, {}), inputs).rows
            assert not Counter(found) - Counter(whole), (case, n, m)
            assert len(found) == min(n, max(0, len(whole) - m)), (case, n, m)
