"""The command line: which output goes to stdout or stderr, and the exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cql import __version__
from cql.base.settings import Settings
from cql.repl import cli as command
from cql.repl.screen import has_no_reader
from cql.session.session import Session
from tests.support.fake_run import FakeRun
from tests.support.paths import ROOT
from tests.support.terminal import invoke

SETUP = "CREATE TABLE t (n BIGINT, s STRING);"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The fake runs that the command's queries take in turn; its sessions have no Spark."""
    queue: list[Any] = []

    def connect(**settings: Any) -> Session:
        return Session(False, settings=Settings.of(**settings), run=lambda *_: queue.pop(0))

    monkeypatch.setattr("cql.session.session.connect", connect)
    return queue


def rows(**columns: list[Any]) -> FakeRun:
    return FakeRun(pa.record_batch(columns))


def test_version() -> None:
    assert invoke("--version").stdout.split() == ["cql,", "version", __version__]


def test_csv_into_a_pipe(runs: list[Any]) -> None:
    runs.append(rows(n=[1, None], s=["a,b", "c"]))
    result = invoke("-c", f"{SETUP} SELECT n, s FROM t")
    assert result.exit_code == 0, result.output
    assert result.stdout == 'n,s\n1,"a,b"\n,c\n'
    assert result.stderr == ""


def test_a_file_by_its_name_alone(runs: list[Any], tmp_path: Path) -> None:
    file, other = tmp_path / "a.cql", tmp_path / "statements"
    for path in (file, other):
        path.write_text(f"{SETUP} SELECT n FROM t WHERE n > :least")
    rest = ("--param", "least=1")
    for args in ((str(file), *rest), (str(other), *rest), ("-f", str(file), *rest)):
        runs.append(rows(n=[5]))
        result = invoke(*args)
        assert (result.exit_code, result.stdout) == (0, "n\n5\n"), result.output
    runs.append(rows(n=[5]))
    assert invoke("-f", "-", *rest, stdin=file.read_text()).stdout == "n\n5\n"
    missing = invoke(str(tmp_path / "none.cql"))
    assert (missing.exit_code, "none.cql: No such file" in missing.stderr) == (1, True)
    assert invoke("-f", str(file), "-c", "SELECT 1").exit_code == 2
    assert "No such command" in invoke("nothing").stderr


def test_formats(runs: list[Any]) -> None:
    runs += [rows(n=[1]) for _ in range(3)]
    text = f"{SETUP} SELECT n FROM t"
    assert invoke("-c", text, "--format", "tsv").stdout == "n\n1\n"
    assert json.loads(invoke("-c", text, "--format", "json").stdout) == {"n": 1}
    assert "│ bigint │" in invoke("-c", text, "--format", "table").stdout
    assert invoke("-c", text, "--format", "xml").exit_code == 2


def test_a_file_with_parameters_and_settings(runs: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "a.cql"
    file.write_text(f"{SETUP}\nSET morsel_rows;\nSELECT n FROM t WHERE n > :least AND s <> :skip;")
    runs.append(rows(n=[6]))
    result = invoke(
        "run", str(file), "--set", "morsel_rows=7", "--param", "least=5", "--param", "skip=x"
    )
    assert result.exit_code == 0, result.output
    assert "morsel_rows,7," in result.stdout
    assert result.stdout.endswith("n\n6\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("NULL", None),
        ("'5'", "5"),
        ("'it''s'", "it's"),
        ("JFK", "JFK"),
        ("nan", "nan"),
        ("1_000", "1_000"),
        ("2013-01-01", "2013-01-01"),
        ("", ""),
    ],
)
def test_parameter_values(text: str, value: object) -> None:
    found = command._value(text)
    assert found == value
    assert type(found) is type(value)


def test_a_query_error(runs: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "a.cql"
    file.write_text(f"{SETUP}\nSELECT m FROM t;\n")
    result = invoke("run", str(file))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "line 2, column 8" in result.stderr
    assert "  SELECT m FROM t;\n         ^" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("run",),
        ("-c", "SELECT 1", "run", "x"),
        ("--param", "a=1"),
        ("--format", "csv"),
        ("explain", "x", "--format", "csv"),
        ("nope",),
    ],
)
def test_usage_errors(args: tuple[str, ...], runs: list[Any]) -> None:
    assert invoke(*args).exit_code == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("run", "/no/such/file.cql"), "cannot read"),
        (("-c", "SELECT 1", "--set", "runtme=fifo"), "did you mean runtime?"),
        (("-c", "SELECT 1", "--set", "runtime"), "not name=value"),
        (("-c", "SELECT 1", "--param", "=1"), "not name=value"),
        (("-c", "SELECT :n"), "n"),
    ],
)
def test_failures(args: tuple[str, ...], message: str, runs: list[Any]) -> None:
    result = invoke(*args)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_standard_input(runs: list[Any]) -> None:
    runs += [rows(n=[1]), rows(n=[2])]
    assert invoke("run", "-", stdin=f"{SETUP} SELECT n FROM t;").stdout == "n\n1\n"
    assert invoke(stdin=f"{SETUP} SELECT n FROM t;").stdout == "n\n2\n"


