"""Heavy modules are not loaded by ``import cql``, nor before the prompt appears."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

HEAVY = (
    *("numba", "llvmlite", "pyspark", "py4j", "pyarrow", "pandas", "polars", "numpy", "sqlglot"),
    *("soundfile", "obspy"),
)

IMPORT = "import cql"

SETTINGS = "import cql.base.settings, cql.errors, cql.show.help"

#: Draws the prompt on a pipe instead of a terminal; ``preload`` runs once the prompt is drawn.
PROMPT = """
import os, tempfile
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
import sys
from cql.show import render
from cql.repl.cli import cli
from cql.repl.shell import Shell, make_prompt

class Seen(Shell):
    def preload(self):
        global seen
        seen = set(sys.modules)

with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
    keys.send_text("\\x04")
    try:
        make_prompt(Seen(lambda: None, render.console_for(sys.stdout))).prompt()
    except EOFError:
        pass
"""


@pytest.mark.parametrize("code", [IMPORT, SETTINGS, PROMPT], ids=["import", "settings", "prompt"])
def test_nothing_heavy_is_loaded(code: str) -> None:
    heavy = f"print(*sorted(globals().get('seen', set(sys.modules)) & set({HEAVY!r})))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{heavy}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == ""


def test_the_help_of_the_command_loads_little() -> None:
    code = "import sys; sys.argv = ['cql', '--help']\n"
    code += "from cql.repl.cli import cli\ncli(['--help'], standalone_mode=False)\n"
    code += (
        f"print('loaded', *sorted(set(sys.modules) & set({(*HEAVY, 'rich', 'prompt_toolkit')!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.rstrip().endswith("\nloaded")
