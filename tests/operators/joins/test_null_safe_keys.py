"""``<=>`` as a key: an equality in which NULL is a value, wherever ``=`` can be a key. With each
operator that looks rows up, each type, each runtime and partitions, results equal those of a
comparison of all pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CqlError
from tests.support.results import rows
from tests.support.runtimes import RUNTIMES

pytestmark = pytest.mark.usefixtures("shared_kernels")

NAN = float("nan")
#: Values of each type; one of them is stored as zero, and NULL must not equal it.
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [False, True]),
    "tinyint": (pa.int8(), [0, -1]),
    "int": (pa.int32(), [0, 7]),
    "bigint": (pa.int64(), [0, -(1 << 63)]),
    "float": (pa.float32(), [0.0, 1.5]),
    "double": (pa.float64(), [-0.0, 2.5, NAN]),
    "decimal": (pa.decimal128(18, 2), [Decimal("0.00"), Decimal("-9999999999999999.99")]),
    "date": (pa.date32(), [date(1970, 1, 1), date(2020, 2, 29)]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(1970, 1, 1, tzinfo=UTC)]),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(1970, 1, 1), datetime(2020, 1, 1)]),
    "interval": (pa.duration("us"), [timedelta(0), timedelta(seconds=3)]),
    "string": (pa.string(), ["", "a"]),
    "binary": (pa.binary(), [b"", b"\0"]),
}


def same(a: Any, b: Any) -> bool:
    return a is b or a == b or (a != a and b != b)


def bag(found: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(found)


@pytest.fixture
def session() -> Iterator[cql.Session]:
    """Streams ``l`` and ``r``, and tables ``t`` and ``u`` with the same rows."""
    with cql.connect(spark=False) as made:
        for stream, table, ids in (("l", "t", "id"), ("r", "u", "rid")):
            data = pa.table({name: [row[k] for row in ROWS[stream]] for k, name in
                             enumerate((ids, "ts", "k", "s", "d"))})  # fmt: skip
            made.create_stream(stream, data, ordered_by="ts", unit="seconds")
            made.register_table(table, data)
        yield made


#: (id, ts, k, s, d) of each row of ``l`` and ``r``.
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "l": [
        (1, 1, None, None, Decimal("0.0")),
        (2, 2, 0, "a", None),
        (3, 3, 0, None, Decimal("1.5")),
        (4, 3, None, "", None),
        (5, 6, 1, "a", Decimal("0.0")),
        (6, 8, None, None, None),
        (7, 9, None, "b", None),
    ],
    "r": [
        (21, 0, None, None, Decimal("0.0")),
        (22, 1, 0, "a", None),
        (23, 2, None, None, None),
        (24, 3, 0, None, Decimal("1.5")),
        (25, 4, None, "", Decimal("7.0")),
        (26, 7, 1, "a", None),
        (27, 7, None, None, Decimal("0.0")),
    ],
}
KEYS = ("id", "ts", "k", "s", "d")
#: Conditions on keys, and their (column, null-safe) pairs.
CONDITIONS = {
    "l.s <=> r.s": [("s", True)],
    "l.k IS NOT DISTINCT FROM r.k AND r.s = l.s": [("k", True), ("s", False)],
    "NOT (r.s IS DISTINCT FROM l.s) AND (l.d = r.d OR l.d IS NULL AND r.d IS NULL)": [
        ("s", True),
        ("d", True),
    ],
}
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")
#: The further conditions of a stream join: none, or a band.
BANDS = ("", " AND l.ts BETWEEN r.ts - 2 AND r.ts + 3")


def met(asked: list[tuple[str, bool]], one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether the keys of two rows are equal."""
    for name, null_safe in asked:
        a, b = one[KEYS.index(name)], other[KEYS.index(name)]
        if (a is None or b is None) and not (null_safe and a is b):
            return False
        if a != b:
            return False
    return True


def joined(kind: str, asked: list[tuple[str, bool]], *, near: bool) -> list[tuple[Any, ...]]:
    """The rows of a join, from a comparison of all pairs."""
    pairs = [
        (one, other)
        for one in ROWS["l"]
        for other in ROWS["r"]
        if met(asked, one, other) and (not near or other[1] - 2 <= one[1] <= other[1] + 3)
    ]
    lefts, rights = [a for a, _ in pairs], [b for _, b in pairs]
    if kind in ("SEMI JOIN", "ANTI JOIN"):
        return [(a[0],) for a in ROWS["l"] if (a in lefts) == (kind == "SEMI JOIN")]
    found: list[tuple[Any, ...]] = [(a[0], b[0]) for a, b in pairs]
    if kind in ("LEFT JOIN", "FULL JOIN"):
        found += [(a[0], None) for a in ROWS["l"] if a not in lefts]
    if kind in ("RIGHT JOIN", "FULL JOIN"):
        found += [(None, b[0]) for b in ROWS["r"] if b not in rights]
    return found


