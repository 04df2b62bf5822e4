"""Hostile text stays text: it reaches neither Python's eval nor Spark's SQL, no shell, no file."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cql
from cql.errors import CqlError
from tests.support.fuzz.hostile_texts import (
    BOMBS,
    COMPILED,
    MARK,
    PYTHON,
    REFUSED,
    RUN,
    SECRET,
    SQL,
    filled,
)
from tests.support.paths import ROOT
from tests.support.runtimes import share


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canary")
    (folder / "secret").write_text(f"{SECRET}\n")
    pq.write_table(pa.table({"n": [1], "s": [SECRET]}), folder / "secret.parquet")
    return folder


@pytest.fixture(scope="module")
def found(canary: Path) -> dict[str, Any]:
    """The report of the process that ran the texts (``hostile_run``)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fuzz.hostile_run", str(canary)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.slow
def test_no_text_reaches_python(found: dict[str, Any]) -> None:
    assert {event for event, _ in found["control"]} == {"compile", "exec"}
    assert found["events"] == []
    assert found["processes"] == []


def test_no_file_is_made_or_shown(found: dict[str, Any], canary: Path) -> None:
    assert sorted(p.name for p in canary.iterdir()) == ["secret", "secret.parquet"]
    for text, outcome, said in found["outcomes"]:
        assert SECRET not in said, (text, outcome)


def test_only_our_errors_each_with_a_place(found: dict[str, Any]) -> None:
    """No text hangs. Each text runs or raises a CqlError with a position."""
    bad = [
        (text, outcome)
        for text, outcome, _ in found["outcomes"]
        if not (outcome == "ok" or (outcome.startswith("refused") and "None" not in outcome))
    ]
    assert bad == []


def test_what_is_refused_and_what_runs(found: dict[str, Any]) -> None:
    outcomes = [outcome for _, outcome, _ in found["outcomes"]]
    assert len(outcomes) == (
        len(REFUSED) + len(RUN) * len((*PYTHON, *SQL)) + 2 * len(COMPILED) + 1 + len(BOMBS)
    )
    ran = [t for t, o, _ in found["outcomes"][: len(REFUSED)] if o == "ok"]
    assert ran == []
    stopped = [(t, o) for t, o, _ in found["outcomes"][len(REFUSED) :] if o != "ok"]
    assert stopped == []


def test_no_text_is_in_a_kernel(found: dict[str, Any]) -> None:
    """Names and literals are parameters of a kernel, never its source."""
    kernels = [k for k in found["kernels"] if "def op(" in k]
    assert len(kernels) >= 2 * len(COMPILED)
    for source in kernels:
        for piece in (MARK, "__import__", "os.system", "DROP", "__class__", SECRET):
            assert piece not in source


def test_kernels_import_only_the_library(found: dict[str, Any]) -> None:
    for source in found["kernels"]:
        text = source[source.index('"""Generated') :] if '"""Generated' in source else ""
        tree = ast.parse(text)
        for node in ast.walk(tree):
            assert not isinstance(node, ast.Import) or [a.name for a in node.names] == ["math"]
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] in ("numba", "math", "cql", "numpy")


FORBIDDEN = {"eval", "exec", "compile", "__import__"}
#: The calls that start a process or define what users wrote: (file, called name).
ALLOWED = {
    ("catalog/spark/java.py", "run"),
    ("catalog/spark/session.py", "Popen"),
    ("executor/codegen/module.py", "exec_module"),
    ("executor/jit/compiler_process.py", "Popen"),
    ("cql/functions/declare.py", "exec_module"),  # a file of functions that the user names
    (
        "cql/spark/job/functions.py",
        "compile",
    ),  # the user's functions, as source for another process
    ("cql/spark/job/functions.py", "exec"),
}


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for folder in ("cql", "planner", "executor", "catalog"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.is_symlink() or any(p.is_symlink() for p in path.parents if p != ROOT):
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call):
                    yield path.relative_to(ROOT).as_posix(), node


