"""The interactive shell: reads statements, runs them in one session, shows their results."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cql import __version__
from cql.errors import CqlError, did_you_mean
from cql.repl.completer import COMMANDS
from cql.show import help, render

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History
    from rich.console import Console

    from cql.query.query import Query
    from cql.query.query_set import QuerySet
    from cql.query.result import Result
    from cql.repl.screen import Screen
    from cql.session.session import Session

GREETING = f"cql {__version__}. Statements end with ; \\help for help, \\q or Ctrl-D to leave."
PROMPT = "cql> "
CONTINUATION = "...> "


class Shell:
    """The shell. ``connect`` makes the session, in a thread, so that the prompt need not wait."""

    def __init__(self, connect: Callable[[], Session], console: Console) -> None:
        self.console = console
        self.timing = False
        self.expanded = False
        self._connect = connect
        self._session: Session | None = None
        self._failure: Exception | None = None
        self._loader: threading.Thread | None = None
        # Cached for completion; each statement clears the cache.
        self._names: Sequence[str] | None = None
        self._columns: dict[str, Sequence[tuple[str, str]]] = {}

    # ----------------------------------------------------------------- the session

    def preload(self) -> None:
        """Starts loading the parser, the session and the engine, once."""
        if self._loader is None:
            # Not a daemon: the exit of Python must not cut off an import.
            self._loader = threading.Thread(target=self._load, name="cql loader")
            self._loader.start()

    def _load(self) -> None:
        try:
            self._session = self._connect()
            self._session.on_notice = self._notice
            self._session._catalog.on_start = self._starting_spark
        except Exception as error:  # the first statement raises the error
            self._failure = error
        else:
            from cql.repl import words

            words.keywords()
            words.functions()
            self._session.warm_up()

    @property
    def session(self) -> Session:
        """The session; waits until it is made, and raises the error of a failed ``connect``."""
        self.preload()
        assert self._loader is not None
        while self._session is None and self._failure is None:
            self._loader.join(0.05)
        if self._failure is not None:
            raise self._failure
        assert self._session is not None
        return self._session

    def tables(self) -> Sequence[str]:
        """Names for completion; empty until the session is made."""
        if self._session is None:
            return ()
        if self._names is None:
            self._names = self._session._names()
        return self._names

    def functions(self) -> Sequence[str]:
        """The user's functions, for completion."""
        if self._session is None:
            return ()
        return sorted(f.name for f in self._session._functions.values())

    def columns(self, table: str) -> Sequence[tuple[str, str]]:
        session = self._session
        if session is None or table.lower() not in {n.lower() for n in self.tables()}:
            return ()  # a lookup of an unknown name could start a JVM
        if table not in self._columns:
            try:
                schema = session._schema_of(table)
            except CqlError:
                return ()  # a damaged table; a statement that reads it reports the error
            self._columns[table] = [(f.name, str(f.type)) for f in schema] if schema else ()
        return self._columns[table]

    # ----------------------------------------------------------------- the loop

    def run(self) -> int:
        """Prompts until the user leaves; returns the exit code."""
        from prompt_toolkit.patch_stdout import patch_stdout

        prompt = make_prompt(self)
        self.console.print(GREETING, style="dim")
        try:
            while True:
                try:
                    with patch_stdout(raw=True):
                        text = prompt.prompt()
                except KeyboardInterrupt:
                    continue  # Ctrl-C clears the line
                except EOFError:
                    break
                if not self.handle(text):
                    break
        finally:
            self.close()
        return 0

    def close(self) -> None:
        """Ends the running queries and the session."""
        if self._loader is not None:
            self._loader.join()
        if self._session is not None:
            running = [q.name for q in self._session.queries() if q.is_active]
            if running:
                self.console.print(f"stopping {', '.join(running)}", style="dim")
            self._session.close()

    def handle(self, text: str) -> bool:
        """Runs one input; False when the user wants to leave. Prints every error; only a bug gives
        a traceback. The session goes on in every case."""
        stripped = text.strip()
        if not stripped:
            return True
        try:
            if stripped.startswith("\\") or stripped.lower() in ("exit", "quit", "help"):
                return self._command(stripped)
            self.execute(text)
        except CqlError as error:
            render.print_error(error.with_text(text), self.console)
        except KeyboardInterrupt:
            self.console.print("stopped", style="yellow")
        except Exception:  # a bug: report it and go on
            self.console.print(traceback.format_exc(), style="red")
            self.console.print("This is a bug of cql, please report it. The session goes on.")
        return True

    def execute(self, text: str) -> None:
        """Runs the statements of ``text`` one after the other, up to the first error."""
        session = self.session
        try:
            self._run_all(session, text)
        finally:
            self._names = None
            self._columns.clear()

    def _run_all(self, session: Session, text: str) -> None:
        from cql.repl.screen import Screen, Stopped

        for item in session._statements(text):
            began = time.perf_counter()
            try:
                progress = session.settings.progress
                self._show(item, Screen(self.console, progress, expanded=self.expanded))
            except Stopped as stopped:
                tail = "; it is still ending in the background" if stopped.lingering else ""
                self.console.print(f"stopped{tail}", style="yellow")
                return
            if self.timing:
                took = render.duration_text(time.perf_counter() - began)
                self.console.print(f"time: {took}", style="dim")

    def _show(self, item: Query | QuerySet | Result, screen: Screen) -> None:
        from cql.query.result import Result

        if isinstance(item, Result):
            item._print_to(self.console)
        else:
            screen.present(item)

    def _starting_spark(self) -> None:
        self.console.print("starting a local Spark …", style="dim")

    def _notice(self, message: str) -> None:
        self.console.print(f"note: {message}", style="yellow")

    # ----------------------------------------------------------------- commands

    def _command(self, text: str) -> bool:
        command, _, argument = text.rstrip(";").partition(" ")
        argument = argument.strip()
        match command.lower():
            case "\\q" | "\\quit" | "\\exit" | "exit" | "quit":
                return False
            case "\\help" | "\\h" | "\\?" | "help":
                shown = help.page(argument).text() if argument else help.overview()
                self.console.print(shown)
            case "\\timing":
                self.timing = not self.timing
                self.console.print(f"timing is {'on' if self.timing else 'off'}")
            case "\\x":
                self.expanded = not self.expanded
                self.console.print(f"one column a line is {'on' if self.expanded else 'off'}")
            case "\\d":
                self._describe(argument)
            case "\\set":
                self._set(argument)
            case "\\i":
                self._include(argument)
            case "\\load":
                self._load_functions(argument)
            case "\\plot":
                self._plot(text)
            case unknown:
                raise CqlError(
                    f"there is no command {unknown}",
                    hint=did_you_mean(unknown, COMMANDS) or "\\help SHELL lists the commands",
                )
        return True

    def _describe(self, name: str) -> None:
        if name:
            self.execute(f"DESCRIBE {name}")
            return
        for what in ("STREAMS", "VIEWS", "TABLES"):
            self.execute(f"SHOW {what}")

    def _set(self, argument: str) -> None:
        if not argument:
            self.execute("SHOW SETTINGS")
            return
        name, _, value = argument.replace("=", " ", 1).partition(" ")
        if not value.strip():
            self.execute(f"SET {name}")
            return
        self.session.set(name, value.strip().strip("'"))
        self.console.print(f"{name} is set")

    def _include(self, path: str) -> None:
        if not path:
            raise CqlError("\\i needs a file", hint="\\i queries/demo/first.cql")
        text = read_script(Path(path).expanduser())
        try:
            self.execute(text)
        except CqlError as error:
            raise error.with_text(text) from None

    def _plot(self, text: str) -> None:
        from cql.repl.plot import plot

        self.console.print(plot(self.session, text), soft_wrap=True)

    def _load_functions(self, source: str) -> None:
        if not source:
            raise CqlError("\\load needs a Python file", hint="\\load my_functions.py")
        from cql.functions.declare import collect

        found = collect(source)
        self.session.register_functions(found)
        self.console.print(f"loaded {', '.join(f.name for f in found)}")


