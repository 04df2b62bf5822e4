"""The final relation of a changelog: its rows, in the order in which they entered the relation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from cql.base.types import BIGINT
from cql.executor.ledgers import final_relation
from cql.executor.ledgers.final_relation import FinalRelation
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey
from cql.session.session import Session

SCHEMA = pa.schema(
    [("_time", pa.int64()), ("_weight", pa.int64()), ("s", pa.string()), ("x", pa.float64())]
)
Change = tuple[int, int, Any, Any]


def changes(rng: random.Random, count: int) -> list[Change]:
    """Random changes of a relation; no change removes more copies of a row than the relation
    holds."""
    held: dict[tuple[Any, Any], int] = {}
    made: list[Change] = []
    for time in range(count):
        if held and rng.random() < 0.45:
            row = rng.choice(list(held))
            weight = -rng.randint(1, held[row])
        else:
            row = rng.choice(["a", "b", "", None]), rng.choice([0.0, 1.5, None, float("inf")])
            weight = rng.randint(1, 2)
        held[row] = held.get(row, 0) + weight
        if held[row] == 0:
            del held[row]
        made.append((time, weight, *row))
    return made


def plainly(given: Sequence[Change]) -> list[tuple[Any, Any]]:
    """The final relation by a plain dict, which keeps the order in which keys are added."""
    held: dict[tuple[Any, Any], int] = {}
    for _, weight, *row in given:
        key = (row[0], row[1])
        held[key] = held.get(key, 0) + weight
        if held[key] == 0:
            del held[key]
    return [row for row, copies in held.items() for _ in range(copies)]


@pytest.mark.parametrize("many", [1, 10, 1 << 20])
@pytest.mark.parametrize("count", [0, 1, 7, 400])
def test_rows_in_the_order_of_their_coming(
    many: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order depends neither on the batches, nor on when changes are added up, nor on the end of
    the input."""
    monkeypatch.setattr(final_relation, "_MANY", many)
    rng = random.Random(f"{many} {count}")
    for _ in range(20):
        given = changes(rng, count)
        assert final(rng, given, end := rng.randrange(-1, count + 1)) == plainly(
            [c for c in given if c[0] <= end]
        )


def final(rng: random.Random, given: Sequence[Change], end: int) -> list[tuple[Any, ...]]:
    """The final relation of changes that arrive in random batches; the input ends at ``end``."""
    first, count = 0, len(given)
    relation = FinalRelation(SCHEMA, lambda: min(first, end))
    while first < count:
        after = first + rng.randint(1, 40)
        columns = zip(*given[first:after], strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        relation.add(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        first = after
    first = count + 1
    return list(zip(*(c.to_pylist() for c in relation.table(()).columns), strict=True))


def test_ties_of_an_order_stay_as_they_came() -> None:
    schema = pa.schema([SCHEMA[0], SCHEMA[1], ("k", pa.int64()), SCHEMA[2]])
    relation = FinalRelation(schema, lambda: None)
    rows = [(1, 1, 5, "z"), (1, 1, 4, "y"), (2, -1, 5, "z"), (3, 1, 4, "x"), (4, 1, 5, "z")]
    arrays = [pa.array(c) for c in zip(*rows, strict=True)]
    relation.add(pa.RecordBatch.from_arrays(arrays, names=["_time", "_weight", "k", "s"]))
    by_k = SortKey(Column(0, "k", BIGINT), False, False)
    assert relation.table([by_k]).column("s").to_pylist() == ["y", "x", "z"]


def test_what_leaves_after_the_end_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that leave their windows after the end of the input stay in the final relation; here
    they are more changes than are added up at once."""
    monkeypatch.setattr(final_relation, "_MANY", 100)
    table = pa.table({"t": [i // 10 for i in range(5_000)], "v": list(range(5_000))})
    with Session(False) as session:
        session.create_stream("s", table, ordered_by="t", unit="seconds")
        session.set("morsel_rows", 64)
        got = session.sql("SELECT DISTINCT v FROM s [RANGE 299 SECONDS]").to_arrow()
    assert got.column("v").to_pylist() == list(range(2_000, 5_000))
