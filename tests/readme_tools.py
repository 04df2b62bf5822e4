"""The README as data: its blocks, running them, and the parts that are made from the code.

``python tests/readme_tools.py`` writes the made parts and the outputs that the blocks give now
into the README (``--spark``: those of the Spark blocks too); the tests compare both.

A fenced block of ``python``, ``sql``, ``console`` or ``sh`` runs; the ``text`` block behind it is
its output. ``<!-- spark -->`` in front of a block: it needs Spark. ``sql name.cql`` is a file.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parent.parent / "README.md"
RUNS = ("python", "sql", "console", "sh")
SPARK = "<!-- spark -->"
_PROMPT, _MORE = "cql> ", "...> "


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block that runs; ``line`` counts from 1. ``output`` is None where the README shows
    none; ``output_lines`` are where it stands, from 0, the end not included."""

    kind: str
    file: str
    text: str
    spark: bool
    line: int
    output: str | None
    output_lines: tuple[int, int]


def blocks(readme: str) -> list[Block]:
    lines = readme.split("\n")
    fences = list(_fences(lines))
    found = []
    for k, (start, end, info) in enumerate(fences):
        kind, _, file = info.partition(" ")
        if kind not in RUNS:
            continue
        output, where = None, (end + 1, end + 1)
        if kind == "console":  # its output stands between its inputs
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
    """(index of the opening line, of the closing line, info string)."""
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
    """Runs blocks in order: python in one namespace, statements in the session that it made. The
    working directory is the caller's business: blocks write files into it."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "readme"}

    def run(self, block: Block) -> str:
        """What the block prints, without trailing spaces."""
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
        code = compile("\n" * block.line + block.text, README.name, "exec")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        return out.getvalue()

    def statements(self, text: str) -> str:
        """What the shell shows for ``text``, in the session of the README."""
        from cql import render
        from cql.repl.shell import Shell

        out = io.StringIO()
        Shell(lambda: self.names["session"], render.console_for(out)).handle(text)
        return out.getvalue()

    def _console(self, text: str) -> str:
        return "".join(f"{typed}\n{self.statements(input)}" for typed, input in _inputs(text))


def _inputs(text: str) -> Iterator[tuple[str, str]]:
    """Inputs of a console block: as they look there, and as they were typed."""
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
        with contextlib.suppress(ValueError):  # a quote is open: the next line belongs to it
            words = shlex.split(held, comments=True)
            held = ""
            if words:
                yield words
    assert not held, f"a quote is not closed in: {held}"


def _invoke(words: list[str]) -> str:
    from click.testing import CliRunner

    from cql.__main__ import cli

    assert words[0] == "cql", f"only cql runs in a sh block, not {words[0]}"
    return str(CliRunner().invoke(cli, words[1:]).output)


_VARYING = (
    (re.compile(r"\b[\d,]+(\.\d+)? ?(ns|µs|ms|s)\b"), "<time>"),
    (re.compile(r"\b\d+%"), "<share>"),
    (re.compile(r"(?<=\S) {2,}"), "  "),
    (re.compile(r"\b[\d.,]+[kMG]? rows/s"), "<rate>"),
)


def comparable(output: str) -> str:
    """``output`` without what differs from run to run."""
    for pattern, instead in _VARYING:
        output = pattern.sub(instead, output)
    return output


# --------------------------------------------------------------------------- made from the code


def settings_table(experiments: bool = False) -> str:
    from cql.settings import SETTINGS

    rows = ["| setting | default | takes | what it does |", "|---|---|---|---|"]
    for s in SETTINGS.values():
        if s.experiment == experiments:
            later = f" (later: {', '.join(s.later)})" if s.later else ""
            rows.append(f"| `{s.name}` | `{s.format(s.default)}` | {s.takes()}{later} | {s.help} |")
    return "\n".join(rows)


def function_list() -> str:
    from cql.planner.aggregates import AGGREGATES
    from cql.planner.functions import FUNCTIONS

    known = (*AGGREGATES.values(), *FUNCTIONS.values())
    parts = []
    for category in dict.fromkeys(f.category for f in known):
        names = sorted(f"`{f.name}`" for f in known if f.category == category)
        parts.append(_filled(f"- **{category}**: {', '.join(names)}"))
    return "\n".join(parts)


def later_aggregates() -> str:
    from cql.planner import aggregates

    return _filled(", ".join(f"`{name}`" for name in sorted(aggregates._LATER.split())))


def not_replayable() -> str:
    from cql.planner import functions

    names = sorted(functions._NOT_REPLAYABLE.split())
    return _filled(", ".join(f"`{name}`" for name in names))


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent="  " if text[0] == "-" else "")


MADE = {
    "settings": settings_table,
    "settings for experiments": lambda: settings_table(experiments=True),
    "functions": function_list,
    "later aggregates": later_aggregates,
    "not replayable": not_replayable,
}


def part(readme: str, name: str) -> str:
    """What stands between ``<!-- name -->`` and ``<!-- end name -->``."""
    found = _part(name).search(readme)
    assert found, f"the README has no part <!-- {name} --> … <!-- end {name} -->"
    return found.group(1).strip("\n")


def with_part(readme: str, name: str, inside: str) -> str:
    made = f"<!-- {name} -->\n{inside}\n<!-- end {name} -->"
    return _part(name).sub(lambda _: made, readme)


def _part(name: str) -> re.Pattern[str]:
    return re.compile(f"<!-- {name} -->\n(.*?)<!-- end {name} -->", re.DOTALL)


def examples(readme: str, name: str) -> list[str]:
    """The example of each row of a table: what stands in its last column."""
    rows = [r for r in part(readme, name).split("\n") if r.startswith("| ")][1:]
    return [re.findall(r"`([^`]+)`", row)[-1] for row in rows]


# --------------------------------------------------------------------------- rewriting


def with_outputs(readme: str, outputs: Iterable[tuple[Block, str]]) -> str:
    lines = readme.split("\n")
    for block, shown in sorted(outputs, key=lambda pair: -pair[0].line):
        start, end = block.output_lines
        lines[start:end] = shown.split("\n")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    import tempfile

    readme = README.read_text("utf-8")
    for name, make in MADE.items():
        readme = with_part(readme, name, make())
    runner, outputs = Runner(), []
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        os.chdir(folder)
        for block in blocks(readme):
            if block.spark and "--spark" not in arguments:
                continue
            shown = runner.run(block)
            if block.output is not None and comparable(shown) != comparable(block.output):
                outputs.append((block, shown))
        os.chdir(home)
    README.write_text(with_outputs(readme, outputs), encoding="utf-8")
    print(f"{len(outputs)} outputs changed")


if __name__ == "__main__":
    main(sys.argv[1:])
