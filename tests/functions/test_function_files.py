"""Modules and files of functions, loaded by a session, the command line and the shell."""

from __future__ import annotations

from pathlib import Path

import pytest

import cql
from cql.errors import BindError, CatalogError
from tests.support.function_fixtures import FUNCTIONS, session_of, values

MODULE = """
import cql

@cql.function
def thrice(n: int) -> int:
    "Three times."
    return 3 * n

def helper(n: int) -> int:
    return n
"""


def test_a_module_of_functions(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MODULE)
    for given in (path, str(path), cql.functions.declare.load(path), {"thrice": lambda n: 3 * n}):
        if isinstance(given, dict):
            given["thrice"].__annotations__ = {"n": int, "return": int}
        with cql.connect(spark=False, functions=given) as session:
            session.register_table("t", {"n": [1, 2]})
            assert values(session.sql("SELECT thrice(n) FROM t")) == [3, 6]
            assert sorted(session._functions) == ["thrice"]
    path.write_text("x = 1\n")
    with pytest.raises(BindError, match="declares no function"):
        cql.connect(spark=False, functions=path)
    path.write_text("import cql\n1 / 0\n")
    with pytest.raises(CatalogError, match=r"raised ZeroDivisionError in line 2"):
        cql.connect(spark=False, functions=path)
    with pytest.raises(CatalogError, match="cannot read"):
        cql.connect(spark=False, functions=tmp_path / "none.py")
    with pytest.raises(CatalogError, match="raised ModuleNotFoundError"):
        cql.connect(spark=False, functions="no_such_module_of_functions")


def test_the_command_line_takes_functions(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from cql.repl.cli import cli

    path = tmp_path / "mine.py"
    path.write_text(MODULE)
    text = "SELECT thrice(n) AS t FROM (VALUES (2), (5)) AS v(n)"
    done = CliRunner().invoke(cli, ["-c", text, "--functions", str(path)])
    assert (done.exit_code, done.stdout) == (0, "t\n6\n15\n"), done.output
    done = CliRunner().invoke(cli, ["-c", text, "--functions", str(tmp_path / "none.py")])
    assert done.exit_code == 1
    assert "cannot read" in done.output


def test_the_shell_loads_functions(tmp_path: Path) -> None:
    import io

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from rich.console import Console

    from cql.repl.completer import CqlCompleter
    from cql.repl.shell import Shell

    path = tmp_path / "mine.py"
    path.write_text(MODULE)
    out = io.StringIO()
    shell = Shell(lambda: cql.connect(spark=False), Console(file=out, width=100))
    try:
        assert shell.handle(f"\\load {path}")
        assert shell.handle("SELECT thrice(14) AS t;")
        assert shell.handle("\\load")
        offered = CqlCompleter(shell).get_completions(Document("SELECT thr"), CompleteEvent())
        assert [c.text for c in offered] == ["thrice"]
    finally:
        shell.close()
    assert "loaded thrice" in out.getvalue()
    assert "42" in out.getvalue()
    assert "\\load needs a Python file" in out.getvalue()


def test_show_functions_lists_them() -> None:
    with session_of() as session:
        session.register_functions(FUNCTIONS)
        result = session.sql("SHOW FUNCTIONS LIKE 'collatz'")
        assert result.rows == (
            ("collatz", "user", "collatz(n bigint) → bigint", "A function of yours."),
        )
