"""The command ``cql``: the shell, scripts, plans, warming up.

Exit codes: 0 success, 1 a statement failed, 2 wrong usage, 130 interrupted, 141 the reader closed
the output (like a program that SIGPIPE ends).
"""

from __future__ import annotations

import io
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import click

from cql import __version__
from cql.errors import CqlError, RunError, SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from cql.query.query import Query
    from cql.query.query_set import QuerySet
    from cql.query.result import Result
    from cql.session.session import Session

    Item: TypeAlias = Query | QuerySet | Result

FORMATS = ("auto", "table", "csv", "tsv", "json")
OK, FAILED, INTERRUPTED, UNREAD = 0, 1, 130, 141

Decorated = Callable[..., Any]


def _options(command: Decorated) -> Decorated:
    """Adds the common options of all commands that run statements."""
    for option in (
        click.option(
            "--format",
            type=click.Choice(FORMATS),
            default="auto",
            help="Output; auto is table on a terminal and csv into a pipe.",
        ),
        click.option(
            "--param",
            "params",
            multiple=True,
            metavar="NAME=VALUE",
            help="A value for :NAME in the statements; may be repeated.",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="A setting, as with SET; may be repeated.",
        ),
        click.option(
            "--functions",
            "functions",
            multiple=True,
            metavar="FILE",
            help="A Python file (or module) that declares functions; may be repeated.",
        ),
    ):
        command = option(command)
    return command


class _Commands(click.Group):
    """``cql FILE`` is ``cql run FILE``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        first = Path(args[0])
        if args[0] not in self.commands and (first.suffix in (".cql", ".sql") or first.is_file()):
            return "run", self.commands["run"], args
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="cql")
@click.option("-c", "--command", "text", metavar="TEXT", help="Run these statements and leave.")
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Run the statements of FILE and leave (- is standard input).",
)
@_options
@click.pass_context
def cli(
    ctx: click.Context,
    text: str | None,
    file: Path | None,
    format: str,
    params: tuple[str, ...],
    settings: tuple[str, ...],
    functions: tuple[str, ...],
) -> None:
    """Continuous queries over streams, files and Spark tables. Without a command: the shell; with
    a FILE in its place: its statements."""
    if ctx.invoked_subcommand is not None:
        if text is not None or file or params or settings or functions or format != "auto":
            raise click.UsageError(f"put the options behind {ctx.invoked_subcommand}")
        return
    if text is not None and file is not None:
        raise click.UsageError("-c and -f are two texts: give one of them")
    if file is not None:
        ctx.exit(_with_file(file, lambda t: run_text(t, format, params, settings, functions)))
    if text is not None:
        ctx.exit(run_text(text, format, params, settings, functions))
    if params:
        raise click.UsageError("--param needs -c or -f FILE; in the shell write values directly")
    if format != "auto":
        raise click.UsageError("--format needs -c or -f FILE")
    if not sys.stdin.isatty():
        ctx.exit(run_text(sys.stdin.read(), format, params, settings, functions))
    ctx.exit(_shell(settings, functions))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@_options
def run(
    file: Path,
    format: str,
    params: tuple[str, ...],
    settings: tuple[str, ...],
    functions: tuple[str, ...],
) -> None:
    """Run the statements of FILE (- is standard input)."""
    sys.exit(_with_file(file, lambda text: run_text(text, format, params, settings, functions)))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--mode",
    type=click.Choice(["physical", "logical", "analyze", "mermaid", "kernel"]),
    default="physical",
    help="What to show; analyze runs the queries.",
)
@_options
def explain(
    file: Path,
    mode: str,
    format: str,
    params: tuple[str, ...],
    settings: tuple[str, ...],
    functions: tuple[str, ...],
) -> None:
    """Show the plan of every query in FILE; its other statements run."""
    if format != "auto":
        raise click.UsageError("a plan is text: --format does not apply")
    sys.exit(_with_file(file, lambda text: explain_text(text, mode, params, settings, functions)))


@cli.command()
def warm() -> None:
    """Compile the library of kernels, so that no first query waits for it."""
    from cql.show import render

    console = render.console_for(sys.stderr)

    def work() -> int:
        from cql.executor.jit.warm_up import warm as compile_all

        compile_all(lambda message: console.print(message, style="dim"))
        return OK

    sys.exit(guarded(work, console))


@cli.command()
def demo() -> None:
    """The main job: flights and weather, from Spark tables into Spark tables."""
    from cql.show import render

    def work() -> int:
        from cql.show.demo import main as play

        play()
        return OK

    sys.exit(guarded(work, render.console_for(sys.stderr)))


# --------------------------------------------------------------------------- what they do


def run_text(
    text: str,
    format: str,
    params: tuple[str, ...],
    settings: tuple[str, ...],
    functions: tuple[str, ...] = (),
) -> int:
    """Runs statements; rows to stdout, everything else to stderr. Returns the exit code."""
    return _each(text, params, settings, functions, partial(_present, format=format))


def explain_text(
    text: str,
    mode: str,
    params: tuple[str, ...],
    settings: tuple[str, ...],
    functions: tuple[str, ...] = (),
) -> int:
    return _each(text, params, settings, functions, partial(_explain, mode=mode))


def _each(
    text: str,
    params: tuple[str, ...],
    settings: tuple[str, ...],
    functions: tuple[str, ...],
    show: Callable[[Item, Session, Console], None],
) -> int:
    """Runs the statements of ``text`` and calls ``show`` with the result of each."""
    from cql.show import render

    errors = render.console_for(sys.stderr)

    def work() -> int:
        values = _parameters(params)
        with _connect(settings, functions, errors) as session:
            for item in session._statements(text, values):
                show(item, session, errors)
            _await_background(session, errors)
        return OK

    return guarded(work, errors, text)


def guarded(work: Callable[[], int], errors: Console, text: str | None = None) -> int:
    """Runs ``work``, prints a CqlError with the place in ``text``, and returns the exit code.

    After Ctrl-C, any error counts as an interrupt, because libraries turn KeyboardInterrupt into
    other exceptions."""
    with _interrupts() as came:
        return _guarded(work, errors, text, came)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Records each Ctrl-C in the yielded list; Ctrl-C keeps its usual effect."""
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield came
        return

    def note(number: int, frame: Any) -> Any:
        came.append(number)
        return before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def _guarded(work: Callable[[], int], errors: Console, text: str | None, came: list[int]) -> int:
    from cql.repl.screen import Stopped
    from cql.show import render

    try:
        try:
            return work()
        except BrokenPipeError:
            raise
        except Exception:
            if not came:
                raise
            raise KeyboardInterrupt from None
    except CqlError as error:
        render.print_error(error if text is None else error.with_text(text), errors)
        return FAILED
    except (KeyboardInterrupt, Stopped):
        errors.print("interrupted", style="yellow")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; Python must not flush the rest at exit.
        sys.stdout = _nowhere()
        return UNREAD
    except OSError as error:
        if error.filename is not None:  # the error of a named file, not of the output stream
            raise
        sys.stdout = _nowhere()  # for example a redirection to a full disk
        render.print_error(RunError(f"cannot write the output: {error.strerror or error}"), errors)
        return FAILED


