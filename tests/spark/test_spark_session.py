"""Starting, losing and replacing the Spark session; the registry; names that are no SQL."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cql.catalog.spark import metadata, quoting, registry, session
from cql.catalog.spark.tables import table
from cql.catalog.spark.tables.files import escaped
from cql.catalog.spark.tables.table import Table
from cql.errors import CatalogError
from tests.support.paths import ROOT

HOSTILE = [
    "x; DROP TABLE canary",
    "x`; DROP TABLE canary; --",
    "it's",
    'say "hi"',
    "a\\'b",
    "${env:HOME}",
    "$HOME",
    "../../canary",
    "naïve ☃",
    "select",
    "a b",
]


def run_python(
    code: str, tmp_path: Path, *, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` in a fresh interpreter with an empty working folder and a cache of its own;
    warnings are errors."""
    place = tmp_path / "cwd"
    place.mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_HOME")}
    kept |= {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PYTHONPATH": str(ROOT),
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=place,
        env=kept,
        timeout=timeout,
        check=False,
    )


def programs_without_java(tmp_path: Path) -> str:
    """A PATH with the programs that Spark's launcher and Hadoop's local files need, and no java."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "head", "env", "chmod", "ls", "readlink", "stat"):
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return str(folder)


@pytest.mark.slow
@pytest.mark.spark
def test_a_machine_without_java_a_start_that_fails_and_a_lost_jvm(tmp_path: Path) -> None:
    """A start that fails says why, and leaves nothing behind."""
    done = run_python(
        """
        import gc, os, shutil, signal, warnings
        from cql.catalog.spark import session as s
        from cql.catalog.spark.tables.stream import StreamingFrame
        from cql.errors import CatalogError
        assert shutil.which("java") is None and "JAVA_HOME" not in os.environ
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # pyspark drops the pipe of a dead JVM
            try:
                s.start({"spark.driver.extraJavaOptions": "-XX:MaxRAM=nonsense"})
            except CatalogError as error:
                print(ascii(str(error)))
            gc.collect()
        session = s.start()
        assert session.range(3).count() == 3
        assert s.start() is session and s.is_own(session) and s.is_alive(session)
        pid = s._own.process.pid
        assert os.getsid(pid) == pid != os.getsid(0)
        print(session.sparkContext._jvm.java.lang.System.getProperty("java.version"))
        rates = session.readStream.format("rate").option("rowsPerSecond", 1000).load()
        reader = StreamingFrame(rates, "stream r").open(["value"])
        while not reader.next(1.0).batch.num_rows:
            pass
        os.kill(pid, signal.SIGKILL)
        try:
            while True:
                reader.next(1.0)
        except CatalogError as error:
            print(error)
        reader.close()
        assert not s.is_alive(session)
        session = s.start()
        assert session.range(5).count() == 5
        os.kill(s._own.process.pid, signal.SIGKILL)
        s._own.process.wait()
        try:
            s.start()
        except CatalogError as error:
            print(error.message)
        session = s.start()
        assert session.range(6).count() == 6
        session.stop()
        assert not s.is_alive(session)
        session = s.start()
        assert session.range(7).count() == 7
        print(s.log_of(session), s.warehouse_of(session))
        print("JAVA_HOME" in os.environ, "SPARK_HOME" in os.environ)
        """,
        tmp_path,
        timeout=900,  # four JVMs in turn, each 9 s of CPU time
        PATH=programs_without_java(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    failed, version, lost, hint, idle, places, leaked = done.stdout.splitlines()
    assert failed[1:].startswith("Spark could not start")
    assert "MaxRAM" in failed
    assert str(tmp_path / "cache") in failed
    assert version.startswith("25.")
    # Either call may meet the loss first: the check that Spark runs, or the read of a batch.
    killed = "Spark's Java process was killed by SIGKILL while "
    assert lost in (f"{killed}following stream r", f"{killed}reading stream r")
    assert "fresh Spark session" in hint
    assert str(tmp_path / "cache") in hint
    assert idle == "Spark's Java process was killed by SIGKILL while the session was idle"
    assert places.startswith(str(tmp_path / "cache"))
    assert places.endswith(str(tmp_path / "data" / "cql-streams" / "warehouse"))
    assert leaked == "False False"
    # Nothing is printed, and nothing is left in the working folder.
    assert done.stderr == ""
    assert list((tmp_path / "cwd").iterdir()) == []


@pytest.mark.slow
@pytest.mark.spark
def test_a_session_of_the_user_is_used_and_left_alone(tmp_path: Path) -> None:
    done = run_python(
        """
        import os, warnings
        from pathlib import Path
        import cql
        import pyarrow as pa
        from cql.catalog.spark import java, registry, metadata, session as s
        from cql.catalog.spark.tables.files import table_files
        from cql.catalog.spark.tables.read import read_batches
        from cql.catalog.spark.tables.write import EpochWriter
        from cql.errors import CatalogError
        os.environ["JAVA_HOME"] = str(java.java_home())
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession
        own = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        own = own.config("spark.sql.warehouse.dir", "../own").getOrCreate()
        assert s.start() is own and not s.is_own(own) and s.is_alive(own)
        assert s.log_of(own) is None
        with EpochWriter(own, "t", pa.schema([("k", pa.int64())]), create=True) as writer:
            writer.write(pa.record_batch({"k": [1, 2]}))
            writer.commit()
        metadata.set_properties(own, "t", {"cql.a": "b"})
        assert metadata.get_properties(own, "t") == {"cql.a": "b"}
        assert own.sql("select sum(k) from t").collect()[0][0] == 3
        assert [x.batch["k"].to_pylist() for x in read_batches(table_files(own, "t"))] == [[1, 2]]
        cql.connect(spark=own).sql("CREATE STREAM s FROM TABLE t ORDERED BY k")
        with cql.connect(spark=own) as c:
            assert c.sql("SHOW STREAMS").to_arrow()["stream"].to_pylist() == ["default.s"]
            assert c.sql("SELECT k FROM s").to_arrow()["k"].to_pylist() == [1, 2]
        assert registry.names(own) == [] and not Path("../own/_cql").exists()
        s.stop()
        assert s.is_alive(own)
        own.stop()
        try:
            with s.spark_call(own, "looking"):
                own.range(1).count()
        except CatalogError as error:
            print(error.message)
        session = s.start()
        assert s.is_own(session) and session.range(2).count() == 2
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the Spark session was stopped or lost while looking\n"