def shown(kind: str) -> str:
    return "l.id" if kind in ("SEMI JOIN", "ANTI JOIN") else "l.id, r.rid"


def conditions(first: int, full: bool) -> list[str]:
    """All conditions with --full, otherwise one: each is compiled."""
    return list(CONDITIONS) if full else [list(CONDITIONS)[first % len(CONDITIONS)]]


@pytest.mark.sampled
@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_joins_of_streams(session: cql.Session, kind: str, near: bool, full: bool) -> None:
    number = KINDS.index(kind)
    for condition in conditions(number + near, full):
        expected = bag(joined(kind, CONDITIONS[condition], near=near))
        text = f"SELECT {shown(kind)} FROM l {kind} r ON {condition}{BANDS[near]}"
        for runtime in RUNTIMES if full else [RUNTIMES[(number + near) % len(RUNTIMES)]]:
            assert bag(rows(session.sql(text, morsel_rows=2, **runtime))) == expected, text


#: A stream with a table and a table with a table, for lookups; two relations, which change.
SIDES = (("l", "u"), ("t", "u"), ("l [RANGE UNBOUNDED]", "r [RANGE UNBOUNDED]"))


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_joins_with_tables_and_of_relations(session: cql.Session, kind: str, full: bool) -> None:
    number = KINDS.index(kind)
    for condition in conditions(number, full):
        expected = bag(joined(kind, CONDITIONS[condition], near=False))
        for left, right in SIDES if full else (SIDES[number % 2], SIDES[2]):
            text = f"SELECT {shown(kind)} FROM {left} l {kind} {right} r ON {condition}"
            assert bag(rows(session.sql(text))) == expected, text


def test_the_plan_looks_up_by_the_key(session: cql.Session) -> None:
    for kind in KINDS:
        for left, right in (*SIDES, ("l", "r")):
            text = f"SELECT l.id FROM {left} l {kind} {right} r ON l.s <=> r.s"
            said = str(session.sql(f"EXPLAIN {text}"))
            assert said.count("s, coalesce(s, ''), s IS NULL") == 2, said
            assert "_2" not in said
            assert "all of it for each row" not in said


def test_a_key_that_one_side_always_has_is_one_column(session: cql.Session) -> None:
    text = "SELECT l.id FROM t l JOIN (SELECT count(*) AS n FROM u GROUP BY s) r ON l.id <=> r.n"
    said = str(session.sql(f"EXPLAIN {text}"))
    assert "coalesce" not in said
    assert "id = n" in said


#: Types with their own storage and comparison.
SOME = ("boolean", "bigint", "double", "decimal", "timestamp", "binary")


@pytest.mark.parametrize("name", VALUES)
def test_null_is_a_value_of_every_type(name: str, full: bool) -> None:
    if not (full or name in SOME):
        pytest.skip("without --full, of types that are stored alike one")
    kind, some = VALUES[name]
    left, right = [None, *some, None], [*reversed(some), None, some[0]]
    with cql.connect(spark=False) as session:
        for table, values in (("a", left), ("b", right)):
            columns = {"n": list(range(len(values))), "k": pa.array(values, kind)}
            session.register_table(table, pa.table(columns))
        text = "SELECT a.n, b.n AS m FROM a LEFT JOIN b ON a.k <=> b.k"
        found = rows(session.sql(text))
    pairs = [(n, m) for n, a in enumerate(left) for m, b in enumerate(right) if same(a, b)]
    assert bag(found) == bag(pairs)


def test_arrays(session: cql.Session) -> None:
    """Arrays of texts and of numbers; both sides have arrays that are NULL."""
    for values in ("s", "k"):
        side = (
            f"(SELECT o.{{0}} AS n, v.x FROM {{1}} o LEFT JOIN (SELECT {{0}}, array_agg({values})"
            " AS x FROM {1} WHERE ts < 3 GROUP BY {0}) v ON o.{0} = v.{0})"
        )
        left, right = side.format("id", "t"), side.format("rid", "u")
        text = f"SELECT a.n, b.n AS m FROM {left} a JOIN {right} b ON a.x {{}} b.x"
        known = {
            at: [[row[KEYS.index(values)]] if row[KEYS.index(values)] is not None else []
                 for row in ROWS[at] if row[1] < 3] for at in "lr"
        }  # fmt: skip
        nulls = (len(ROWS["l"]) - len(known["l"])) * (len(ROWS["r"]) - len(known["r"]))
        equal = sum(a == b for a in known["l"] for b in known["r"])
        assert len(rows(session.sql(text.format("=")))) == equal
        assert len(rows(session.sql(text.format("<=>")))) == equal + nulls