def test_an_insert_says_what_it_did_on_stderr(runs: list[Any]) -> None:
    runs.append(rows(n=[1, 2]))
    result = invoke("-c", f"{SETUP} INSERT INTO t (n) SELECT n FROM t")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "2 rows inserted into t" in result.stderr


def test_notices_go_to_stderr(runs: list[Any]) -> None:
    text = (
        "CREATE STREAM r USING rate OPTIONS (rows '3') ORDERED BY ts;"
        "CREATE VIEW v AS SELECT count(*) FROM r [RANGE 1 second SLIDE 1 hour]"
    )
    result = invoke("-c", text)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "note: " in result.stderr


def test_an_interrupted_query(runs: list[Any]) -> None:
    class Interrupted(FakeRun):
        def batches(self) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"n": [1]})
            raise KeyboardInterrupt

    runs.append(Interrupted())
    result = invoke("-c", f"{SETUP} SELECT n FROM t")
    assert result.exit_code == 130
    assert result.stdout == "n\n1\n"
    assert "interrupted" in result.stderr


def test_an_unbounded_insert_keeps_the_script_alive(
    runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun(pa.record_batch({"n": [1]}), endless=True)
    runs.append(run)
    monkeypatch.setattr(
        "cql.query.query.Query.await_termination", lambda *_: signal.raise_signal(signal.SIGINT)
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        text = (
            "CREATE STREAM r USING rate OPTIONS (rows_per_second '5') ORDERED BY ts;"
            "CREATE TABLE t (n BIGINT); INSERT INTO t SELECT 1 AS n FROM r"
        )
        result = invoke("-c", text)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    assert run.closed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_behind_the_output() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cql", "-c", "SELECT 1 AS a"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write the output: ")
    assert "Traceback" not in done.stderr


def test_a_reader_that_left() -> None:
    """``cql … | head -1`` ends without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "cql", "-c", "SHOW FUNCTIONS; SHOW SETTINGS", "--format", "csv"],
        cwd=ROOT,
        stdout=closed_pipe(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 141


def test_a_reader_that_leaves_an_endless_query() -> None:
    """``cql … | head -1`` ends when ``head`` ends, even if the query gives no further row."""
    text = (
        "CREATE STREAM r USING rate OPTIONS (rows_per_second '10') ORDERED BY ts;"
        "SELECT value FROM r WHERE value < 0"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "cql", "-c", text],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "value\n"
        child.stdout.close()
        assert child.wait(120) == 141
        assert "Traceback" not in child.stderr.read()


def test_what_has_no_reader(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as out, (tmp_path / "f").open("w") as file:
        assert not has_no_reader(out)
        os.close(reader)
        assert has_no_reader(out)
        assert not has_no_reader(file)
        assert not has_no_reader(io.StringIO())


@pytest.mark.parametrize("where", ["read", "connect", "statements", "close", "as an error"])
def test_an_interrupt_anywhere(
    where: str, runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is handled while the command reads the script, makes the session, plans a statement or
    closes the session, and when it surfaces as another error (the JVM receives Ctrl-C too)."""

    def press(*_: Any, **__: Any) -> Any:
        signal.raise_signal(signal.SIGINT)

    def as_error(*_: Any, **__: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            press()
        raise RuntimeError("the JVM has gone")

    runs.append(rows(a=[1]))
    monkeypatch.setattr(sys, "argv", ["cql", "run", "file"])
    monkeypatch.setattr("cql.repl.shell.read_script", lambda _: "SHOW SETTINGS")
    places = {
        "read": "cql.repl.shell.read_script",
        "connect": "cql.repl.cli._connect",
        "close": "cql.session.session.Session.close",
    }
    place = places.get(where, "cql.session.session.Session._statements")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(place, as_error if where == "as an error" else press)
            with pytest.raises(SystemExit) as left:
                command.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert left.value.code == 130


#: Runs the command; Ctrl-C is pressed when Python looks for the module ``name``.
INTERRUPTED_IMPORT = """
import os, runpy, signal, sys
how, name = sys.argv.pop(1), sys.argv.pop(1)

class Press:
    def find_spec(found, path=None, target=None):
        if found == name:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("what a module makes of it") from None

sys.meta_path.insert(0, Press)
if how == "script":
    from cql.command import main
    main()
else:
    runpy.run_module("cql", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("how", ["script", "module"])
@pytest.mark.parametrize("name", ["click", "cql.errors", "no module"])
def test_an_interrupt_while_modules_are_imported(how: str, name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, how, name, "--version"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        start_new_session=True,
    )
    if name == "no module":
        assert (ended.stdout.startswith("cql, version"), ended.stderr) == (True, "")
        assert ended.returncode == 0
    else:
        assert (ended.stdout, ended.stderr, ended.returncode) == ("", "interrupted\n", 130)


def closed_pipe() -> int:
    """The write end of a pipe whose read end is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer
