"""The shell: how it judges unfinished text, what it prints, and how Ctrl-C interrupts it."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from pygments.token import Comment, Error, Keyword, Name, Number, String, Token

from cql.base.settings import SETTINGS
from cql.errors import CqlError, RunError
from cql.planner.lower.refuse import refuse
from cql.planner.nodes import statements
from cql.repl import shell as shell_module
from cql.repl.completer import CqlCompleter
from cql.repl.lexer import CqlLexer
from cql.repl.screen import Feed, Screen, Stopped, status_line
from cql.repl.shell import Shell, make_prompt
from cql.repl.text import is_complete, tokens
from cql.session.session import Session
from cql.show import help
from tests.support.bind_fixtures import world
from tests.support.fake_run import FakeRun, FakeSink, batch, make_query
from tests.support.terminal import Terminal

FLIGHTS = pa.table({"ts": pa.array([0, 1], pa.timestamp("us", "UTC")), "origin": ["JFK", "LGA"]})


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def runs() -> list[FakeRun]:
    """The fake runs that the session's queries take in turn."""
    return []


@pytest.fixture
def shell(terminal: Terminal, runs: list[FakeRun]) -> Iterator[Shell]:
    def connect() -> Session:
        session = Session(False, run=lambda *_: runs.pop(0))
        session.create_stream("flights", FLIGHTS, "ts")
        session.warm_up = lambda: None
        return session

    made = Shell(connect, terminal.console)
    yield made
    made.close()


