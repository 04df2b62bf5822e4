"""Columns of arrays and structs from sources: carried, as keys, joined, unnested, compared with
plain Python, under all runtimes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CqlError, NotSupportedError, RunError
from tests.support.runtimes import RUNTIMES, Settings, apply, named, share

TYPES = {
    "items": pa.list_(pa.int64()),
    "names": pa.large_list(pa.string()),
    "pair": pa.list_(pa.float64(), 2),
    "user": pa.struct([("name", pa.string()), ("age", pa.int32())]),
    "visits": pa.list_(pa.struct([("page", pa.string()), ("ms", pa.int64())])),
    "grid": pa.list_(pa.list_(pa.int8())),
}
Row = dict[str, Any]


def _maybe(rng: random.Random, value: Any) -> Any:
    return None if rng.random() < 0.15 else value


def _list(rng: random.Random, make: Callable[[], Any]) -> Any:
    return _maybe(rng, [_maybe(rng, make()) for _ in range(rng.randrange(4))])


def _row(rng: random.Random, at: int) -> Row:
    def word() -> str:
        return rng.choice(("", "a", "b", "žluť"))

    def number() -> int:
        return rng.randrange(3)

    return {
        "ts": at,
        "k": rng.randrange(3),
        "items": _list(rng, number),
        "names": _list(rng, word),
        "pair": _maybe(rng, [_maybe(rng, float(number())), 1.5]),
        "user": _maybe(rng, {"name": _maybe(rng, word()), "age": _maybe(rng, number())}),
        "visits": _list(rng, lambda: {"page": _maybe(rng, word()), "ms": _maybe(rng, number())}),
        "grid": _list(rng, lambda: _list(rng, number)),
    }


def rows_of(seed: int, count: int = 300) -> list[Row]:
    rng = random.Random(seed)
    return [_row(rng, at) for at in range(count)]


def table_of(rows: list[Row]) -> pa.Table:
    kinds = {"ts": pa.int64(), "k": pa.int64(), **TYPES}
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    whole = pa.table(columns)
    return pa.concat_tables([whole.slice(0, 7), whole.slice(7)])  # arrays with an offset


def bag(rows: list[Any]) -> Counter[str]:
    return Counter(map(repr, rows))


def told(session: cql.Session, text: str) -> list[list[Any]]:
    return [list(row.values()) for row in session.sql(text).to_arrow().to_pylist()]


def settings_of(case: int, seed: int, full: bool) -> list[Settings]:
    return share(RUNTIMES, case, 3, seed, full=full)


@pytest.fixture
def rows(seed: int) -> list[Row]:
    return rows_of(seed)


@pytest.fixture
def session(rows: list[Row]) -> Iterator[cql.Session]:
    with cql.connect(spark=False, morsel_rows=50) as made:
        made.create_stream("s", table_of(rows), ordered_by="ts")
        made.register_table("t", table_of(rows[:40]))
        yield made


@pytest.mark.parametrize("case", range(2))
def test_carried_columns(
    session: cql.Session, rows: list[Row], case: int, seed: int, full: bool
) -> None:
    texts = ("SELECT * FROM s", "SELECT * FROM s WHERE k > 0 AND ts % 7 <> 1")
    kept = (rows, [r for r in rows if r["k"] > 0 and r["ts"] % 7 != 1])
    for settings in settings_of(case, seed, full):
        apply(session, settings)
        assert session.sql(texts[case]).to_arrow().to_pylist() == kept[case], named(settings)


@pytest.mark.sampled
@pytest.mark.parametrize(("case", "column"), list(enumerate(TYPES)))
def test_keys(
    session: cql.Session, rows: list[Row], case: int, column: str, seed: int, full: bool
) -> None:
    """GROUP BY with a window and without, DISTINCT, joins, first and last."""
    groups = Counter((r["ts"] // 100, repr(r[column])) for r in rows)
    few = rows[:40]
    pairs = Counter(
        (a["ts"], b["ts"]) for a in rows for b in few if a[column] == b[column] is not None
    )
    for settings in settings_of(case, seed, full):
        apply(session, settings)
        windowed = told(
            session,
            f"SELECT window_start, {column} AS c, count(*) FROM s [RANGE 100 SLIDE 100]"
            f" GROUP BY {column}",
        )
        assert Counter({(w // 100, repr(v)): n for w, v, n in windowed}) == groups
        distinct = told(session, f"SELECT DISTINCT {column} FROM t")
        assert bag(distinct) == bag([[eval(v)] for v in {repr(r[column]) for r in few}])
        joined = told(session, f"SELECT s.ts, t.ts AS u FROM s JOIN t ON s.{column} = t.{column}")
        assert Counter(map(tuple, joined)) == pairs, named(settings)
        ends = told(session, f"SELECT k, first({column}), last({column}) FROM t GROUP BY k")
        for k, first, last in ends:
            own = [r[column] for r in few if r["k"] == k]
            assert (first, last) == (own[0], own[-1])


@pytest.mark.sampled
@pytest.mark.parametrize(("case", "column"), list(enumerate(c for c in TYPES if c != "user")))
def test_elements(
    session: cql.Session, rows: list[Row], case: int, column: str, seed: int, full: bool
) -> None:
    each = [[r["ts"], e] for r in rows for e in r[column] or ()]
    padded = [[r["ts"], e] for r in rows for e in r[column] or [None]]
    for settings in settings_of(case, seed, full):
        apply(session, settings)
        inner = f"SELECT ts, e FROM s, UNNEST(s.{column}) AS u (e)"
        assert told(session, inner) == each
        outer = f"SELECT ts, e FROM s LEFT JOIN UNNEST({column}) AS u (e) ON TRUE"
        assert told(session, outer) == padded, named(settings)
        counted = told(
            session, f"SELECT e, count(*) FROM ({inner}) [RANGE 1000 SLIDE 1000] GROUP BY e"
        )
        assert Counter({repr(e): n for e, n in counted}) == Counter(repr(e) for _, e in each)


def test_fields_of_elements(session: cql.Session, rows: list[Row]) -> None:
    text = "SELECT ts, page, ms FROM s, UNNEST(visits) AS u (page, ms)"
    visits = [(r["ts"], v or {}) for r in rows for v in r["visits"] or ()]
    assert told(session, text) == [[ts, v.get("page"), v.get("ms")] for ts, v in visits]
    text = "SELECT ts, u.page FROM s, UNNEST(visits) AS u WHERE u.ms > 0"
    assert told(session, text) == [[ts, v["page"]] for ts, v in visits if (v.get("ms") or 0) > 0]
    text = "SELECT ts, e FROM s, UNNEST(grid) AS g (line), UNNEST(g.line) AS l (e)"
    grid = [[r["ts"], e] for r in rows for line in r["grid"] or () for e in line or ()]
    assert told(session, text) == grid


#: Queries, and what they give for each row; None leaves the row out.
BY_ROW: tuple[tuple[str, Callable[[Row], Any]], ...] = (
    ("SELECT s.user.name, user.age + 1 AS a FROM s",
     lambda r: [(r["user"] or {}).get("name"), _plus_one((r["user"] or {}).get("age"))]),
    ("SELECT user FROM s WHERE user.age >= 1",
     lambda r: [r["user"]] if ((r["user"] or {}).get("age") or 0) >= 1 else None),
    ("SELECT CASE WHEN size(items) > 1 THEN items[1] END AS i FROM s",
     lambda r: [r["items"][1] if len(r["items"] or ()) > 1 else None]),
    ("SELECT get(names, 0) AS n, size(names) AS m FROM s",
     lambda r: [(r["names"] or [None])[0], None if r["names"] is None else len(r["names"])]),
    ("SELECT upper(try_element_at(names, -1)) AS n FROM s WHERE array_contains(names, 'a')",
     lambda r: [_upper(r["names"][-1])] if "a" in (r["names"] or ()) else None),
    ("SELECT visits[0].page AS p, get(visits, 0) AS v FROM s WHERE size(visits) > 0",
     lambda r: [(r["visits"][0] or {}).get("page"), r["visits"][0]] if r["visits"] else None),
    ("SELECT get(get(grid, 0), 0) AS g FROM s", lambda r: [((r["grid"] or [[]])[0] or [None])[0]]),
    ("SELECT array(k, ts) AS a, struct(user, k AS n) AS b FROM s",
     lambda r: [[r["k"], r["ts"]], {"user": r["user"], "n": r["k"]}]),
    ("SELECT coalesce(items, array(k)) AS c FROM s",
     lambda r: [[r["k"]] if r["items"] is None else r["items"]]),
    ("SELECT u.name AS n, i FROM (SELECT user AS u, items AS i FROM s WHERE k = 1) AS v",
     lambda r: [(r["user"] or {}).get("name"), r["items"]] if r["k"] == 1 else None),
    ("SELECT user.* FROM s", lambda r: list((r["user"] or {"name": None, "age": None}).values())),
)  # fmt: skip


def _plus_one(value: int | None) -> int | None:
    return None if value is None else value + 1


def _upper(value: str | None) -> str | None:
    return None if value is None else value.upper()


@pytest.mark.parametrize("case", range(len(BY_ROW)))
def test_parts_of_values(
    session: cql.Session, rows: list[Row], case: int, seed: int, full: bool
) -> None:
    text, make = BY_ROW[case]
    wanted = [made for r in rows if (made := make(r)) is not None]
    for settings in settings_of(case, seed, full):
        apply(session, settings)
        assert told(session, text) == wanted, named(settings)


def test_parts_as_keys_and_in_joins(session: cql.Session, rows: list[Row]) -> None:
    """Functions of arrays and structs by code: their arguments are no columns of one source."""
    ages = Counter((r["user"] or {}).get("age") for r in rows)
    counted = told(
        session, "SELECT user.age, count(*) FROM s [RANGE 1000 SLIDE 1000] GROUP BY user.age"
    )
    assert dict(map(tuple, counted)) == ages
    joined = told(session, "SELECT s.ts, t.ts AS u FROM s JOIN t ON s.user.name = t.user.name")
    names = [(r["ts"], (r["user"] or {}).get("name")) for r in rows]
    wanted = [(a, b) for a, x in names for b, y in names[:40] if x == y is not None]
    assert Counter(map(tuple, joined)) == Counter(wanted)
    ordered = told(session, "SELECT items[0] AS i, ts FROM t WHERE size(items) > 0 ORDER BY i, ts")
    key = [(r["items"][0], r["ts"]) for r in rows[:40] if r["items"]]
    assert ordered == [list(x) for x in sorted(key, key=lambda x: (x[0] is not None, *x))]


def test_an_element_that_is_not_there(session: cql.Session, rows: list[Row]) -> None:
    first = next(r["ts"] for r in rows if r["items"] is not None and len(r["items"]) < 2)
    with pytest.raises(RunError, match=r"no such element: items\[1\], in the row at offset") as at:
        session.sql("SELECT ts, items[1] FROM s").to_arrow()
    assert f"offset {first} " in str(at.value)
    kept = session.sql("SELECT ts, element_at(items, 2) AS e FROM s ON BAD ROW KEEP")
    there = [r for r in rows if r["items"] is None or len(r["items"]) > 1]
    wanted = [[r["ts"], None if r["items"] is None else r["items"][1]] for r in there]
    assert [list(row.values()) for row in kept.to_arrow().to_pylist()] == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid[1][0]", "an array of 1 elements has no element number 1"),
        ("grid[0][7]", "an array of 2 elements has no element number 7"),
        ("size(grid[7])", "an array of 1 elements has no element number 7"),
        ("visits[1].page", "an array of 1 elements has no element number 1"),
        ("array_max(grid[-1])", "an array of 1 elements has no element number -1"),
    ],
)
def test_a_nested_element_that_is_not_there(text: str, message: str) -> None:
    row = {"ts": 1, "grid": [[1, 2]], "visits": [{"page": "a", "ms": 1}]}
    with cql.connect(spark=False) as session:
        kinds = {"ts": pa.int64(), "grid": TYPES["grid"], "visits": TYPES["visits"]}
        table = pa.table({name: pa.array([row[name]], kind) for name, kind in kinds.items()})
        session.create_stream("s", table, ordered_by="ts", unit="seconds")
        with pytest.raises(RunError, match=message):
            session.sql(f"SELECT {text} FROM s").to_arrow()
        kept = session.sql(f"SELECT {text} FROM s ON BAD ROW KEEP")
        assert kept.to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "SELECT user.nme FROM s",
            BindError,
            "there is no field nme in struct<name:string,age:int>",
        ),
        ("SELECT k.x FROM s", BindError, "column k has no parts"),
        ("SELECT x.user.name FROM s", BindError, "there is no x.user in FROM"),
        ("SELECT items['a'] FROM s", BindError, "the number of an element is a whole number"),
        ("SELECT k[0] FROM s", BindError, "takes an element of an array, not of bigint"),
        ("SELECT items[0:1] FROM s", CqlError, ""),
        ("SELECT visits.page FROM s", NotSupportedError, "the fields of all structs in an array"),
        ("SELECT ts FROM s ORDER BY items", BindError, "have no order"),
        ("SELECT max(user) FROM s", BindError, "have no order"),
        ("SELECT items < items FROM s", BindError, "have no order"),
        ("SELECT size(k) FROM s", BindError, "size does not take"),
        ("SELECT array_contains(items, 'a') FROM s", BindError, "are not compared with string"),
        ("SELECT array_join(items, ',') FROM s", BindError, "array_join does not take"),
        ("SELECT array_max(visits) FROM s", BindError, "have no order"),
        ("SELECT array() FROM s", BindError, "array takes 1 or more"),
        ("SELECT array(NULL) FROM s", BindError, "has no element with a type"),
        ("SELECT struct(k, k) FROM s", BindError, "two fields named k"),
        ("SELECT named_struct('a') FROM s", BindError, "named_struct takes 2 or more"),
        ("SELECT map('a', 1) FROM s", NotSupportedError, "no column holds a map"),
        ("SELECT CAST(k AS ARRAY<INT>) FROM s", BindError, "cannot cast bigint to array<int>"),
        ("SELECT CAST(k AS MAP<STRING, INT>) FROM s", NotSupportedError, "is not supported"),
        ("SELECT ts FROM s, UNNEST(visits) AS u (a, b, c)", BindError, "UNNEST gives 2 columns"),
        ("SELECT ts FROM s, UNNEST(items) AS u (a, b)", BindError, "UNNEST gives one column"),
        ("SELECT * FROM s [RANGE 5 SLIDE 5 WA items]", CqlError, ""),
    ],
)
def test_refusals(session: cql.Session, text: str, error: type[CqlError], message: str) -> None:
    with pytest.raises(error) as refused:
        session.sql(text)
    assert message in str(refused.value)
    assert refused.value.position is not None
