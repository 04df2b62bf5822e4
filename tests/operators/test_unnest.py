"""UNNEST: random arrays against the reference; names, padding, late rows; refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CqlError, NotSupportedError
from tests.support.fuzz.known_nulls import known_nulls
from tests.support.fuzz.random_cases import case_of, check
from tests.support.fuzz.random_unnest import SHAPES, unnest_shape


@pytest.mark.sampled
@pytest.mark.parametrize("index", range(len(SHAPES)))
def test_random_arrays_equal_the_reference(index: int, full: bool, seed: int) -> None:
    """With --full, the cases also draw other operators below, each of which compiles its own
    kernel."""
    if full:
        for k in range(seed, seed + 100):
            check(case_of(unnest_shape(index), k))
        return
    with known_nulls(frozenset()):
        for k in range(seed, seed + 4):
            case = case_of(unnest_shape(index), k)
            kept = {n: v for n, v in case.settings.items() if n in ("runtime", "morsel_rows")}
            check(replace(case, settings=kept))


def at(second: float) -> datetime:
    return datetime(2024, 5, 1, 12, tzinfo=UTC) + timedelta(seconds=second)


@pytest.fixture
def session() -> Iterator[cql.Session]:
    rows = {
        "ts": [at(0), at(1), at(2), at(3), at(12), at(13)],
        "k": [1, 2, 1, 1, 2, 3],
        "s": ["a", "b", None, "a", "c", None],
        "n": [10, 20, 30, None, 50, None],
    }
    with cql.connect(spark=False) as made:
        made.create_stream("r", pa.table(rows), "ts")
        yield made


def told(session: cql.Session, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.sql(text).to_arrow().to_pylist()]


GROUPS = """(SELECT k, array_agg(n) AS ns, array_agg(s) AS ss, window_end AS until
             FROM r [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k) AS g"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT k, n, s FROM {} LEFT JOIN UNNEST(ns) AS n ON TRUE LEFT JOIN UNNEST(ss) AS u (s)"
         " ON TRUE WHERE k > 1", [(2, 20, "b"), (2, 50, "c"), (3, None, None)]),
        ("SELECT a.n AS a, b.n AS b FROM {}, UNNEST(ns) AS a (n), UNNEST(ns) AS b (n)"
         " WHERE a.n < b.n", [(10, 30)]),
    ],
)  # fmt: skip
def test_each_element(session: cql.Session, text: str, expected: list[Any]) -> None:
    assert told(session, text.format(GROUPS)) == expected


def test_star_has_the_element_last(session: cql.Session) -> None:
    query = session.sql(f"SELECT * EXCEPT (ss, until) FROM {GROUPS}, UNNEST(g.ns) AS u (each)")
    table = query.to_arrow()
    assert table.column_names == ["k", "ns", "each"]
    assert table.to_pylist()[1] == {"k": 1, "ns": [10, 30], "each": 30}


@pytest.mark.parametrize(
    ("value", "elements"),
    [
        ("CAST(s AS BINARY)", [b"a", b"a"]),
        ("CAST(n AS SMALLINT)", [10, 30]),
    ],
)
def test_elements_of_further_types(session: cql.Session, value: str, elements: list[Any]) -> None:
    text = f"""SELECT e FROM (SELECT k, array_agg({value}) AS xs
                              FROM r [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k) AS g,
                              UNNEST(xs) AS u (e) WHERE k = 1"""
    assert [e for (e,) in told(session, text)] == elements


@pytest.mark.parametrize(
    ("runtime", "morsel_rows"),
    [
        ("depth_first", 65_536),
        ("depth_first", 50),
        ("fifo", 1),
        ("fifo_slice", 50),
        ("run_to_completion", 50),
    ],
)
def test_many_elements_fill_many_units(runtime: str, morsel_rows: int) -> None:
    """One row has more pairs of elements than a morsel has room for."""
    numbers = list(range(400 if morsel_rows > 1 else 40))
    rows = pa.table({"ts": [at(i / 100) for i in numbers], "n": numbers})
    with cql.connect(spark=False, runtime=runtime, morsel_rows=morsel_rows) as session:
        session.create_stream("r", rows, "ts")
        (found,) = told(
            session,
            """SELECT count(*) AS n, sum(a.e * b.e) AS s, min(a.e - b.e) AS low FROM
               (SELECT array_agg(n) AS ns FROM r [RANGE 4 SECONDS SLIDE 4 SECONDS])
               [RANGE 1 DAY SLIDE 1 DAY] AS g, UNNEST(g.ns) AS a (e), UNNEST(g.ns) AS b (e)""",
        )
    assert found == (len(numbers) ** 2, sum(numbers) ** 2, -numbers[-1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM UNNEST(r.n) AS u (e)", "UNNEST takes an array of what stands before it"),
        ("SELECT k FROM r, UNNEST(r.n) AS u (e)", "UNNEST takes an array, not bigint"),
        ("SELECT k FROM {}, UNNEST(g.ns, g.ss) AS u (e)", "UNNEST takes one array"),
        ("SELECT k FROM {}, UNNEST(g.ns) AS u (e, f)", "UNNEST gives one column"),
        ("SELECT k FROM {}, UNNEST(g.ns) AS g (e)", "FROM names g twice"),
        ("SELECT k FROM {}, UNNEST(nothing) AS u (e)", "there is no column nothing"),
        ("SELECT k FROM {} LEFT JOIN UNNEST(g.ns) AS u (e) ON e > 1", "LEFT JOIN UNNEST with a"),
        ("SELECT k FROM {} RIGHT JOIN UNNEST(g.ns) AS u (e) ON TRUE", "a RIGHT JOIN with UNNEST"),
        ("SELECT k FROM {} JOIN UNNEST(g.ns) AS u (e) USING (k)", "UNNEST with USING"),
        ("SELECT k FROM {}, UNNEST(g.ns) AS u (e) [RANGE 1 SECOND]", "UNNEST with a window"),
        ("SELECT e FROM (SELECT array_agg(n) AS ns FROM r [RANGE 1 SECOND]) AS g,"
         " UNNEST(g.ns) AS u (e)", "UNNEST over a relation"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(session: cql.Session, text: str, said: str) -> None:
    with pytest.raises(CqlError) as caught:
        session.sql(text.format(GROUPS)).to_arrow()
    assert isinstance(caught.value, BindError | NotSupportedError)
    assert said in str(caught.value)
    assert caught.value.position is not None