# --------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("  \n", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- so", True),
        ("SELECT 1; /* so */ ", True),
        ("SELECT 1; /* so", False),
        ("SELECT ';", False),
        ("SELECT 'it''s;'", False),
        ("SELECT 'it''s;';", True),
        ('SELECT "a;', False),
        ("SELECT 1 -- ;", False),
        ("SELECT /*+ a(1) */ 1;", True),
        ("SELECT /* a /* b */ ; */ 1", False),
        ("SELECT 1;\nSELECT 2", False),
        ("\\d flights", True),
        ("help", True),
    ],
)
def test_completeness(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@pytest.mark.parametrize(
    "text", ["", "SELECT 'a", "/*", "a.b[RANGE 1.5 min]", "\x00é`", "1e", "''"]
)
def test_tokens_lose_nothing(text: str) -> None:
    assert "".join(t.text for t in tokens(text)) == text


def kinds(text: str) -> list[tuple[Any, str]]:
    found = CqlLexer().get_tokens_unprocessed(text)
    return [(kind, word) for _, kind, word in found if word.strip()]


def test_highlighting() -> None:
    assert kinds("select count(a) FROM s [RANGE 1 minute] -- x") == [
        (Keyword, "select"),
        (Name.Function, "count"),
        (Token.Punctuation, "("),
        (Name, "a"),
        (Token.Punctuation, ")"),
        (Keyword, "FROM"),
        (Name, "s"),
        (Token.Punctuation, "["),
        (Keyword, "RANGE"),
        (Number, "1"),
        (Keyword, "minute"),
        (Token.Punctuation, "]"),
        (Comment, "-- x"),
    ]
    assert kinds("CAST(NULL AS BIGINT) 'it''s' :n /*+ fuse(off) */")[2:] == [
        (Keyword.Constant, "NULL"),
        (Keyword, "AS"),
        (Keyword.Type, "BIGINT"),
        (Token.Punctuation, ")"),
        (String, "'it''s'"),
        (Name.Variable, ":n"),
        (Comment.Preproc, "/*+ fuse(off) */"),
    ]
    assert kinds("'open") == [(Error, "'open")]
    assert kinds("/* open") == [(Error, "/* open")]


# --------------------------------------------------------------------------- completion


class Known:
    def functions(self) -> Sequence[str]:
        return ("fahrenheit",)

    def tables(self) -> Sequence[str]:
        return ("flights", "weather", "db.late")

    def columns(self, table: str) -> Sequence[tuple[str, str]]:
        columns = {"flights": (("origin", "string"), ("ts", "timestamp"))}
        return columns.get(table, ())


def offered(before: str, after: str = "") -> list[str]:
    document = Document(before + after, len(before))
    found = CqlCompleter(Known()).get_completions(document, CompleteEvent())
    return [c.text for c in found]


def test_completion() -> None:
    assert offered("SELECT fahr") == ["fahrenheit"]
    assert offered("SEL") == ["SELECT"]
    assert offered("sel") == ["select"]
    assert offered("SELECT * FROM ") == ["flights", "weather", "db.late"]
    assert offered("SELECT * FROM fl") == ["flights"]
    assert offered("SELECT * FROM flights, w")[0] == "weather"
    assert offered("SELECT or", " FROM flights")[0] == "origin"
    assert offered("SELECT * FROM flights [RANGE 1 min] AS f WHERE f.") == ["origin", "ts"]
    assert offered("SELECT * FROM flights f WHERE f.o") == ["origin"]
    assert offered("SELECT * FROM db.") == ["late"]
    assert "count" in offered("SELECT cou")
    assert offered("SET run") == ["runtime"]
    assert offered("SET ") == list(SETTINGS)
    assert offered("SET j") == [
        *("join_operator", "join_order"),
        *("join_alpha", "join_cost", "join_punctuation", "join_flush"),
    ]
    assert "fifo_slice" in offered("SET runtime = ")
    assert offered("SET worklist = s") == ["shared"]
    assert offered("SET fuse = o") == ["on", "off"]
    assert offered("SHOW ST") == ["STREAMS", "STALENESS"]
    assert offered("EXPLAIN an")[0] == "analyze"
    assert offered("DESCRIBE we") == ["weather"]
    assert offered("SELECT 1; DESCRIBE we") == ["weather"]
    assert offered("INSERT INTO w") == ["weather"]


def test_the_menu_stays_closed_behind_a_semicolon() -> None:
    for text in ("SELECT 1;", "SELECT 1; ", "SELECT 1;\n"):
        typed = CqlCompleter(Known()).get_completions(Document(text), CompleteEvent())
        assert list(typed) == []
        asked = CompleteEvent(completion_requested=True)
        assert "SELECT" in [
            c.text for c in CqlCompleter(Known()).get_completions(Document(text), asked)
        ]
    assert offered("SELECT 1; SEL") == ["SELECT"]


def test_no_completion_inside_text() -> None:
    assert offered("SELECT 'fl") == []
    assert offered("SELECT 1 -- fl") == []


def test_completion_of_commands(tmp_path: Path) -> None:
    (tmp_path / "demo.cql").write_text("")
    assert offered("\\t") == ["\\timing"]
    assert offered("\\help WI") == ["WINDOW"]
    assert offered("\\d fl") == ["flights"]
    assert offered("\\set mor") == ["morsel_rows"]
    assert offered(f"\\i {tmp_path}/d") == [f"{tmp_path}/demo.cql"]
    assert offered("\\i /no/such/folder/x") == []
    assert offered(f"\\plot {tmp_path}/d") == [f"{tmp_path}/demo.cql"]
    assert "flights" in offered("\\plot 'a b.png' SELECT ts FROM fl")
    assert "SELECT" in offered("\\plot a.png SEL")


# --------------------------------------------------------------------------- help


@pytest.mark.parametrize("topic", help.topics())
def test_pages(topic: str) -> None:
    page = help.page(topic.lower())
    assert page.topic == topic
    assert topic in help.overview()
    flights = world(
        "CREATE STREAM spark_catalog.nyc.flights (ts TIMESTAMP, origin STRING, dep_delay DOUBLE)"
        " ORDERED BY ts; CREATE STREAM trades (a INT)"
    )
    for example in page.examples:
        bound = flights.bind(example, minutes=60)
        match bound:
            case statements.Query():
                refuse(bound.plan)
            case statements.Insert():
                refuse(bound.query.plan)
            case statements.CreateTable() | statements.CreateView():
                flights.run(example)
    assert max(map(len, page.text().splitlines())) <= 100


def test_unknown_topic() -> None:
    with pytest.raises(CqlError, match="no help on windw") as caught:
        help.page("windw")
    assert "WINDOW" in str(caught.value)
    assert help.page("group  by;").topic == "SELECT"


def test_help_lists_settings_for_experiments_behind_a_heading() -> None:
    before, heading, after = help.page("settings").body.partition("\nFor experiments")
    assert heading
    for part, experiment in ((before, False), (after, True)):
        named = re.findall(r"^  (\w+) = ", part, re.MULTILINE)
        assert named == [s.name for s in SETTINGS.values() if s.experiment == experiment]


# --------------------------------------------------------------------------- the screen


def test_a_bounded_result(terminal: Terminal) -> None:
    Screen(terminal.console).present(make_query(FakeRun(batch(*range(30)), batch(*range(30)))))
    assert "60 rows (2.0 s) (the first 40 are shown)" in terminal.text
    assert terminal.text.count("│     29 │") == 1


def test_an_unbounded_result_shows_the_last_rows() -> None:
    terminal = Terminal(tty=True)
    run = FakeRun(*(batch(i) for i in range(100)))
    run.state.event_time = 0
    Screen(terminal.console).present(make_query(run, bounded=False))
    last = terminal.text.rpartition("╭")[2]
    assert "99" in last
    assert "1970-01-01 00:00:00" in last
    assert "Ctrl-C stops" in terminal.text


def test_an_insert(terminal: Terminal) -> None:
    sink = FakeSink()
    Screen(terminal.console).present(make_query(FakeRun(batch(1, 2)), sink))
    assert sink.epochs == [[1, 2]]
    assert "2 rows inserted into t" in terminal.text


def test_an_unbounded_insert_goes_to_the_background(terminal: Terminal) -> None:
    query = make_query(FakeRun(endless=True), FakeSink(), bounded=False, epoch=3600)
    Screen(terminal.console).present(query)
    assert "q1 runs in the background" in terminal.text
    assert query.stop()


def test_errors_come_through(terminal: Terminal) -> None:
    run = FakeRun(batch(1))
    run.error = RunError("overflow")
    with pytest.raises(RunError, match="overflow"):
        Screen(terminal.console).present(make_query(run))


def test_the_status_line() -> None:
    run = FakeRun(batch(1))
    query = make_query(run)
    assert status_line(query) == "starting"
    query.to_arrow()
    run.state.rows_in = 0
    assert status_line(query) == "waiting for rows (2.0 s)"
    run.metrics = list
    assert status_line(query) == "compiling (2.0 s)"
    run.state.rows_in, run.state.total_rows, run.state.late = 500, 1000, 3
    run.state.event_time = 1_000_000
    assert status_line(query) == (
        "━━━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌  50%  500 rows read, 250 rows/s  "
        "event time 1970-01-01 00:00:01  3 late, 0 bad"
    )
    run.state.tasks = (3, 1_600)
    assert "250 rows/s  3 of 1,600 tasks  event time" in status_line(query)
    run.state.rows_in = 0
    assert status_line(query) == "3 of 1,600 tasks (2.0 s)"
    run.state.tasks = None
    live = make_query(run, bounded=False)
    next(iter(live))
    run.state.rows_in = 500
    assert "lag 2.0 s" in status_line(live, now=3.0)


def test_a_narrow_status_line_keeps_late_and_bad_rows() -> None:
    run = FakeRun(batch(1))
    query = make_query(run)
    query.to_arrow()
    run.state.rows_in, run.state.total_rows, run.state.late = 500, 1000, 3
    run.state.event_time = 1_000_000
    whole = status_line(query)
    assert status_line(query, width=len(whole)) == whole
    narrow = "500 rows read, 250 rows/s  event time 1970-01-01 00:00:01  3 late, 0 bad"
    assert status_line(query, width=len(whole) - 1) == narrow
    assert status_line(query, width=60) == "500 rows read, 250 rows/s  3 late, 0 bad"
    assert status_line(query, width=20) == "3 late, 0 bad"


def interrupt_when(event: threading.Event) -> threading.Thread:
    """Presses Ctrl-C once ``event`` is set."""

    def work() -> None:
        assert event.wait(240)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.fixture
def _sigint() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_sigint")
@pytest.mark.parametrize("bounded", [True, False])
def test_ctrl_c_stops_a_query(terminal: Terminal, bounded: bool) -> None:
    run = FakeRun(batch(1), endless=True)
    query = make_query(run, bounded=bounded)
    thread = interrupt_when(run.waiting)
    with pytest.raises(Stopped) as caught:
        Screen(terminal.console).present(query)
    thread.join()
    assert not caught.value.lingering
    assert run.closed
    assert query.status == "stopped"


@pytest.mark.usefixtures("_sigint")
def test_ctrl_c_does_not_wait_for_a_deaf_query(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cql.repl.screen.PATIENCE", 0.01)
    run = FakeRun(endless=True)
    heard = threading.Event()
    monkeypatch.setattr(run, "request_stop", heard.set)  # a busy run, which stops only later
    thread = interrupt_when(run.waiting)
    with pytest.raises(Stopped) as caught:
        Screen(terminal.console).present(make_query(run, bounded=False))
    thread.join()
    assert caught.value.lingering
    assert heard.is_set()
    run.stop_requested.set()


@pytest.mark.usefixtures("_sigint")
def test_an_interrupted_insert_leaves_nothing(terminal: Terminal) -> None:
    run, sink = FakeRun(batch(1), endless=True), FakeSink()
    thread = interrupt_when(run.waiting)
    with pytest.raises(Stopped):
        Screen(terminal.console).present(make_query(run, sink))
    thread.join()
    assert (sink.epochs, sink.aborted) == ([], 1)


def test_a_feed_that_nobody_reads_ends() -> None:
    run = FakeRun(*(batch(i) for i in range(1000)), endless=True)
    feed = Feed(make_query(run, bounded=False)).start()
    assert run.started.wait(60)
    assert feed.stop()
    assert run.closed


# --------------------------------------------------------------------------- statements


def test_a_session_of_statements(shell: Shell, terminal: Terminal, runs: list[FakeRun]) -> None:
    runs.append(FakeRun(pa.record_batch({"origin": ["JFK", "LGA"]})))
    assert shell.handle("SELECT origin FROM flights;")
    assert "JFK" in terminal.text
    assert shell.handle("SELECT orign FROM flights;")
    assert "error: " in terminal.text
    assert "       ^^^^^" in terminal.text
    assert "hint: did you mean origin?" in terminal.text
    assert shell.handle("SELEC origin FROM flights;")
    assert shell.handle("\\d")
    assert "flights" in terminal.text
    assert shell.handle("\\d flights")
    assert "timestamp" in terminal.text
    assert shell.tables() == ["flights"]
    assert shell.columns("flights") == [("ts", "timestamp"), ("origin", "string")]
    assert shell.columns("nowhere") == ()


def test_commands(shell: Shell, terminal: Terminal, tmp_path: Path) -> None:
    assert shell.handle("\\help window")
    assert "SLIDE" in terminal.text
    assert shell.handle("help")
    assert shell.handle("\\timing")
    assert shell.handle("SHOW STREAMS;")
    assert "time: " in terminal.text
    assert shell.handle("\\set morsel_rows 7")
    assert shell.handle("\\set max_state '2 GB'")
    assert shell.session.settings.morsel_rows == 7
    assert shell.session.settings.max_state == 2_000_000_000
    assert shell.handle("\\set")
    assert shell.handle("\\set fuse")
    script = tmp_path / "a.cql"
    script.write_text("SET fuse = off;\nSELECT nope FROM flights;")
    assert shell.handle(f"\\i {script}")
    assert shell.session.settings.fuse is False
    assert "line 2" in terminal.text
    for bad in ("\\nope", "\\i", "\\i /no/such/file", "\\set nope 1", "\\help nope"):
        before = terminal.text.count("error: ")
        assert shell.handle(bad)
        assert terminal.text.count("error: ") == before + 1
    assert shell.handle("")
    for leave in ("\\q", "exit", "quit"):
        assert not shell.handle(leave)


def test_columns_that_do_not_fit_can_be_seen(shell: Shell, terminal: Terminal) -> None:
    names = [f"column_{k}" for k in range(12)]
    for text in ("\\x", "\\x"):
        assert shell.handle(text)
    assert "one column a line is on\none column a line is off" in terminal.text
    table = pa.table({name: [1, None] for name in names})
    terminal.console.print(Screen(terminal.console, expanded=False)._rows(table))
    assert "not shown: the window is too narrow (\\x shows one column a line)" in " ".join(
        terminal.text.split()
    )
    before = len(terminal.text)
    terminal.console.print(Screen(terminal.console, expanded=True)._rows(table))
    lines = terminal.text[before:].split("\n")
    assert lines[:2] == ["─[ row 1 ]─", "column_0  │ 1"]
    assert lines[13:15] == ["─[ row 2 ]─", "column_0  │ NULL"]
    assert all(any(line.startswith(f"{name:<9} │") for line in lines) for name in names)
    before = len(terminal.text)
    terminal.console.print(Screen(terminal.console)._rows(table))
    assert "\\x" not in terminal.text[before:]  # a script cannot type \x


@pytest.mark.usefixtures("_sigint")
def test_ctrl_c_leaves_the_session_usable(
    shell: Shell, terminal: Terminal, runs: list[FakeRun]
) -> None:
    run = FakeRun(endless=True)
    runs += [run, FakeRun(pa.record_batch({"origin": ["LGA"]}))]
    thread = interrupt_when(run.waiting)
    assert shell.handle("SELECT origin FROM flights;")
    thread.join()
    assert "stopped" in terminal.text
    assert shell.handle("SELECT origin FROM flights;")
    assert "LGA" in terminal.text


def test_a_bug_is_shown_and_the_shell_goes_on(
    shell: Shell, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(text: str) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(shell, "execute", broken)
    assert shell.handle("SELECT 1;")
    assert "ZeroDivisionError: oops" in terminal.text
    assert "bug" in terminal.text


def test_notices_are_printed(shell: Shell, terminal: Terminal) -> None:
    shell.handle("EXPLAIN LOGICAL SHOW STREAMS;")
    shell.handle("CREATE VIEW v AS SELECT count(*) FROM flights [RANGE 1 second SLIDE 1 hour];")
    assert "note: " in terminal.text


def test_a_session_that_cannot_be_made(terminal: Terminal) -> None:
    def connect() -> Session:
        raise CqlError("no luck")

    broken = Shell(connect, terminal.console)
    assert broken.handle("SELECT 1;")
    assert "error: no luck" in terminal.text
    broken.close()


# --------------------------------------------------------------------------- the prompt


@pytest.fixture
def typed() -> Iterator[Callable[[str], None]]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys.send_text


def ask(shell: Shell) -> str:
    return make_prompt(shell, InMemoryHistory()).prompt()


def test_enter_runs_what_is_complete(shell: Shell, typed: Callable[[str], None]) -> None:
    typed("SELECT 1\rFROM x;\r")
    assert ask(shell) == "SELECT 1\nFROM x;"


def test_commands_need_no_semicolon(shell: Shell, typed: Callable[[str], None]) -> None:
    typed("\\d\r")
    assert ask(shell) == "\\d"


def test_ctrl_c_and_ctrl_d_at_the_prompt(shell: Shell, typed: Callable[[str], None]) -> None:
    typed("SELECT\x03")
    with pytest.raises(KeyboardInterrupt):
        ask(shell)
    typed("\x04")
    with pytest.raises(EOFError):
        ask(shell)


def test_the_loop(
    shell: Shell,
    terminal: Terminal,
    typed: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    typed("SHOW\x03\\d flights\rSHOW STREAMS;\r\x04")
    assert shell.run() == 0
    assert "Statements end with ;" in terminal.text
    assert "timestamp" in terminal.text
    assert "SHOW STREAMS;" in (tmp_path / "cql-streams" / "history").read_text()


def test_a_history_that_cannot_be_written(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cql-streams").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert isinstance(shell_module.open_history(terminal.console), InMemoryHistory)
    assert "no history" in terminal.text
