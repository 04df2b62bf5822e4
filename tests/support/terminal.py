"""A terminal whose output a test reads, and the command line run in the process of the test."""

from __future__ import annotations

import io
import re

from click.testing import CliRunner, Result

from cql.repl import cli as command
from cql.show import render


class Terminal:
    """A console whose text can be read."""

    def __init__(self, *, tty: bool = False) -> None:
        self.out = io.StringIO()
        self.console = render.console_for(self.out, force_terminal=tty, width=100)

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.out.getvalue())


def invoke(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(command.cli, args, input=stdin)
