"""Reads the documentation, runs its blocks, and makes the parts that come from the code.

The pages are the README and every page in ``docs/``. ``python -m tests.support.docs_tools`` writes
the made parts and the current outputs of the blocks into the pages that its arguments name, by
default into all pages. ``--spark`` includes the outputs of the Spark blocks. The tests compare both
with the pages.

A fenced block of ``python``, ``sql``, ``console`` or ``sh`` runs; the ``text`` block after it holds
its output. ``<!-- spark -->`` above a block marks a block that needs Spark. A block
``sql name.cql`` is written to the file ``name.cql``.

Each page has its own session and working directory. A page of ``docs/`` first runs the blocks of
``docs/example-data.md``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

README = ROOT / "README.md"
DOCS = ROOT / "docs"
#: Every other page of ``docs/`` first runs the blocks of this page.
COMMON = DOCS / "example-data.md"
RUNS = ("python", "sql", "console", "sh")
SPARK = "<!-- spark -->"
_PROMPT, _MORE = "cql> ", "...> "


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block that runs. ``line`` is the number of its opening line, from 1. ``output``
    is None if the page shows no output; ``output_lines`` are the first line of the output, from 0,
    and the line after its end."""

    kind: str
    file: str
    text: str
    spark: bool
    line: int
    output: str | None
    output_lines: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Page:
    """A page and its text. ``name`` is the path relative to the repository."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def blocks(self) -> list[Block]:
        return blocks(self.text)


def pages() -> list[Page]:
    """The README, then the pages of ``docs/`` in the order of their paths."""
    paths = (README, *sorted(DOCS.rglob("*.md")))
    return [Page(path, path.read_text("utf-8")) for path in paths]


def blocks(text: str) -> list[Block]:
    lines = text.split("\n")
    fences = list(_fences(lines))
    found = []
    for k, (start, end, info) in enumerate(fences):
        kind, _, file = info.partition(" ")
        if kind not in RUNS:
            continue
        output, where = None, (end + 1, end + 1)
        if kind == "console":  # the block holds inputs and outputs in turn
            output, where = "\n".join(lines[start + 1 : end]), (start + 1, end)
        elif k + 1 < len(fences):
            first, last, next_info = fences[k + 1]
            if next_info == "text" and not any(s.strip() for s in lines[end + 1 : first]):
                output, where = "\n".join(lines[first + 1 : last]), (first + 1, last)
        spark = start > 0 and lines[start - 1].strip() == SPARK
        text = "\n".join(lines[start + 1 : end])
        found.append(Block(kind, file, text, spark, start + 1, output, where))
    return found


def _fences(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Of each fenced block: the index of its opening line, of its closing line, and its info
    string."""
    opened: tuple[int, str] | None = None
    for k, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = (k, line[3:].strip())
        else:
            yield opened[0], k, opened[1]
            opened = None


