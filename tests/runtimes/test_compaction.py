"""Bounded memory over an endless stream: compaction drops the texts that no state refers to, and
changes no result."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from cql.catalog import blocks
from cql.dialect import parse_one
from cql.executor.morsel import partitioned_watermark
from cql.executor.morsel.partitioned_watermark import Values
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.run import reading
from cql.executor.strings import compaction
from cql.executor.strings.dictionary import Dictionary
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes.catalog import Catalog, Progress, Relation, StreamSpec
from cql.planner.nodes.logical import Logical
from cql.planner.nodes.statements import Query as Bound
from cql.session.session import Session
from tests.reference.naive import evaluate
from tests.reference.naive_compare import assert_same
from tests.reference.naive_rows import Answer
from tests.reference.naive_tables import NaiveRelation, fields_of
from tests.support.runtimes import OPERATORS, RUNTIMES, share

COLUMNS = "t bigint, k string, i int, x string"
BLOCK = 100
ROWS = 1_500
#: Bytes; less than the texts of a block, so that a compaction follows each block.
LEAST = 4_000
QUERIES = {
    "keys and extremes": """
        SELECT k, i, count(*) AS n, min(x) AS low, max(x) AS high, first(x) AS f, last(x) AS l,
            count(DISTINCT x) AS d, count(DISTINCT k) AS one, window_end
        FROM a [RANGE 40 SLIDE 20] GROUP BY k, i HAVING max(k) > 'k' OR k IS NULL""",
    "counts as they slide": """
        SELECT k, x, count(*) AS n, sum(i) AS s, window_end
        FROM a [RANGE 40 SLIDE 2] GROUP BY k, x""",
    "functions": """
        SELECT u, min(upper(x)) AS low, max(concat(x, u)) AS high, count(DISTINCT c) AS d,
            concat(u, '!') AS loud, coalesce(last(c) FILTER (WHERE i = 1), 'none') AS l
        FROM (SELECT t, i, x, upper(k) AS u, concat(x, '-', k) AS c FROM a
              WHERE k LIKE '%1%' AND upper(k) <> 'NONE') AS f
        [RANGE 30 SLIDE 30 WA t] GROUP BY u""",
    "order": """
        SELECT k, low, window_end FROM (
            SELECT k, min(x) AS low, window_end FROM a [RANGE 40 SLIDE 20] GROUP BY k
            ORDER BY low DESC, k LIMIT 7) AS s""",
    "union": """
        SELECT k, count(*) AS n, max(y) AS y, window_end FROM (
            SELECT t, lower(k) AS k, concat(x, x) AS y FROM a
            UNION ALL SELECT t, k, x AS y FROM b WHERE x IS NULL OR x < 'zz') AS u
        [RANGE 40 SLIDE 20 WA t] GROUP BY k""",
    "sessions": """
        SELECT k, i, count(*) AS n, min(x) AS low, last(x) AS l, window_end
        FROM a [SESSION 9, WA t] GROUP BY k, i HAVING max(k) > 'k' OR k IS NULL""",
    "arrays in windows": """
        SELECT first(xs) AS f, last(xs) AS l, max_by(xs, k) AS m, any_value(xs) AS a,
            count(DISTINCT xs) AS c, max(k) AS k, window_end
        FROM (SELECT k, array_agg(x) AS xs, window_time FROM a [RANGE 20 SLIDE 20] GROUP BY k) AS w
        [RANGE 60 SLIDE 20 WA window_time] GROUP BY length(k)""",
    "arrays in sessions": """
        SELECT last(xs) AS l, min_by(xs, k) AS m, count(DISTINCT xs) AS c, window_end
        FROM (SELECT k, array_agg(x) AS xs, window_time FROM a [RANGE 5 SLIDE 5] GROUP BY k) AS w
        [SESSION 5, WA window_time] GROUP BY k""",
    "elements of arrays": """
        SELECT e, max(upper(e)) AS u, k, count(*) AS n, window_end
        FROM (SELECT k, array_agg(x) AS xs, window_time FROM a [RANGE 20 SLIDE 20] GROUP BY k)
            [RANGE 60 SLIDE 20 WA window_time] AS w, UNNEST(w.xs) AS x (e) GROUP BY e, k""",
    "arrays and structs": """
        SELECT xs, u.x AS x, get(xs, 1) AS e, count(*) AS n, first(u) AS f, last(v) AS v, window_end
        FROM (SELECT t, array(k, upper(x)) AS xs, struct(x, i) AS u, array(struct(k)) AS v FROM a)
            AS w [RANGE 40 SLIDE 20 WA t] GROUP BY xs, u.x""",
    "structs in relations": """
        ISTREAM(SELECT u, max(u.x) AS high, count(*) AS n FROM (SELECT t, struct(x, k) AS u FROM a)
            AS w [RANGE 15 WA t] GROUP BY u)""",
    "values of sessions": """
        SELECT k, count(DISTINCT x) AS n, mode(x) AS m, array_agg(x) AS xs, window_end,
            string_agg(DISTINCT x, ',') AS u FROM a [SESSION 9, WA t] GROUP BY k""",
    "relations": """
        ISTREAM(SELECT k, count(*) AS n, max(x) AS high FROM a [RANGE 15] WHERE x > 'text'
                GROUP BY k)""",
    "arrays in relations": """
        ISTREAM(SELECT xs, last(k) AS k, count(*) AS n FROM (
            SELECT k, array_agg(x) AS xs, window_time FROM a [RANGE 20 SLIDE 20] GROUP BY k) AS w
        [RANGE 25] GROUP BY xs)""",
    "rows of relations by number": """
        ISTREAM(SELECT * FROM (SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS p
            FROM a [RANGE 15]) AS n WHERE p <= 2)""",
    "first rows of a relation": """
        ISTREAM(SELECT k, x FROM a [RANGE 15] ORDER BY x DESC, k LIMIT 3 OFFSET 1)""",
    "whole relations": "SELECT RSTREAM(x) FROM a [RANGE 2]",
    "values of relations": """
        ISTREAM(SELECT k, count(DISTINCT x) AS n, mode(x) AS m, array_agg(x) AS xs,
            string_agg(DISTINCT upper(x), ',') AS u, max(x) AS high
        FROM a [RANGE 9] GROUP BY k)""",
    "joins of relations": """
        ISTREAM(SELECT l.k, l.x, r.x AS y FROM a [RANGE 1] AS l LEFT JOIN b [RANGE 1] AS r
            ON l.k = r.k AND l.x < r.x AND coalesce(l.x, '') <> 'none')""",
    "groups one by one": """
        SELECT k, i, count(*) AS n, min(x) AS low, last(x) AS l, count(DISTINCT x) AS d,
            mode(x) AS m, array_agg(x) AS xs, string_agg(DISTINCT x, ',') AS u, window_end
        FROM c [RANGE 20 SLIDE 10] GROUP BY k, i HAVING max(k) > 'k' OR k IS NULL""",
    "windows of rows of each key": """
        SELECT k, i, count(*) AS n, first(x) AS f, last(x) AS l, max(x) AS high, window_end
        FROM a [PARTITION BY i ROWS 12 SLIDE 5] WHERE x IS NOT NULL GROUP BY i, k""",
    "windows over windows": """
        SELECT min(high) AS low, max(upper(k)) AS k, count(*) AS n, window_end FROM (
            SELECT k, max(x) AS high, window_time FROM a [RANGE 20 SLIDE 10] GROUP BY k) AS w
        [RANGE 60 SLIDE 20 WA window_time]""",
}

EXTREMES = """
    SELECT k, i, count(*) AS n, min(x) AS low, max(x) AS high, first(x) AS f, last(x) AS l,
        window_end
    FROM a [RANGE 40 SLIDE 20] GROUP BY k, i"""
ALTERNATIVES = (
    *("panes", "two_stacks", "buffered", "adaptive"),
    *("two_level, slow", "two_level, in_order_slow"),
)


def rows_of(seed: int) -> list[tuple[Any, ...]]:
    """Rows that are out of order by up to 4; no key and no text comes back after 20 rows."""
    r = random.Random(seed)
    rows: list[tuple[Any, ...]] = []
    for n in range(ROWS):
        key = f"Key {n // 20}.{r.randrange(4)} " + 50 * "k"
        text = f"text {n - r.randrange(10)} " + 50 * "x"
        rows.append(
            (
                n // 2 + r.randrange(5),
                None if r.random() < 0.1 else key,
                r.randrange(2),
                None if r.random() < 0.1 else text,
            )
        )
    return rows


class _Catalog:
    """Just enough of a catalog for ``bind``."""

    def find(self, name: tuple[str, ...]) -> Relation | None:
        spec = StreamSpec((Progress("t", 4),))
        if name[-1] == "c":
            spec = StreamSpec((Progress("t", 4, max_skew=20),), by="k")
        return NaiveRelation(name, fields_of(COLUMNS), spec) if name[-1] in "abc" else None

    def names(self) -> list[tuple[str, ...]]:
        return [("a",), ("b",), ("c",)]


def plan_of(text: str) -> Logical:
    statement = bind(parse_one(text), cast(Catalog, _Catalog()), Context(parameters={}))
    assert isinstance(statement, Bound)
    return statement.plan


@pytest.fixture(scope="module")
def inputs(seed: int) -> dict[str, list[tuple[Any, ...]]]:
    return {"a": rows_of(seed), "b": rows_of(seed + 1), "c": rows_of(seed + 2)}


@pytest.fixture
def session(
    inputs: dict[str, list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    monkeypatch.setattr(blocks, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(compaction, "LEAST", LEAST)
    monkeypatch.setattr(partitioned_watermark, "FEWEST", 16)
    schema = fields_of(COLUMNS)
    with Session(False) as session:
        for name, rows in inputs.items():
            table = pa.table(list(zip(*rows, strict=True)), schema=schema.to_arrow())
            by = ("k", 20) if name == "c" else None
            session.create_stream(name, table, ordered_by="t", slack=4, punctuated_by=by)
        yield session


@pytest.fixture
def compactions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Bytes of the dictionary before and after each compaction."""
    seen: list[tuple[int, int]] = []

    def watched(
        workspace: Workspace, operators: Sequence[Operator], values: Sequence[Values]
    ) -> None:
        before = workspace.dictionary.content
        compaction.compact(workspace, operators, values)
        seen.append((before, workspace.dictionary.content))

    monkeypatch.setattr(reading, "compact", watched)
    return seen


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_texts_die_with_their_windows(
    session: Session,
    compactions: list[tuple[int, int]],
    inputs: dict[str, list[tuple[Any, ...]]],
    query: str,
    seed: int,
    full: bool,
) -> None:
    plan = plan_of(QUERIES[query])
    expected: Answer = evaluate(plan, inputs)
    assert len(expected.rows) > 10
    every = list(itertools.product((True, False), (1, 7, 256), RUNTIMES))
    for fuse, rows, runtime in share(every, list(QUERIES).index(query), 3, seed, full=full):
        compactions.clear()
        for name, value in {"fuse": fuse, "morsel_rows": rows, **runtime}.items():
            session.set(name, value)
        assert_same(expected, session.sql(QUERIES[query]).to_arrow(), plan)
        assert len(compactions) >= 5, (fuse, rows, runtime)
        assert max(before for before, _ in compactions) < 400_000
        # a source encodes the texts that it computes for all rows of a block, filtered or not
        assert max(after for _, after in compactions) < 90_000


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("operator", ALTERNATIVES)
def test_texts_in_every_operator_for_windows(
    session: Session,
    compactions: list[tuple[int, int]],
    inputs: dict[str, list[tuple[Any, ...]]],
    operator: str,
) -> None:
    plan = plan_of(EXTREMES)
    expected: Answer = evaluate(plan, inputs)
    for name, value in (OPERATORS[operator] | {"low_level_entries": 64}).items():
        session.set(name, value)
    for rows in (1, 256):
        compactions.clear()
        session.set("morsel_rows", rows)
        assert_same(expected, session.sql(EXTREMES).to_arrow(), plan)
        assert len(compactions) >= 5


def test_compact_keeps_order_and_texts() -> None:
    told: list[int] = []
    dictionary = Dictionary(lambda before, after: told.append(after - before))
    begun = dictionary.nbytes
    texts = [f"{n * 7919 % 1000:03}".encode() * (n % 40) for n in range(1000)]
    codes = dictionary.encode_values(texts)
    live = np.zeros(len(dictionary), bool)
    live[0] = True
    live[codes[::50]] = True
    renumbered = dictionary.compact(live)
    kept = renumbered[codes[::50]]
    assert [dictionary.value(code) for code in kept.tolist()] == texts[::50]
    assert (np.diff(renumbered[:-1][live]) == 1).all()
    assert renumbered[-1] == -1
    assert (dictionary.encode_values(texts[::50]) == kept).all()
    assert len(dictionary) == live.sum()
    assert begun + sum(told) == dictionary.nbytes
    again = dictionary.encode_values(texts)  # the dictionary grows again; a text has one code
    assert [dictionary.value(code) for code in again.tolist()] == texts
    assert (dictionary.encode_values(texts) == again).all()