@pytest.mark.slow
@pytest.mark.spark
def test_the_tables_of_an_earlier_process_come_back(tmp_path: Path) -> None:
    code = """
        from pathlib import Path
        import cql
        import pyarrow as pa
        from cql.catalog.spark import registry, metadata, session as s
        from cql.catalog.spark.tables import files as spark_files
        from cql.catalog.spark.tables.write import EpochWriter
        session = s.start(warehouse=Path("../wh").resolve())
        step = STEP
        if step == 1:
            session.catalog.createDatabase("shop")
            with EpochWriter(session, "shop.orders", pa.schema([("k", pa.int64())]), True) as w:
                w.write(pa.record_batch({"k": [1, 2, 3]}))
                w.commit()
            metadata.set_properties(session, "shop.orders", {"cql.stream": "it's ${env:HOME}"})
            both = session.range(4).withColumnRenamed("id", "p")
            both.withColumn("v", both.p).write.partitionBy("p").saveAsTable("other")
            registry.record(session, "other")
            with cql.connect(spark=session) as c:
                c.sql("CREATE STREAM late FROM TABLE other ORDERED BY v")
                c.sql(
                    "CREATE TABLE shop.latest (k INT PRIMARY KEY, v INT) WITH ('upsert' = 'log');"
                    "INSERT INTO shop.latest VALUES (1, 1), (2, 2), (1, 3)"
                )
        else:
            assert not session.catalog.databaseExists("shop")
            names = ["default.other", "shop.latest_log", "shop.orders"]
            assert registry.names(session) == names
            assert metadata.get_properties(session, "shop.orders") == {
                "cql.stream": "it's ${env:HOME}"
            }
            assert sorted(r.k for r in session.sql("select * from shop.orders").collect()) == [
                1, 2, 3
            ]
            with EpochWriter(session, "shop.orders", pa.schema([("k", pa.int64())])) as w:
                assert w.last_epoch == 1
            with cql.connect(spark=session) as c:
                assert c.sql("SHOW STREAMS").to_arrow()["stream"].to_pylist() == ["default.late"]
                assert c.sql("SELECT v FROM late").to_arrow().num_rows == 4
                shown = c.sql("SHOW TABLES").to_arrow()["table"].to_pylist()
                assert [name for name in shown if "latest" in name] == [
                    "shop.latest", "shop.latest_log"
                ]
                c.sql("INSERT INTO shop.latest VALUES (2, 4)")
                found = c.sql("SELECT * FROM shop.latest ORDER BY k").to_arrow()
                assert found.to_pylist() == [{"k": 1, "v": 3}, {"k": 2, "v": 4}]
                assert session.table("shop.latest").count() == 2
                c.sql("DROP TABLE shop.latest")
                assert not registry.ensure(session, "shop.latest_log")
            assert session.table("other").count() == 4
            files = spark_files.table_files(session, "other")
            assert [f.partition for f in files.files] == [(0,), (1,), (2,), (3,)]
            session.catalog.dropTable("other")
            assert not registry.ensure(session, "other")
            assert registry.names(session) == ["shop.orders"]
            assert registry.drop(session, "shop.orders")
            assert registry.names(session) == []
        """
    for step in ("1", "2"):
        done = run_python(code.replace("STEP", step), tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""


@pytest.mark.spark
def test_one_session_serves_all(spark: Any) -> None:
    assert session.start() is spark
    assert session.is_own(spark)
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.spark
def test_settings_are_set_or_must_agree(spark: Any) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        session.start({"spark.sql.shuffle.partitions": "7"})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    session.start({"spark.ui.enabled": "false"})
    with pytest.raises(CatalogError, match=r"spark\.driver\.memory is '2g'"):
        session.start({"spark.driver.memory": "3g"})
    with pytest.raises(CatalogError, match="has its warehouse in"):
        session.start(warehouse=Path("elsewhere"))


@pytest.mark.spark
def test_errors_of_spark_become_ours(spark: Any) -> None:
    with (
        pytest.raises(CatalogError, match=r"while reading it: \[TABLE_OR_VIEW_NOT_FOUND\]"),
        session.spark_call(spark, "reading it"),
    ):
        spark.table("nowhere")
    with pytest.raises(ZeroDivisionError), session.spark_call(spark, "computing"):
        _ = 1 // 0


def test_names_are_split_by_dots_outside_backticks() -> None:
    parts = quoting.name_parts
    assert parts("t") == ("t",)
    assert parts("a.b.c") == ("a", "b", "c")
    assert parts("a.`b.``c`.d e; f") == ("a", "b.`c", "d e; f")
    assert parts(["x.y", "z"]) == ("x.y", "z")
    assert quoting.quoted("a.`b.``c`") == "`a`.`b.``c`"
    for wrong in ("", "a.", ".a", "a..b", "a.b.c.d", "`a", "`a`b", "a\nb", "a\0b", "``"):
        with pytest.raises(CatalogError):
            parts(wrong)


def test_literals_keep_every_character_inside_the_quotes() -> None:
    assert quoting.literal(None) == "NULL"
    assert quoting.literal("plain ☃") == "'plain ☃'"
    assert quoting.literal("'\"\\") == "'\\'\\\"\\\\'"
    assert quoting.literal("${env:HOME}\n") == "'\\u0024{env:HOME}\\u000a'"
    with pytest.raises(CatalogError):
        quoting.literal("a\0b")


@pytest.fixture(scope="module")
def canary(spark: Any) -> None:
    """A table of one row, which no hostile text may change."""
    spark.range(1).write.mode("overwrite").saveAsTable("canary")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("canary")
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_partition_values_stay_values(spark: Any, tmp_path: Path, text: str) -> None:
    schema = StructType([StructField("v", LongType()), StructField("p", StringType())])
    name = ("spark_catalog", "default", "hostile_partitions")
    folder = tmp_path / "data"
    folder.mkdir()
    table.create(spark, Table(name, schema, "parquet", str(folder), ("p",)))
    try:
        add = quoting.Template.ADD_PARTITIONS
        quoting.run(spark, add, table=name, partitions=[{"p": text}, {"p": None}])
        listed = {p.partition for p in spark.catalog.listPartitions("hostile_partitions")}
        assert listed == {"p=" + escaped(text), "p=__HIVE_DEFAULT_PARTITION__"}
        assert [entry.name for entry in tmp_path.iterdir()] == ["data"]
    finally:
        spark.catalog.dropTable("hostile_partitions")
    assert spark.table("canary").count() == 1


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("canary")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_table_names_stay_names(spark: Any, name: str) -> None:
    for given in (name, (name,), ("default", name)):
        if isinstance(given, str) and given.startswith("."):
            continue
        assert not registry.ensure(spark, given)
        with pytest.raises(CatalogError, match="there is no table"):
            metadata.get_properties(spark, given)
    add = quoting.Template.ADD_PARTITIONS
    with pytest.raises(CatalogError):
        quoting.run(spark, add, table=(name,), partitions=[{name: name}])
    assert spark.table("canary").count() == 1
    assert (session.warehouse_of(spark) / "canary").is_dir()


@pytest.mark.spark
@pytest.mark.usefixtures("canary")
def test_hostile_property_values_come_back_as_they_are(spark: Any) -> None:
    properties = {f"cql.{i}.{text}": text for i, text in enumerate(HOSTILE)}
    properties["cql.password.token"] = "not redacted"
    properties["cql.lines"] = "a\n\tb"
    metadata.set_properties(spark, "canary", properties)
    assert metadata.get_properties(spark, "default.canary") == properties
    metadata.set_properties(spark, "CANARY", dict.fromkeys(properties))
    assert metadata.get_properties(spark, "canary") == {}
    assert spark.table("canary").count() == 1
    with pytest.raises(CatalogError, match="no property of ours"):
        metadata.set_properties(spark, "canary", {"location": "/elsewhere"})


@pytest.mark.spark
def test_temporary_views_have_no_properties(spark: Any) -> None:
    spark.range(1).createOrReplaceTempView("passing")
    assert metadata.get_properties(spark, "passing") == {}
    with pytest.raises(CatalogError, match="temporary view"):
        metadata.set_properties(spark, "passing", {"cql.x": "1"})


@pytest.mark.spark
def test_folder_names_are_escaped_as_spark_does(spark: Any) -> None:
    utils = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    text = "".join(map(chr, range(1, 256))) + "☃𝄞"
    assert escaped(text) == utils.escapePathName(text)


@pytest.mark.spark
def test_only_fixed_statements_may_be_sent(spark: Any) -> None:
    with pytest.raises(CatalogError, match="only the fixed statements"):
        quoting.run(spark, "DROP TABLE {table}", table="canary")


@pytest.mark.spark
def test_a_damaged_registry_entry_is_named(spark: Any) -> None:
    file = session.warehouse_of(spark) / registry.FOLDER / "default.damaged.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"format": 99}), encoding="utf-8")
    try:
        with pytest.raises(CatalogError, match=r"default\.damaged\.json"):
            registry.ensure(spark, "damaged")
    finally:
        file.unlink()


def test_no_other_module_sends_text_to_spark() -> None:
    """``sql``, ``expr`` and ``selectExpr`` parse text; only ``quoting.run`` calls one."""
    parsing = {"sql", "expr", "selectExpr", "filter", "where"}
    found: list[tuple[str, str, str]] = []
    for folder in ("cql", "catalog", "planner", "executor"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if "pyspark" not in text:
                continue  # sqlglot's nodes also have a method sql
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    if node.func.attr not in parsing:
                        continue
                    found.append((file.name, node.func.attr, ast.unparse(node)))
    assert [call for call in found if call[1] in ("sql", "expr", "selectExpr")] == [
        ("quoting.py", "sql", "session.sql(statement)")
    ]
    # ``filter`` and ``where`` take columns or text: ours pass columns.
    assert all("path.isin(" in call for _, name, call in found if name in ("filter", "where"))