class Runner:
    """Runs the blocks of a page in order. Python blocks share one namespace; statements run in its
    ``session``. The blocks write files into the working directory, which the caller sets."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.names: dict[str, Any] = {"__name__": "page"}
        if page.path not in (README, COMMON):
            for block in blocks(COMMON.read_text("utf-8")):
                self.run(block)

    def close(self) -> None:
        self.names["session"].close()

    def run(self, block: Block) -> str:
        """The output of the block, without trailing spaces."""
        match block.kind:
            case "python":
                shown = self._python(block)
            case "sql" if block.file:
                Path(block.file).write_text(block.text + "\n", encoding="utf-8")
                shown = ""
            case "sql":
                shown = self.statements(block.text)
            case "console":
                shown = self._console(block.text)
            case _:
                shown = "".join(_invoke(command) for command in _commands(block.text))
        return "\n".join(line.rstrip() for line in shown.rstrip("\n").split("\n"))

    def _python(self, block: Block) -> str:
        code = compile("\n" * block.line + block.text, self.page.name, "exec")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        return out.getvalue()

    def statements(self, text: str) -> str:
        """The output of the shell for ``text``, in the session of the page."""
        from cql.repl.shell import Shell
        from cql.show import render

        out = io.StringIO()
        Shell(lambda: self.names["session"], render.console_for(out)).handle(text)
        return out.getvalue()

    def _console(self, text: str) -> str:
        return "".join(f"{typed}\n{self.statements(input)}" for typed, input in _inputs(text))


def _inputs(text: str) -> Iterator[tuple[str, str]]:
    """The inputs of a console block, each with and without its prompts."""
    typed: list[str] = []
    for line in text.split("\n"):
        if line.startswith(_PROMPT) and typed:
            yield "\n".join(typed), "\n".join(t[len(_PROMPT) :] for t in typed)
            typed = []
        if line.startswith(_PROMPT) or (typed and line.startswith(_MORE)):
            typed.append(line)
    yield "\n".join(typed), "\n".join(t[len(_PROMPT) :] for t in typed)


def _commands(text: str) -> Iterator[list[str]]:
    """The commands of a sh block; quotes may span lines."""
    held = ""
    for line in text.split("\n"):
        held += line + "\n"
        with contextlib.suppress(ValueError):  # a quote is open: the command has another line
            words = shlex.split(held, comments=True)
            held = ""
            if words:
                yield words
    assert not held, f"a quote is not closed in: {held}"


def _invoke(words: list[str]) -> str:
    from click.testing import CliRunner

    from cql.repl.cli import cli

    assert words[0] == "cql", f"only cql runs in a sh block, not {words[0]}"
    return str(CliRunner().invoke(cli, words[1:]).output)


_VARYING = (
    (re.compile(r"\b[\d,]+(\.\d+)? ?(ns|µs|ms|s)\b"), "<time>"),
    (re.compile(r"\b\d+%"), "<share>"),
    (re.compile(r"(?<=\S) {2,}"), "  "),
    (re.compile(r"\b[\d.,]+[kMG]? rows/s"), "<rate>"),
)


def comparable(output: str) -> str:
    """``output`` without the parts that differ from run to run."""
    for pattern, instead in _VARYING:
        output = pattern.sub(instead, output)
    return output


# --------------------------------------------------------------------------- made from the code


def settings_table(experiments: bool = False) -> str:
    from cql.base.settings import SETTINGS

    rows = ["| setting | default | what it does |", "|---|---|---|"]
    for s in SETTINGS.values():
        if s.experiment == experiments:
            later = f" (later: {', '.join(s.later)})" if s.later else ""
            text = f"{s.help} **Takes** {s.takes()}{later}."
            rows.append(f"| `{s.name}` | `{s.format(s.default)}` | {text} |")
    return "\n".join(rows)


def function_list() -> str:
    from cql.planner.functions.aggregates import AGGREGATES
    from cql.planner.functions.registry import FUNCTIONS
    from cql.planner.functions.running import RUNNING

    known = (*AGGREGATES.values(), *FUNCTIONS.values(), *RUNNING.values())
    parts = []
    for category in dict.fromkeys(f.category for f in known):
        names = sorted(f"`{f.name}`" for f in known if f.category == category)
        parts.append(_filled(f"- **{category}**: {', '.join(names)}"))
    return "\n".join(parts)


def later_aggregates() -> str:
    from cql.planner.functions import aggregates

    return _filled(", ".join(f"`{name}`" for name in sorted(aggregates._LATER.split())))


def not_replayable() -> str:
    from cql.planner.functions import registry

    names = sorted(registry._NOT_REPLAYABLE.split())
    return _filled(", ".join(f"`{name}`" for name in names))


def shell_commands() -> str:
    from cql.repl.completer import COMMANDS

    rows = ["| command | does |", "|---|---|"]
    return "\n".join([*rows, *(f"| `{name}` | {does} |" for name, does in COMMANDS.items())])


def help_topics() -> str:
    from cql.show import help

    rows = ["| topic | subject |", "|---|---|"]
    return "\n".join([*rows, *(f"| `{t}` | {help.page(t).summary} |" for t in help.topics())])


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent="  " if text[0] == "-" else "")


MADE = {
    "settings": settings_table,
    "settings for experiments": lambda: settings_table(experiments=True),
    "functions": function_list,
    "shell commands": shell_commands,
    "help topics": help_topics,
    "later aggregates": later_aggregates,
    "not replayable": not_replayable,
}


def page_of(name: str) -> Page:
    """The one page that has the part ``name``."""
    found = [page for page in pages() if _part(name).search(page.text)]
    assert len(found) == 1, f"pages with <!-- {name} --> … <!-- end {name} -->: {len(found)}"
    return found[0]


def part(name: str) -> str:
    """The text between ``<!-- name -->`` and ``<!-- end name -->`` on the page that has the
    part."""
    found = _part(name).search(page_of(name).text)
    assert found
    return found.group(1).strip("\n")


def with_parts(text: str) -> str:
    """``text`` with its made parts replaced by the current ones."""
    for name, make in MADE.items():
        made = f"<!-- {name} -->\n{make()}\n<!-- end {name} -->"
        text = _part(name).sub(lambda _, made=made: made, text)
    return text


def _part(name: str) -> re.Pattern[str]:
    return re.compile(f"<!-- {name} -->\n(.*?)<!-- end {name} -->", re.DOTALL)


def examples(name: str) -> list[str]:
    """The last text in backticks of each row of the table ``name``."""
    rows = [r for r in part(name).split("\n") if r.startswith("| ")][1:]
    return [re.findall(r"`([^`]+)`", row)[-1] for row in rows]


# --------------------------------------------------------------------------- rewriting


def with_outputs(text: str, outputs: Iterable[tuple[Block, str]]) -> str:
    lines = text.split("\n")
    for block, shown in sorted(outputs, key=lambda pair: -pair[0].line):
        start, end = block.output_lines
        lines[start:end] = shown.split("\n")
    return "\n".join(lines)


def rewrite(path: Path, spark: bool) -> int:
    """Rewrites the page. Returns the number of outputs that changed."""
    text = with_parts(path.read_text("utf-8"))
    page = Page(path, text)
    outputs = []
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        os.environ["CQL_COMPILE_NOTICE"] = "off"
        os.chdir(folder)
        try:
            runner = Runner(page)
            for block in page.blocks:
                if block.spark and not spark:
                    continue
                shown = runner.run(block)
                if block.output is not None and comparable(shown) != comparable(block.output):
                    outputs.append((block, shown))
            if "session" in runner.names:
                runner.close()
        finally:
            os.chdir(home)
    path.write_text(with_outputs(text, outputs), encoding="utf-8")
    return len(outputs)


def main(arguments: list[str]) -> None:
    named = [Path(a).resolve() for a in arguments if a != "--spark"]
    for path in named or [page.path for page in pages()]:
        changed = rewrite(path, "--spark" in arguments)
        print(f"{path.relative_to(ROOT)}: {changed} outputs changed")


if __name__ == "__main__":
    main(sys.argv[1:])