def test_subqueries(session: cql.Session) -> None:
    """EXISTS over tables and over streams, alone in WHERE and beside another condition."""
    asked = CONDITIONS["l.s <=> r.s"]
    there = [a[0] for a in ROWS["l"] if any(met(asked, a, b) for b in ROWS["r"])]
    for source, other in (("t", "u"), ("l", "r")):
        exists = f"EXISTS (SELECT * FROM {other} r WHERE r.s <=> l.s)"
        found = rows(session.sql(f"SELECT l.id FROM {source} l WHERE {exists}"))
        assert sorted(found) == [(n,) for n in there]
        found = rows(session.sql(f"SELECT l.id FROM {source} l WHERE NOT {exists}"))
        assert sorted(found) == [(a[0],) for a in ROWS["l"] if a[0] not in there]
        found = rows(session.sql(f"SELECT l.id FROM {source} l WHERE {exists} OR l.id = 7"))
        assert sorted(found) == [(n,) for n in sorted({*there, 7})]


def latest(asked: list[tuple[str, bool]], one: tuple[Any, ...]) -> Any:
    found = [b for b in ROWS["r"] if met(asked, one, b) and b[1] <= one[1]]
    return max(found, key=lambda b: (b[1], b[0]))[0] if found else None


@pytest.mark.parametrize("condition", CONDITIONS)
def test_versions_and_the_nearest(session: cql.Session, condition: str) -> None:
    """A temporal join, and two spellings of an ASOF join."""
    expected = [(a[0], latest(CONDITIONS[condition], a)) for a in ROWS["l"]]
    for source in (
        f"l LEFT JOIN r FOR SYSTEM_TIME AS OF l.ts AS r ON {condition}",
        f"l ASOF LEFT JOIN r ON {condition} AND l.ts >= r.ts",
        f"l ASOF JOIN r MATCH_CONDITION (l.ts >= r.ts) ON {condition}",
    ):
        for runtime in RUNTIMES:
            found = rows(session.sql(f"SELECT l.id, r.rid FROM {source}", morsel_rows=2, **runtime))
            assert sorted(found) == expected, source


def test_using_stays_an_equality(session: cql.Session) -> None:
    found = rows(session.sql("SELECT l.id, r.rid FROM t l JOIN u r USING (s)"))
    assert bag(found) == bag(joined("JOIN", [("s", False)], near=False))


def test_in_partitions(session: cql.Session) -> None:
    """One partition holds the rows with a NULL key of both sides."""
    text = "SELECT l.id, r.rid FROM l JOIN r ON l.s <=> r.s AND l.ts BETWEEN r.ts - 2 AND r.ts + 3"
    expected = bag(joined("JOIN", [("s", True)], near=True))
    for parts in (1, 4, 100):
        for workers in (1, 2):
            split = f"{text} PARTITION BY HASH(l.s) INTO {parts}"
            query = session.sql(split, runtime="ordered", workers=workers, morsel_rows=2)
            assert bag(rows(query)) == expected


@pytest.mark.parametrize("operator", ["sync_filter", "filter_order", "adaptive"])
def test_joins_in_order(session: cql.Session, operator: str) -> None:
    text = (
        f"SELECT /*+ join_operator({operator}) */ l.id, r.rid FROM l JOIN r ON l.s <=> r.s"
        " AND l.ts BETWEEN r.ts - 2 AND r.ts + 3 ORDER BY l.ts"
    )
    assert operator in str(session.sql(f"EXPLAIN {text}")).lower().replace("-", "_")
    assert bag(rows(session.sql(text))) == bag(joined("JOIN", [("s", True)], near=True))


@pytest.mark.parametrize(
    ("source", "column"),
    [
        ("l JOIN r FOR SYSTEM_TIME AS OF l.ts AS x ON l.id > x.rid", 70),
        ("l LEFT JOIN r FOR SYSTEM_TIME AS OF l.ts AS x ON x.k = 1", 75),
        ("l JOIN r FOR SYSTEM_TIME AS OF l.ts AS x ON TRUE", 70),
        ("l JOIN u FOR SYSTEM_TIME AS OF l.ts AS x ON l.s <> x.s", 70),
    ],
)
def test_a_temporal_join_needs_a_key(session: cql.Session, source: str, column: int) -> None:
    with pytest.raises(BindError, match="a temporal join needs an equality") as raised:
        session.sql(f"SELECT l.id, x.rid FROM {source}")
    assert raised.value.position is not None
    assert "ON a.k = x.k" in (raised.value.hint or "")
    text = f"SELECT l.id, x.rid FROM {source}"
    assert text[raised.value.position.column - 1 :].startswith(source.split(" ON ")[1].split()[0])


def test_what_can_fail_is_refused_as_with_equals(session: cql.Session) -> None:
    for equal in ("=", "<=>"):
        with pytest.raises(CqlError, match="which can fail, is not supported"):
            session.sql(f"SELECT l.id FROM t l LEFT JOIN u r ON l.id {equal} r.s").to_arrow()
