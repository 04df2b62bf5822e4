"""Streams whose rows are changes with operation codes: the relations that they make, compared with
a slow model at each instant."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CatalogError, NotSupportedError, ParseError
from cql.session.session import Session
from tests.support.catalog_tools import blocks_of_eight
from tests.support.run_checkpoints import plan_of, stop_and_continue
from tests.support.runtimes import RUNTIMES, Settings, apply, named
from tests.support.updates.changes import Row, State, rows_of, summed

#: What each kind of changelog calls a row that enters, and one that leaves.
CODES = [
    *((("c", "r", "u"), ("d",)), (("+I", "+U"), ("-U", "-D")), (("+",), ("-",))),
    (("INSERT", "update_after", "Update_After"), ("Delete", "UPDATE_BEFORE")),
]
COLUMNS = "id INT, v STRING, x DOUBLE, op STRING, ts BIGINT"


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def model(rows: Sequence[Row], *, keyed: bool) -> dict[int, State]:
    """After each instant the relation of ``rows``: id, v, x, copies (below zero: they leave), ts.
    Of equal rows, the one that came first leaves first."""
    last: dict[Any, Row] = {}
    bag: dict[Row, list[Row]] = defaultdict(list)
    found: dict[int, State] = {}
    for number, v, x, copies, ts in sorted(rows, key=lambda r: r[-1]):
        row = (number, v, x, ts)
        if keyed:
            last.pop(number, None)
            if copies > 0:
                last[number] = row
            found[ts] = Counter(last.values())
            continue
        bag[row[:3]] += [row] * copies
        del bag[row[:3]][: max(0, -copies)]
        found[ts] = Counter(row for held in bag.values() for row in held)
    return found


def changelog(session: Session, query: str) -> dict[int, State]:
    """After each instant at which it changes, the rows of ``query``, from its changelog."""
    state: State = Counter()
    found: dict[int, State] = {}
    asked: Any = session.sql(query)
    for batch in asked.batches():
        for time, weight, *row in (tuple(r.values()) for r in batch.to_pylist()):
            state[tuple(row)] += weight
            found[time] = Counter({r: n for r, n in state.items() if n})
    return found


def same(found: dict[int, State], expected: dict[int, State]) -> bool:
    """Whether both have the same rows at each instant."""
    times = sorted({*found, *expected})
    one: State = Counter()
    other: State = Counter()
    for time in times:
        one, other = found.get(time, one), expected.get(time, other)
        if one != other or any(n < 0 for n in one.values()):
            return False
    return True


def some_rows(choice: random.Random, count: int, *, keyed: bool, most: int) -> list[Row]:
    """Random changes; many leave that are not there, and many at one instant."""
    made: list[Row] = []
    time = 0
    for _ in range(count):
        time += choice.choice((0, 0, 1, 3))
        v, x = choice.choice((None, "a", "b", "")), choice.choice((None, 0.5, -0.0, float(2)))
        copies = choice.randint(1, most) * choice.choice((1, 1, -1))
        if keyed and copies < 0:
            v = x = None
        made.append((choice.choice((None, 1, 2, 3)), v, x, copies, time - choice.randrange(3)))
    return made


def table_of(rows: Sequence[Row], codes: Sequence[Any]) -> pa.Table:
    columns = list(
        zip(*[(*r[:3], code, r[4]) for r, code in zip(rows, codes, strict=True)], strict=True)
    )
    kinds = (pa.int32(), pa.string(), pa.float64(), None, pa.int64())
    names = ("id", "v", "x", "op", "ts")
    return pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=True)})


def declare(session: Session, rows: Sequence[Row], choice: random.Random, *, keyed: bool) -> None:
    """The stream ``s`` of ``rows``, with random codes where these have one copy each."""
    codes: list[Any] = [r[3] for r in rows]
    if {abs(code) for code in codes} <= {1}:
        enters, leaves = choice.choice(CODES)
        if keyed:
            leaves = tuple(c for c in leaves if c.lower() not in ("-u", "update_before"))
        codes = [choice.choice(enters if code > 0 else leaves) for code in codes]
    session.create_stream(
        "s",
        table_of(rows, codes),
        "ts",
        slack=3,
        update_key=["id"] if keyed else None,
        changelog_by="op",
    )


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
@pytest.mark.parametrize("keyed", [True, False], ids=["upsert", "retract"])
def test_random_changes_make_the_relation_of_the_model(
    keyed: bool, settings: Settings, full: bool
) -> None:
    for case in range(100 if full else 4):
        choice = random.Random(f"changelog {keyed} {case}")
        rows = some_rows(choice, 120, keyed=keyed, most=1 if keyed else choice.choice((1, 3)))
        expected = model(rows, keyed=keyed)
        final = expected[max(expected)]
        with blocks_of_eight(), cql.connect(spark=False) as session:
            apply(session, settings)
            declare(session, rows, choice, keyed=keyed)
            assert same(changelog(session, "SELECT * FROM s"), expected)
            assert rows_of(session, "SELECT * FROM s") == final
            # A column that the query does not read tells rows apart, too.
            assert rows_of(session, "SELECT v FROM s") == _sums(final, (1,))
            groups = "SELECT v, count(*), min(x), max(ts) FROM s GROUP BY v"
            found = {r[0]: r[1:] for r in rows_of(session, groups)}
            assert found == _groups(final)
            joined = "SELECT a.id, b.v FROM s AS a JOIN s AS b ON a.id = b.id AND a.x < b.x"
            assert rows_of(session, joined) == _joined(final)


def _sums(state: State, columns: Sequence[int]) -> State:
    made: State = Counter()
    for row, n in state.items():
        made[tuple(row[c] for c in columns)] += n
    return made


def _groups(state: State) -> dict[Any, Row]:
    made: dict[Any, list[Row]] = defaultdict(list)
    for row in state.elements():
        made[row[1]].append(row)
    return {
        v: (
            len(rows),
            min((r[2] for r in rows if r[2] is not None), default=None),
            max(r[3] for r in rows),
        )
        for v, rows in made.items()
    }


def _joined(state: State) -> State:
    rows = [row for row in state.elements() if row[0] is not None and row[2] is not None]
    return Counter((a[0], b[1]) for a in rows for b in rows if a[0] == b[0] and a[2] < b[2])


@pytest.mark.parametrize("keyed", [True, False], ids=["upsert", "retract"])
def test_runs_continue_from_checkpoints(keyed: bool, full: bool) -> None:
    stopped = 0
    for case in range(60 if full else 6):
        choice = random.Random(f"checkpoint of a changelog {keyed} {case}")
        rows = some_rows(choice, 100, keyed=keyed, most=1 if keyed else choice.choice((1, 3)))
        with blocks_of_eight(), cql.connect(spark=False) as session:
            declare(session, rows, choice, keyed=keyed)
            plans = []
            for partitions in choice.choice(((0,), (1, 2, 7, 64), (1, 3))):
                session.set("runtime", "ordered" if partitions else "depth_first")
                session.set("partitions", partitions)
                session.set("workers", 1 + partitions % 2)
                plans.append((plan_of(session, "SELECT * FROM s"), dict(session.settings)))
            differ = len(plans) > 1
            stopped += stop_and_continue(
                *plans[-1], choice, stops=2, others=plans, partitions_differ=differ
            )
    assert stopped


def test_deleted_keys_and_rows_take_no_memory(session: Session) -> None:
    rows = [(k, "a" * (k % 7), 0.5, c, 2 * k + (c < 0)) for k in range(100_000) for c in (1, -1)]
    for keyed in (True, False):
        choice = random.Random(1)
        session.create_stream(
            "s",
            table_of(rows, [r[3] for r in rows]),
            "ts",
            update_key="id" if keyed else None,
            changelog_by="op",
            replace=True,
        )
        query: Any = session.sql("SELECT * FROM s EMIT CHANGES")
        assert sum(batch.num_rows for batch in query.batches()) == len(rows)
        (told,) = (m for m in query.metrics() if m["operator"].startswith("relation"))
        assert (told["held"], told["unmatched"]) == (0, 0)
        assert told["state_bytes"] < 20_000_000, choice


def test_a_delete_of_what_is_not_there_is_counted(session: Session) -> None:
    session.sql(f"CREATE STREAM s ({COLUMNS}) ORDERED BY ts CHANGELOG BY op")
    session.push("s", [(1, "a", 0.5, "d", 1), (1, "a", 0.5, "c", 2), (1, "b", 0.5, "d", 3)])
    session.end("s")
    query: Any = session.sql("SELECT id, v FROM s")
    assert query.to_arrow().to_pylist() == [{"id": 1, "v": "a"}]
    (told,) = (m for m in query.metrics() if m["operator"].startswith("relation"))
    assert (told["entered"], told["left"], told["unmatched"], told["held"]) == (1, 0, 2, 1)


@pytest.mark.parametrize("code", ["x", None, "t", ""])
def test_an_unknown_code_is_a_bad_row(code: str | None, session: Session) -> None:
    session.sql(f"CREATE STREAM s ({COLUMNS}) ORDERED BY ts CHANGELOG BY op ON BAD ROW KEEP")
    session.push("s", [(1, "a", 0.5, "c", 1), (2, "b", 0.5, code, 2), (3, "c", 0.5, "+I", 3)])
    session.end("s")
    query: Any = session.sql("SELECT id FROM s")
    assert query.to_arrow().to_pylist() == [{"id": 1}, {"id": 3}]
    (bad,) = query.bad_rows().to_pylist()
    shown = "NULL" if code is None else repr(code)
    assert bad["reason"] == f"column op: {shown} is no operation code"
    assert bad["offset"] == 1
    session.sql(
        "CREATE OR REPLACE STREAM s (id INT, op STRING, ts INT) ORDERED BY ts CHANGELOG BY op"
    )
    session.push("s", [(1, code, 1)])
    session.end("s")
    with pytest.raises(CatalogError, match="is no operation code") as refused:
        rows_of(session, "SELECT * FROM s")
    assert "codes are c, r, u, d (Debezium), +I, -U, +U, -D" in str(refused.value.hint)


def test_only_a_delete_may_lack_columns_declared_not_null(session: Session) -> None:
    session.sql("""
        CREATE STREAM s (id INT NOT NULL, v STRING NOT NULL, op STRING, ts BIGINT)
        ORDERED BY ts UPDATE KEY (id) CHANGELOG BY op ON BAD ROW KEEP
    """)
    session.push("s", [(1, "a", "c", 1), (2, "b", "c", 1), (1, None, "d", 2), (3, None, "c", 3)])
    session.end("s")
    query: Any = session.sql("SELECT id, v FROM s")
    assert query.to_arrow().to_pylist() == [{"id": 2, "v": "b"}]
    (bad,) = query.bad_rows().to_pylist()
    assert bad["reason"] == "column v: NULL in a column declared NOT NULL"


def test_a_delete_without_a_time_has_that_of_the_row_before_it() -> None:
    rows = [(1, "a", "c", 5), (1, None, "d", None), (2, "b", "c", 6), (1, "c", "c", 4)]
    for few in (1, 2, 4):
        with cql.connect(spark=False) as session:
            session.sql("""
                CREATE STREAM s (id INT, v STRING, op STRING, ts BIGINT)
                ORDERED BY ts WITHIN 5 UPDATE KEY (id) CHANGELOG BY op ON BAD ROW KEEP
            """)
            query: Any = session.sql("SELECT id, v FROM s")
            session.push("s", [(9, None, "d", None)])
            for k in range(0, len(rows), few):
                session.push("s", rows[k : k + few])
            session.end("s")
            assert summed(query) == Counter([(2, "b")])
            (bad,) = query.bad_rows().to_pylist()
            assert bad["reason"] == "a delete without an event time"


def test_the_rows_before_updates_have_no_effect_in_a_queue(session: Session) -> None:
    session.sql("""
        CREATE STREAM s (id INT, v STRING, op STRING, ts BIGINT)
        ORDERED BY ts UPDATE KEY (id) CHANGELOG BY op QUEUE IN-PLACE
    """)
    query: Any = session.sql("SELECT id, v FROM s")
    session.push("s", [(1, "a", "+I", 1), (2, "b", "+I", 1), (3, "c", "+I", 2), (1, "a", "-U", 3)])
    session.push("s", [(2, "b", "-U", 3), (2, "d", "+U", 3), (3, None, "-D", 4)])
    read = iter(query)
    found = [next(read)]
    session.end("s")
    found += read
    assert summed(found) == Counter([(1, "a"), (2, "d")])
    assert query.metrics()[0]["superseded"] == 2


def test_aggregates_and_joins_over_a_queue(session: Session) -> None:
    session.sql("""
        CREATE STREAM s (id INT, v STRING, op STRING, ts BIGINT)
        ORDERED BY ts UPDATE KEY (id) CHANGELOG BY op QUEUE IN-PLACE
    """)
    session.register_table("names", pa.table({"v": ["a", "b"], "name": ["A", "B"]}))
    rows = [(k % 5, "ab"[k % 2], "d" if k % 7 == 0 else "u", k) for k in range(1, 100)]
    last = {number: (v, op) for number, v, op, _ in rows}
    left = [v for v, op in last.values() if op == "u"]
    for query, expected in (
        ("SELECT v, count(*) AS n FROM s GROUP BY v EMIT CHANGES", Counter(left).items()),
        ("SELECT n.name FROM s JOIN names AS n ON s.v = n.v", [(v.upper(),) for v in left]),
        ("SELECT DISTINCT v FROM s EMIT CHANGES", {(v,) for v in left}),
    ):
        session.sql("""
            CREATE OR REPLACE STREAM s (id INT, v STRING, op STRING, ts BIGINT)
            ORDERED BY ts UPDATE KEY (id) CHANGELOG BY op QUEUE IN-PLACE
        """)
        asked: Any = session.sql(query)
        session.push("s", rows)
        read = iter(asked)
        found = [next(read)]
        session.end("s")
        found += read
        assert summed(found) == Counter(expected)
        assert asked.metrics()[0]["superseded"] == len(rows) - 5


def test_punctuation_between_changes(session: Session) -> None:
    session.sql("""
        CREATE STREAM s (id INT, op STRING, ts BIGINT, mark BOOLEAN)
        PUNCTUATE ON ts WHEN mark UPDATE KEY (id) CHANGELOG BY op
    """)
    rows = [(1, "+U", 3, None), (1, "-U", 5, None), (None, None, 4, True), (2, "c", 5, False)]
    session.push("s", [*rows, (3, "c", 2, False)])
    session.end("s")
    query: Any = session.sql("SELECT id, ts FROM s")
    assert summed(query.batches()) == Counter([(1, 3), (2, 5)])
    assert query.late().to_pylist()[0]["count"] == 1
    session.sql("""
        CREATE STREAM t (id INT, op STRING, ts BIGINT) PUNCTUATE ON ts UPDATE KEY (id)
        CHANGELOG BY op
    """)
    session.push("t", [(1, "+U", 3), (1, "-U", 5), cql.Punctuation("ts", 5), (2, "c", 4)])
    session.push("t", [(3, "c", 6)])
    session.end("t")
    assert rows_of(session, "SELECT id FROM t") == Counter([(1,), (3,)])


def test_late_changes_are_left_out(session: Session) -> None:
    session.sql("CREATE STREAM s (id INT, op STRING, ts BIGINT) ORDERED BY ts CHANGELOG BY op")
    session.push("s", [(1, "+", 3), (2, "+", 5), (1, "-", 4), (3, "+", 1)])
    session.end("s")
    query: Any = session.sql("SELECT id FROM s")
    assert summed(query.batches()) == Counter([(1,), (2,)])
    assert query.late().to_pylist()[0]["count"] == 2
    asked: Any = session.sql("SELECT id FROM s LATE OUTPUT INTO left_out")
    assert summed(asked.batches()) == Counter([(1,), (2,)])
    # Late changes have the copies that would have entered or left.
    assert rows_of(session, "SELECT id, _change FROM left_out") == Counter([(1, -1), (3, 1)])


def test_other_operators_follow_the_changes(session: Session) -> None:
    session.sql(
        "CREATE STREAM s (id INT, v STRING, op STRING, ts BIGINT) ORDERED BY ts CHANGELOG BY op"
    )
    rows = [
        (1, "a", "+", 1),
        (2, "a", "+", 1),
        (1, "a", "-", 2),
        (3, "b", "+", 3),
        (2, "a", "-", 4),
    ]
    session.push("s", rows)
    session.end("s")
    assert rows_of(session, "SELECT DISTINCT v FROM s") == Counter([("b",)])
    top = "SELECT id FROM s ORDER BY id DESC LIMIT 1"
    assert rows_of(session, top) == Counter([(3,)])
    entered: Any = session.sql("SELECT ISTREAM(v) FROM s")
    assert [r["v"] for b in entered.batches() for r in b.to_pylist()] == ["a", "a", "b"]
    left: Any = session.sql("SELECT DSTREAM(id) FROM s")
    assert [r["id"] for b in left.batches() for r in b.to_pylist()] == [1, 2]
    session.sql("CREATE TABLE out (_time BIGINT, _weight BIGINT, v STRING, n BIGINT)")
    session.sql("INSERT INTO out SELECT v, count(*) FROM s GROUP BY v EMIT CHANGES")
    stored = Counter[Row]()
    for _, weight, v, n in rows_of(session, "SELECT * FROM out").elements():
        stored[(v, n)] += weight
    assert +stored == Counter([("b", 1)])
    session.sql("CREATE STREAM names AS SELECT v, count(*) AS n FROM s GROUP BY v")
    assert rows_of(session, "SELECT n FROM names") == Counter([(1,)])


def test_computed_columns(session: Session) -> None:
    session.sql("""
        CREATE STREAM s (id INT, raw STRING, op STRING, twice AS id * 2, ts AS CAST(raw AS BIGINT))
        ORDERED BY ts CHANGELOG BY op
    """)
    session.push("s", [(1, "1", "+"), (2, "2", "+"), (1, "3", "-")])
    session.end("s")
    assert rows_of(session, "SELECT * FROM s") == Counter([(2, "2", 4, 2)])
    described: Any = session.sql("DESCRIBE s")
    assert [row[0] for row in described.rows] == ["id", "raw", "twice", "ts"]


def test_insert_fills_the_column_of_codes(session: Session) -> None:
    session.sql("CREATE STREAM s (id INT, op STRING, ts BIGINT) ORDERED BY ts CHANGELOG BY op")
    session.sql("INSERT INTO s VALUES (1, 'c', 1), (2, 'c', 1), (1, 'd', 2)")
    session.end("s")
    assert rows_of(session, "SELECT id FROM s") == Counter([(2,)])
    described: Any = session.sql("DESCRIBE s")
    assert described.rows[1][3] == "operation codes"


@pytest.fixture
def recorded(spark: Any) -> Iterator[Any]:
    """A database of Spark that the other tests do not see."""
    spark.sql("CREATE DATABASE recorded")
    yield spark
    spark.sql("DROP DATABASE recorded CASCADE")


def test_tables_of_spark(recorded: Any) -> None:
    with cql.connect(recorded) as session:
        session.sql("CREATE TABLE recorded.changes (id INT, v STRING, op STRING, ts TIMESTAMP)")
        session.sql("""
            INSERT INTO recorded.changes VALUES
            (1, 'a', 'c', TIMESTAMP '2024-05-01 12:00:00'),
            (2, 'b', 'c', TIMESTAMP '2024-05-01 12:00:01'),
            (1, 'c', 'u', TIMESTAMP '2024-05-01 12:00:02'),
            (2, NULL, 'd', TIMESTAMP '2024-05-01 12:00:03')
        """)
        clauses = "ORDERED BY ts UPDATE KEY (id) CHANGELOG BY op"
        session.sql(f"CREATE STREAM recorded.changing FROM TABLE recorded.changes {clauses}")
        assert rows_of(session, "SELECT id, v FROM recorded.changing") == Counter([(1, "c")])
        counted = "SELECT v, count(*) FROM recorded.changing GROUP BY v"
        assert rows_of(session, counted) == Counter([("c", 1)])
        session.set("runtime", "spark")
        with pytest.raises(NotSupportedError):
            rows_of(session, counted)
        session.set("runtime", "auto")
        session.sql(f"""
            CREATE STREAM recorded.followed FROM TABLE recorded.changes
            OPTIONS (follow 'true', poll '20 ms') {clauses} QUEUE APPEND
        """)
        query: Any = session.sql("SELECT id, v FROM recorded.followed LIMIT 3")
        assert sum(batch.num_rows for batch in query) == 3
        with cql.connect(recorded) as other:  # the table keeps the declaration
            assert rows_of(other, "SELECT id, v FROM recorded.changing") == Counter([(1, "c")])


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT count(*) FROM s [RANGE 10 SLIDE 5]", "a window over a changelog"),
        ("SELECT id FROM s [NOW]", "a window over a changelog"),
        ("SELECT count(*) FROM s [ROWS 3]", "a window over a changelog"),
        ("SELECT count(*) FROM (SELECT * FROM s) [RANGE 10 SLIDE 5]", "a window over a changelog"),
        ("SELECT count(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), 5))", "a window over a"),
        ("CREATE STREAM t FROM TABLE s", "those of s are changes"),
    ],
)
def test_refused(query: str, says: str, session: Session) -> None:
    session.sql("CREATE STREAM s (id INT, op STRING, ts BIGINT) ORDERED BY ts CHANGELOG BY op")
    with pytest.raises((NotSupportedError, BindError, CatalogError), match=says):
        session.sql(query)


def test_wrong_declarations(session: Session) -> None:
    create = "CREATE STREAM s (id INT, x DOUBLE, op STRING, ts BIGINT) ORDERED BY ts"
    for clause, says in (
        ("CHANGELOG BY nothing", "there is no column nothing"),
        ("CHANGELOG BY x", "column x is double, and operation codes are texts or integers"),
        ("CHANGELOG BY ts", "is no part of a row"),
        ("UPDATE KEY (op) CHANGELOG BY op", "is no part of a row"),
    ):
        with pytest.raises(BindError, match=says):
            session.sql(f"{create} {clause}")
    with pytest.raises(ParseError, match="CHANGELOG"):
        session.sql(f"{create} CHANGELOG AVRO")
    session.sql("CREATE STREAM s (id INT, op STRING) CHANGELOG BY op")
    with pytest.raises(BindError, match="has no column with a watermark"):
        session.sql("SELECT * FROM s")