@pytest.mark.slow
def test_the_engine_never_evaluates() -> None:
    """Only the calls in ``ALLOWED`` start processes or call eval, exec or compile, and only two
    files send SQL to Spark."""
    for file, call in _calls():
        match call.func:
            case ast.Name(id=name):
                assert name not in FORBIDDEN or (file, name) in ALLOWED, file
            case ast.Attribute(value=ast.Name(id="os"), attr=name):
                assert name not in ("system", "popen"), file
            case ast.Attribute(value=ast.Name(id="subprocess" | "pickle" as module), attr=name):
                assert module == "subprocess", file
                assert (file, name) in ALLOWED
            case ast.Attribute(attr="exec_module"):
                assert (file, "exec_module") in ALLOWED
            case ast.Attribute(attr="selectExpr" | "expr"):
                raise AssertionError(f"{file} sends text to Spark")
            case ast.Attribute(value=ast.Name(id="session" | "spark"), attr="sql"):
                assert file in ("catalog/spark/quoting.py", "cql/show/demo.py"), file


# --------------------------------------------------------------------------- Spark


class Recorder:
    """Records every text that Spark receives to parse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyspark.sql import DataFrame, SparkSession, functions

        self.texts: list[str] = []
        for owner, name in (
            (SparkSession, "sql"),
            (DataFrame, "selectExpr"),
            (DataFrame, "filter"),
            (functions, "expr"),
        ):
            monkeypatch.setattr(owner, name, self._recording(getattr(owner, name)))

    def _recording(self, original: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self.texts += [a for a in (*args, *more.values()) if isinstance(a, str)]
            return original(*args, **more)

        return call


@pytest.mark.slow
@pytest.mark.spark
def test_hostile_names_stay_names_in_spark(
    spark: Any, canary: Path, monkeypatch: pytest.MonkeyPatch, seed: int, full: bool
) -> None:
    """By default, each name is in two of the statements."""
    words = {"dir": str(canary), "touch": f"touch {canary}/pwned", "mark": MARK}
    victim = spark.createDataFrame([(1, "x")], "n bigint, s string")
    victim.write.mode("overwrite").saveAsTable("hostile_victim")
    sent = Recorder(monkeypatch)
    with cql.connect(spark) as session:
        session.register_table("t", pa.table({"n": [1], "s": ["a"]}))
        for text in REFUSED:
            if len(text) < 1000:
                text = filled(text, **words)
                with pytest.raises(CqlError) as caught:
                    session.sql(text).to_arrow()
                assert SECRET not in str(caught.value), text
        for case, name in enumerate((*PYTHON, *SQL)):
            name = filled(name, **words).replace("DROP TABLE t", "DROP TABLE hostile_victim")
            quoted = name.replace('"', '""')
            statements = (
                f'SELECT * FROM "{quoted}"',
                f'SELECT * FROM default."{quoted}"',
                f'SELECT * FROM spark_catalog.default."{quoted}"',
                f'SELECT * FROM "{quoted}".hostile_victim',
                f'INSERT INTO default."{quoted}" SELECT n FROM t',
                f'CREATE TABLE default."{quoted}" AS SELECT n FROM t',
                f'DROP TABLE default."{quoted}"',
                f'DESCRIBE default."{quoted}"',
            )
            for text in share(statements, case, 2, seed, full=full):
                with pytest.raises(CqlError) as caught:
                    session.sql(text).to_arrow()
                assert SECRET not in str(caught.value), text
        assert session.sql("SELECT n FROM default.hostile_victim").to_arrow()["n"].to_pylist() == [
            1
        ]
    assert [t for t in sent.texts if not t.startswith("ALTER TABLE `spark_catalog`")] == []
    assert sorted(p.name for p in canary.iterdir()) == ["secret", "secret.parquet"]
    assert spark.catalog.tableExists("hostile_victim")
    spark.catalog.dropTable("hostile_victim")


@pytest.mark.spark
def test_hostile_columns_go_through_spark(spark: Any, canary: Path) -> None:
    """Columns with hostile names keep these names in a table of Spark, if files allow them."""
    words = {"dir": str(canary), "touch": f"touch {canary}/pwned", "mark": MARK}
    names = [filled(s, **words) for s in (*PYTHON, *SQL)]
    names = [n for n in names if not set(n) & set(",;{}()\n\t=\x00") and "${" not in n]
    assert len(names) >= 5
    with cql.connect(spark) as session:
        columns = {n: [k] for k, n in enumerate(names)}
        session.register_table("t", pa.table(columns))
        session.sql("CREATE TABLE default.hostile_columns AS SELECT * FROM t")
        back = session.sql("SELECT * FROM default.hostile_columns").to_arrow()
        assert set(names) <= set(back.column_names)
        assert {n: back[n].to_pylist() for n in names} == columns
        session.sql("DROP TABLE default.hostile_columns")
    assert sorted(p.name for p in canary.iterdir()) == ["secret", "secret.parquet"]
