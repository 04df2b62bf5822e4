"""Streams of Debezium envelopes: from files, Arrow tables, pushed rows and iterables."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.base.model import Field, Schema
from cql.base.types import INT, STRING, TIMESTAMP
from cql.catalog.changelogs.debezium import flat_lines, stored_schema
from cql.catalog.files.envelopes import EnvelopeLines, of_envelopes
from cql.catalog.files.json_lines import JsonFormat, members
from cql.catalog.files.text import Wanted
from cql.catalog.options import Options
from cql.errors import BindError, CatalogError, CqlError
from cql.planner.nodes.catalog import Changelog, Progress, StreamSpec
from cql.session.session import Session
from tests.support.catalog_tools import blocks_of_eight
from tests.support.run_checkpoints import plan_of, stop_and_continue
from tests.support.runtimes import RUNTIMES, Settings, apply, named
from tests.support.updates.changes import rows_of, summed

Envelope = dict[str, Any] | None
UPSERT, RETRACT = "UPDATE KEY (id)", ""
COLUMNS = "(id INT NOT NULL, name STRING NOT NULL, amount DOUBLE, ts_ms BIGINT)"
#: An order comes, changes, and goes.
ORDERS: list[Envelope] = [
    {"before": None, "after": {"id": 1, "name": "ann", "amount": 2.5}, "op": "r", "ts_ms": 10},
    {"before": None, "after": {"id": 2, "name": "bob", "amount": None}, "op": "c", "ts_ms": 20},
    {
        "before": {"id": 1, "name": "ann", "amount": 2.5},
        "after": {"id": 1, "name": "ann", "amount": 4.0},
        "source": {"table": "orders", "lsn": 7},
        "op": "u",
        "ts_ms": 20,
    },
    {"before": {"id": 2, "name": "bob", "amount": None}, "after": None, "op": "d", "ts_ms": 30},
    None,
]
FINAL = Counter([(1, "ann", 4.0, 20)])
ROW = pa.struct([("id", pa.int32()), ("name", pa.string()), ("amount", pa.float64())])
SOURCE = pa.struct([("table", pa.string()), ("lsn", pa.int64())])
SCHEMA = pa.schema(
    [
        ("before", ROW),
        ("after", ROW),
        ("source", SOURCE),
        ("op", pa.string()),
        ("ts_ms", pa.int64()),
    ]
)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        yield made


def lines(envelopes: list[Envelope], *, payload: bool = False) -> str:
    shown = [{"schema": {"type": "struct"}, "payload": e} if payload else e for e in envelopes]
    return "".join(json.dumps(e) + "\n" for e in shown)


def table_of(envelopes: list[Envelope], *, payload: bool = False) -> pa.Table:
    table = pa.Table.from_pylist([e or {} for e in envelopes], SCHEMA)
    if not payload:
        return table
    whole = pa.StructArray.from_arrays(
        [column.combine_chunks() for column in table.columns], fields=list(SCHEMA)
    )
    return pa.table({"payload": whole, "offset": pa.array(range(len(table)))})


@pytest.mark.parametrize("clause", [UPSERT, RETRACT], ids=["upsert", "retract"])
@pytest.mark.parametrize("payload", [False, True], ids=["bare", "in payload"])
@pytest.mark.parametrize("kind", ["json", "parquet", "arrow", "pushed", "pushed table"])
def test_every_source(
    kind: str, payload: bool, clause: str, session: Session, tmp_path: Path
) -> None:
    path = tmp_path / f"orders.{kind}"
    using = f"USING {kind} OPTIONS (path '{path}')"
    if kind == "json":
        path.write_text(lines(ORDERS, payload=payload))
    elif kind == "parquet":
        pq.write_table(table_of(ORDERS, payload=payload), path)
    elif kind == "arrow":
        table = table_of(ORDERS, payload=payload)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    else:
        using = ""
    session.sql(
        f"CREATE STREAM orders {COLUMNS} {using} ORDERED BY ts_ms {clause} CHANGELOG DEBEZIUM"
    )
    if kind == "pushed":
        session.push("orders", [{"payload": e} if payload else e for e in ORDERS])
    elif kind == "pushed table":
        session.push("orders", table_of(ORDERS, payload=payload))
    if not using:
        session.end("orders")
    assert rows_of(session, "SELECT * FROM orders") == FINAL
    sums = "SELECT name, sum(amount) FROM orders GROUP BY name"
    assert rows_of(session, sums) == Counter([("ann", 4.0)])
    described: Any = session.sql("DESCRIBE orders")
    assert [row[0] for row in described.rows] == ["id", "name", "amount", "ts_ms"]


@pytest.mark.parametrize("update_key", ["id", None])
def test_create_stream_finds_the_columns(
    update_key: str | None, session: Session, tmp_path: Path
) -> None:
    path = tmp_path / "orders.json"
    path.write_text(lines(ORDERS))
    table = table_of(ORDERS)
    data: list[Any] = [
        *(ORDERS, iter(ORDERS), lambda: iter(ORDERS), table, table.to_reader(), str(path)),
        table_of(ORDERS, payload=True),
    ]
    for one in data:
        session.create_stream(
            "orders", one, "ts_ms", update_key=update_key, changelog="debezium", replace=True
        )
        assert rows_of(session, "SELECT id, name, amount, ts_ms FROM orders") == FINAL


def test_times_of_the_envelope_and_of_the_row(session: Session) -> None:
    session.sql("""
        CREATE STREAM s (id INT, ts_ms TIMESTAMP) ORDERED BY ts_ms UPDATE KEY (id)
        CHANGELOG DEBEZIUM
    """)
    session.push("s", [{"after": {"id": 1}, "op": "c", "ts_ms": 1_700_000_000_123}])
    session.end("s")
    at = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC)
    assert rows_of(session, "SELECT * FROM s") == Counter([(1, at)])
    # The row's own time comes first.
    session.sql("CREATE STREAM t (id INT, ts BIGINT) ORDERED BY ts CHANGELOG DEBEZIUM")
    one, other = {"id": 1, "ts": 5}, {"id": 1, "ts": 8}
    session.push("t", [{"after": one, "op": "c"}, {"before": one, "after": other, "op": "u"}])
    session.end("t")
    changes: Any = session.sql("SELECT * FROM t")
    found = [tuple(r.values()) for b in changes.batches() for r in b.to_pylist()]
    assert found == [(5, 1, 1, 5), (8, -1, 1, 5), (8, 1, 1, 8)]


def test_tombstones_and_keys(session: Session) -> None:
    session.sql(f"CREATE STREAM s {COLUMNS} ORDERED BY ts_ms UPDATE KEY (id) CHANGELOG DEBEZIUM")
    row = {"name": "x", "amount": None}
    envelopes: list[Any] = [
        *({"after": {"id": k, **row}, "op": "c", "ts_ms": k} for k in range(1, 8)),
        ({"id": 1}, None),  # a pair of a key and an envelope
        ({"schema": None, "payload": {"id": 2}}, None),
        {"id": 3, "payload": None},
        {"key": {"id": 4}, "value": None},
        {"before": {"id": 5}, "op": "d", "ts_ms": 9},  # the key alone is written of a row
        ({"id": 6}, {"before": None, "after": None, "op": "d", "ts_ms": 9}),
        # An update of the key: the row of the old one leaves.
        {"before": {"id": 7, **row}, "after": {"id": 8, **row}, "op": "u", "ts_ms": 10},
    ]
    session.push("s", envelopes)
    session.end("s")
    assert rows_of(session, "SELECT id, ts_ms FROM s") == Counter([(8, 10)])


def test_bad_envelopes(session: Session) -> None:
    row = {"id": 1, "name": "x", "amount": 1.0}
    bad: dict[str, Mapping[str, Any]] = {
        "op 't', a truncated table, is not supported": {"op": "t", "ts_ms": 1},
        "op: 'm' is no operation code": {"op": "m", "ts_ms": 1},
        "op: NULL is no operation code": {"after": row, "ts_ms": 1},
        "after is NULL, and the row enters": {"before": row, "op": "c", "ts_ms": 1},
        "before is NULL, and the row that leaves is not known": {"op": "d", "ts_ms": 1},
        "column name: NULL in a column declared NOT NULL": {
            "before": row,
            "after": {**row, "name": None},
            "op": "u",
            "ts_ms": 2,
        },
    }
    for clause in (UPSERT, RETRACT):
        session.sql(f"""
            CREATE OR REPLACE STREAM s {COLUMNS} ORDERED BY ts_ms {clause} CHANGELOG DEBEZIUM
            ON BAD ROW KEEP
        """)
        session.push("s", [{"after": row, "op": "c", "ts_ms": 1}, *bad.values()])
        session.end("s")
        query: Any = session.sql("SELECT id, name FROM s")
        assert query.to_arrow().to_pylist() == [{"id": 1, "name": "x"}]
        told = query.bad_rows().to_pylist()
        assert [one["reason"] for one in told] == list(bad)
        assert [one["offset"] for one in told] == list(range(1, 7))
    session.sql(f"CREATE STREAM r {COLUMNS} ORDERED BY ts_ms CHANGELOG DEBEZIUM")
    session.push("r", [{"after": row, "op": "u", "ts_ms": 1}])
    session.end("r")
    with pytest.raises(CatalogError, match="before is NULL") as refused:
        rows_of(session, "SELECT * FROM r")
    assert "declare UPDATE KEY" in str(refused.value.hint)


def test_bad_lines_of_a_file(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    good = lines(ORDERS[:1])
    path.write_text(
        good
        + '{"after": {"id": "x", "name": "y"}, "op": "c", "ts_ms": 1}\n[1]\n{"after": \n'
        + good
    )
    session.sql(f"""
        CREATE STREAM s {COLUMNS} USING json OPTIONS (path '{path}') ORDERED BY ts_ms
        UPDATE KEY (id) CHANGELOG DEBEZIUM ON BAD ROW KEEP
    """)
    query: Any = session.sql("SELECT id FROM s")
    assert query.to_arrow().to_pylist() == [{"id": 1}]
    told = [one["reason"] for one in query.bad_rows().to_pylist()]
    assert [t.partition("line ")[2][0] for t in told] == ["2", "3", "4"]
    assert "column after.id" in told[0]


def some_lines(choice: random.Random) -> bytes:
    """Envelopes of all forms: inside others, with keys, null, in other letters, with numbers as
    texts."""

    def row() -> Any:
        name = choice.choice(["a", None, "b", *(["é", 5] if choice.random() < 0.1 else [])])
        at = choice.choice([None, "2024-01-01T00:00:00Z"])
        return choice.choice([None, {}, {"id": choice.randrange(4), "name": name, "at": at}])

    def one() -> Any:
        made: Any = {"before": row(), "after": row(), "op": choice.choice(["c", "u", None])}
        made |= {"ts_ms": choice.choice([None, 5])}
        keys = [{"id": 7}, {"schema": None, "payload": {"id": 8}}, None]
        forms = [
            {"payload": choice.choice([made, made, None]), "schema": {"a": 1}},
            {"key": choice.choice(keys), "value": choice.choice([made, None])},
            *({**made, "id": 9}, {"after": made["after"], "op": "c"}, {"After": row()}, None),
        ]
        return choice.choice(forms) if choice.random() < 0.4 else made

    return "".join(json.dumps(one()) + "\n" for _ in range(choice.randrange(1, 6))).encode()


def test_lines_read_together_are_those_read_one_by_one(full: bool) -> None:
    rows = Schema((Field("id", INT), Field("name", STRING), Field("at", TIMESTAMP)))
    spec = StreamSpec((Progress("ts_ms"),), ("id",), changelog=Changelog(None))
    stored = stored_schema(rows, spec)
    plain = JsonFormat(Options({}, "s"), stored.fields)
    lines_of, wanted = of_envelopes(plain, "s"), Wanted("s.json", stored.fields, stored.names, [])
    assert isinstance(lines_of, EnvelopeLines)
    for case in range(2_000 if full else 300):
        data = some_lines(random.Random(f"lines {case}"))
        expected = plain.parse(flat_lines(data, members), wanted)
        assert lines_of.parse(data, wanted).equals(expected), data


def test_followed_files(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(lines(ORDERS[:3]))
    session.sql(f"""
        CREATE STREAM s {COLUMNS} USING json OPTIONS (path '{tmp_path}', follow 'true', poll '1 ms')
        ORDERED BY ts_ms UPDATE KEY (id) CHANGELOG DEBEZIUM QUEUE APPEND
    """)
    query: Any = session.sql("SELECT id, name, amount FROM s LIMIT 4")
    with path.open("a") as file:
        file.write(lines(ORDERS[3:]))
        file.write(lines([{"after": {"id": 9, "name": "z"}, "op": "c", "ts_ms": 99}]))
    changes = [tuple(r.values())[1:] for b in query for r in b.to_pylist()]
    assert Counter(changes) == Counter(
        [(1, 1, "ann", 2.5), (1, 2, "bob", None), (1, 1, "ann", 4.0), (-1, 1, "ann", 2.5)]
    )


def some_envelopes(choice: random.Random, count: int) -> list[Envelope]:
    """A random history of a table, in the order of its time."""
    table: dict[int, dict[str, Any]] = {}
    made: list[Envelope] = []
    for time in range(count):
        key = choice.randrange(5)
        row = {"id": key, "name": choice.choice("ab"), "amount": choice.choice((None, 1.5, 2.0))}
        before = table.get(key)
        leaves = before is not None and choice.random() < 0.4
        op = "d" if leaves else "c" if before is None else "u"
        made.append(
            {
                "before": before,
                "after": None if leaves else row,
                "source": None,
                "op": op,
                "ts_ms": time // 3,
            }
        )
        if leaves:
            del table[key]
            made.append(None)
        else:
            table[key] = row
    return made


def last_rows(envelopes: list[Envelope]) -> Counter[tuple[Any, ...]]:
    table: dict[int, tuple[Any, ...]] = {}
    for e in envelopes:
        if e is not None and e["op"] == "d":
            del table[e["before"]["id"]]
        elif e is not None:
            table[e["after"]["id"]] = (*e["after"].values(), e["ts_ms"])
    return Counter(table.values())


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_random_histories(settings: Settings, full: bool) -> None:
    for case in range(100 if full else 3):
        choice = random.Random(f"history {case}")
        envelopes = some_envelopes(choice, choice.choice((1, 40, 200)))
        expected = last_rows(envelopes)
        rows = [row for e in envelopes if e for row in (e["before"], e["after"]) if row]
        if not all(any(row[name] is not None for row in rows) for name in ("name", "amount")):
            continue  # a column of NULLs alone has no type
        for key in ("id", None):
            with blocks_of_eight(), cql.connect(spark=False) as session:
                apply(session, settings)
                data = choice.choice((envelopes, table_of(envelopes)))
                session.create_stream("s", data, "ts_ms", update_key=key, changelog="debezium")
                columns = "id, name, amount, ts_ms"
                assert rows_of(session, f"SELECT {columns} FROM s") == expected
                assert summed(session.sql(f"SELECT {columns} FROM s").batches()) == expected
                counted = rows_of(session, "SELECT name, count(*) FROM s GROUP BY name")
                assert counted == Counter(Counter(r[1] for r in expected).items())


@pytest.mark.parametrize("key", ["id", None])
def test_runs_continue_from_checkpoints(key: str | None, full: bool) -> None:
    stopped = 0
    for case in range(40 if full else 4):
        choice = random.Random(f"checkpoint of a history {case}")
        with blocks_of_eight(), cql.connect(spark=False) as session:
            table = table_of(some_envelopes(choice, 100))
            session.create_stream("s", table, "ts_ms", update_key=key, changelog="debezium")
            plans = []
            for partitions in choice.choice(((0,), (1, 2, 7))):
                session.set("runtime", "ordered" if partitions else "depth_first")
                session.set("partitions", partitions)
                plans.append((plan_of(session, "SELECT * FROM s"), dict(session.settings)))
            stopped += stop_and_continue(
                *plans[-1], choice, stops=2, others=plans, partitions_differ=len(plans) > 1
            )
    assert stopped


def test_refused(session: Session, tmp_path: Path) -> None:
    clauses = "ORDERED BY ts_ms CHANGELOG DEBEZIUM"
    session.sql("CREATE TABLE t (id INT, ts_ms BIGINT)")
    path = tmp_path / "a.csv"
    path.write_text("id,ts_ms\n")
    for text, says in (
        (f"CREATE STREAM s FROM TABLE t {clauses}", "reads files, pushed rows and data in Python"),
        (
            f"CREATE STREAM s (id INT, ts_ms INT) USING csv OPTIONS (path '{path}') {clauses}",
            "a CSV file has no Debezium envelopes",
        ),
        (f"CREATE STREAM s USING rate {clauses}", "of format rate has no Debezium envelopes"),
    ):
        with pytest.raises(CqlError, match=says):
            session.sql(text)
    with pytest.raises(CatalogError, match="has no Debezium envelopes"):
        session.create_stream("s", [{"id": 1}], "id", changelog="debezium")
    session.sql(f"CREATE STREAM s (id INT, ts_ms BIGINT) {clauses}")
    with pytest.raises(BindError, match="takes Debezium envelopes"):
        session.sql("INSERT INTO s VALUES (1, 2)")
    with pytest.raises(CatalogError, match="tuple is no Debezium envelope"):
        session.push("s", [(1, 2, 3)])