def read_script(path: Path) -> str:
    """The text of a file; CqlError when it cannot be read."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise CqlError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CqlError(f"{path} is not UTF-8 text (byte {error.start})") from None


def _continuation(width: int, line: int, wrapped: int) -> StyleAndTextTuples:
    """The prompt before a further line; blanks before the rest of a wrapped line."""
    return [("class:continuation", " " * width if wrapped else CONTINUATION)]


def make_prompt(shell: Shell, history: History | None = None) -> PromptSession[str]:
    """The prompt: Enter runs a complete text and starts a new line in an incomplete one. Loading
    begins after the first drawing of the prompt."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.completion import ThreadedCompleter
    from prompt_toolkit.filters import Condition, has_focus
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.lexers import PygmentsLexer
    from prompt_toolkit.styles import Style

    from cql.repl.completer import CqlCompleter
    from cql.repl.lexer import STYLE, CqlLexer
    from cql.repl.text import is_complete

    keys = KeyBindings()

    @Condition
    def choosing() -> bool:
        state = get_app().current_buffer.complete_state
        return state is not None and state.current_completion is not None

    @keys.add("enter", filter=has_focus("DEFAULT_BUFFER") & choosing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None  # the text already holds the completion

    @keys.add("enter", filter=has_focus("DEFAULT_BUFFER") & ~choosing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=True)

    prompt: PromptSession[str] = PromptSession(
        message=[("class:prompt", PROMPT)],
        prompt_continuation=_continuation,
        multiline=True,
        key_bindings=keys,
        lexer=PygmentsLexer(CqlLexer),
        style=Style.from_dict(STYLE),
        completer=ThreadedCompleter(CqlCompleter(shell)),
        complete_while_typing=True,
        auto_suggest=AutoSuggestFromHistory(),
        history=history if history is not None else open_history(shell.console),
        enable_history_search=False,
    )
    prompt.app.after_render += lambda _: shell.preload()
    return prompt


def open_history(console: Console) -> History:
    """The user's history file; a history in memory if the file cannot be written."""
    import platformdirs
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = Path(platformdirs.user_state_dir("cql-streams", appauthor=False)) / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        console.print(f"note: no history is kept ({path}: {error.strerror})", style="yellow")
        return InMemoryHistory()
    return FileHistory(str(path))