def _nowhere() -> IO[str]:
    import os

    return open(os.devnull, "w", encoding="utf-8")


def _connect(settings: tuple[str, ...], functions: tuple[str, ...], errors: Console) -> Session:
    from cql.base.settings import parse_assignment
    from cql.session.session import connect

    session = connect(**dict(parse_assignment(s) for s in settings))
    for source in functions:
        session.register_functions(source)
    session._catalog.on_start = lambda: errors.print("starting a local Spark …", style="dim")
    session.on_notice = lambda message: errors.print(f"note: {message}", style="yellow")
    return session


def _parameters(params: tuple[str, ...]) -> dict[str, Any]:
    from cql.base.settings import parse_assignment

    return {name: _value(value) for name, value in map(parse_assignment, params)}


_NUMBER = re.compile(r"[+-]?(?:\d{1,19}|(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d{1,3})?)")
_WORDS = {"true": True, "false": False, "null": None}


def _value(text: str) -> int | float | str | bool | None:
    """The value of a parameter: ``5``, ``1.5``, ``true`` and ``null`` become Python values; any
    other text, and any text in single quotes, is a string."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if _NUMBER.fullmatch(text) is None:
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _explain(item: Item, session: Session, errors: Console, mode: str) -> None:
    from cql.query.result import Result

    if not isinstance(item, Result):
        click.echo(item.explain(mode))


def _present(item: Item, session: Session, errors: Console, format: str) -> None:
    from cql.query.query_set import QuerySet
    from cql.query.result import Result
    from cql.repl.screen import Screen
    from cql.show import render

    out = render.console_for(sys.stdout)
    chosen = format
    if format == "auto":
        chosen = "table" if out.is_terminal else "csv"
    if isinstance(item, Result):
        if item.message is not None:
            if out.is_terminal:
                item._print_to(errors)
        elif item.text is not None or chosen == "table":
            item._print_to(out)
        else:
            _write(item.to_arrow(), chosen)
    elif isinstance(item, QuerySet) or item.is_insert:
        Screen(errors, session.settings.progress).present(item)
    elif chosen == "table":
        Screen(out, session.settings.progress).present(item)
    else:
        # On a terminal, scrolling rows would disturb a progress line.
        progress = "off" if out.is_terminal else session.settings.progress
        rows = Screen(errors, progress).stream(item, sys.stdout)
        render.write_rows(rows, item.columns, chosen, sys.stdout)


def _write(table: Any, format: str) -> None:
    from cql.show import render

    render.write_rows(table.to_batches(), table.column_names, format, sys.stdout)


def _await_background(session: Session, errors: Console) -> None:
    """Waits for the unbounded INSERTs that the script has started."""
    for query in session.queries():
        if query.is_active:
            errors.print(f"{query.name} runs; Ctrl-C ends it", style="dim")
            while not query.await_termination(0.2):
                pass
        elif query.exception is not None:
            raise query.exception


def _with_file(file: Path, work: Callable[[str], int]) -> int:
    from cql.repl.shell import read_script
    from cql.show import render

    try:
        text = sys.stdin.read() if str(file) == "-" else read_script(file)
    except CqlError as error:
        render.print_error(error, render.console_for(sys.stderr))
        return FAILED
    return work(text)


def _shell(settings: tuple[str, ...], functions: tuple[str, ...]) -> int:
    from cql.base.settings import Settings, parse_assignment
    from cql.repl.shell import Shell
    from cql.show import render

    console = render.console_for(sys.stdout)

    def work() -> int:
        # The settings are checked before the prompt; the session is made in the background.
        values = dict(parse_assignment(s) for s in settings)
        Settings.of(**values)

        def connect() -> Session:
            from cql.session.session import connect as open_session

            session = open_session(**values)
            for source in functions:
                session.register_functions(source)
            return session

        return Shell(connect, console).run()

    return guarded(work, console)


def main() -> None:
    """Runs the command. A character that the terminal's encoding lacks becomes ``?``."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        sys.exit(cli.main(prog_name="cql", standalone_mode=False))
    except SettingError as error:
        raise SystemExit(str(error)) from None
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):  # before the first statement, or after the last one
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
