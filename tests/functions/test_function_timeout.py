"""SET function_timeout ends a call of a user function that takes longer, and ends nothing else.

Slow functions never end by themselves, and fast ones have a limit of an hour, so that no test
depends on the speed of the machine."""

from __future__ import annotations

import gettext
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import cql
from cql.base import call_timeout
from cql.base.call_timeout import Limit, TimeLimitError, within
from cql.errors import RunError, SettingError
from tests.support.function_fixtures import ROWS, column, repeated, session_of, shout, values
from tests.support.runtimes import RUNTIMES, named

SHORT, LONG = Limit(20_000, "20 ms"), Limit(3_600_000_000, "1 hour")


# -- one call --------------------------------------------------------------------------------------


def spins() -> None:
    while True:
        pass


def catches_errors() -> None:
    while True:
        try:
            int("x")
        except Exception:
            continue


def catches_everything_twice() -> None:
    for _ in range(2):
        try:
            spins()
        except BaseException:
            continue
    spins()


def cleans_up_for_long() -> None:
    try:
        spins()
    finally:
        spins()


def limits_itself() -> object:
    return within(LONG, "inner", spins)


@pytest.mark.parametrize(
    "function",
    [spins, catches_errors, catches_everything_twice, cleans_up_for_long, limits_itself],
)
def test_a_call_that_never_ends_is_ended(function: Callable[[], object]) -> None:
    with pytest.raises(TimeLimitError, match="f ran longer than function_timeout = '20 ms'"):
        within(SHORT, "f", function)


def test_the_innermost_limit_is_told_first() -> None:
    def calls() -> str:
        with pytest.raises(TimeLimitError, match="inner ran"):
            within(SHORT, "inner", spins)
        return "goes on"

    assert within(LONG, "outer", calls) == "goes on"


def test_results_and_errors_pass() -> None:
    assert within(LONG, "f", divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        within(LONG, "f", divmod, 7, 0)
    with pytest.raises(SystemExit):
        within(LONG, "f", exit)


def test_nothing_is_raised_after_a_call() -> None:
    """Calls that end about when their limit expires give a result or a ``TimeLimitError``, and
    raise nothing afterwards."""
    limit = Limit(1_000, "1 ms")

    def ends_at(after: float) -> str:
        while time.monotonic() < after:
            pass
        return "made"

    def call_often(seen: list[str]) -> None:
        try:
            for k in range(150):
                try:
                    seen.append(within(limit, "f", ends_at, time.monotonic() + k % 5 / 2_000))
                except TimeLimitError:
                    seen.append("ended")
                sum(range(k))
        except BaseException as error:
            seen.append(repr(error))
            raise

    seen: list[list[str]] = [[], [], []]
    threads = [threading.Thread(target=call_often, args=(s,)) for s in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {len(s) for s in seen} == {150}
    assert set().union(*seen) == {"made", "ended"}


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "cql-watch"]


def test_the_watch_ends_when_there_is_nothing_to_watch() -> None:
    within(LONG, "f", int)
    for thread in watchers():
        thread.join(60)
    assert not watchers()
    with session_of() as session:
        session.register_function("f", lambda w: w, ["string"], "string")
        assert values(session.sql("SELECT f(w) FROM s")) == column("w")
    assert not watchers()


def is_profiled_to_the_end() -> bool:
    """Whether a thread with a profiler gets through a function."""
    seen = list[str]()

    def profiled() -> None:
        sys.setprofile(lambda frame, event, _: seen.append(event))
        gettext.translation("none", fallback=True)

    thread = threading.Thread(target=profiled, daemon=True)
    thread.start()
    thread.join(20)
    return not thread.is_alive() and "call" in seen


def test_a_profiler_works_during_a_call_that_is_stuck_and_after_it() -> None:
    """A profiled thread of CPython 3.11 hangs while an exception is pending in any thread."""
    held, ended = threading.Lock(), list[bool]()

    def is_stuck() -> None:
        with pytest.raises(TimeLimitError):
            within(SHORT, "stuck", held.acquire)
        ended.append(True)

    def is_struck() -> bool:
        calls = list(call_timeout._watch.calls)
        return any(call.struck and not call.striking for call in calls if call.name == "stuck")

    with held:
        thread = threading.Thread(target=is_stuck, daemon=True)
        thread.start()
        while not is_struck() and not ended:
            time.sleep(0.001)
        assert is_profiled_to_the_end()
    thread.join()
    assert ended
    assert is_profiled_to_the_end()


def test_an_interrupt_waits_for_the_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in, calls = call_timeout._raise_in, list[int]()

    def interrupted(thread: int, exception: int) -> None:
        calls.append(exception)
        if len(calls) == 1:
            raise KeyboardInterrupt
        raise_in(thread, exception)

    monkeypatch.setattr(call_timeout, "_raise_in", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call_timeout._receive()
    assert calls == [id(call_timeout.Strike)] * 2
    assert sum(map(int, "123")) == 6  # nothing is raised behind it


class Released(logging.Handler):
    """Releases the stuck function once the log reports that it does not end."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = threading.Event()
        self.said = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.said = record.getMessage()
        self.gone.set()


def test_what_cannot_be_interrupted_is_told_of_and_fails_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_timeout, "_REPORT_AFTER", 0.0)
    released = Released()
    logger = logging.getLogger("cql")
    logger.addHandler(released)
    try:
        with session_of(function_timeout="20 ms") as session:
            session.register_function("stuck", lambda n: released.gone.wait(), ["int"], "boolean")
            with pytest.raises(RunError, match="stuck ran longer than function_timeout"):
                session.sql("SELECT stuck(i) FROM s").to_arrow()
    finally:
        logger.removeHandler(released)
    assert released.said.startswith("stuck does not end although it runs longer than")


# -- queries ---------------------------------------------------------------------------------------


def compiled(n: int) -> int:
    while n < 100 or n > 5:
        n = (n + 7) % 1000
    return n


def calls_compiled(n: int) -> int:
    return compiled(n) + 1


def through_python(n: int) -> int:
    while n >= 0:
        n += len(str(n))
    return n


def of_text(w: str) -> str:
    while w:
        w = w[::-1]
    return w


def of_two(w: str, n: int) -> int:
    while w:
        n += 1
    return n


def of_none(n):
    while n is not None:
        n += 1
    return 0


def aggregate(name: str, update: Any, final: Any) -> Any:
    parts = {"init": lambda: (0,), "update": update, "final": final}
    return cql.aggregate("bigint", args=["bigint"], name=name)(type(name, (), parts))


def adds_for_ever(state, x):
    total = state[0]
    while total >= 0:
        total = (total + x * x) % 1000
    return (total,)


def counts_for_ever(state):
    n = state[0]
    while n >= 0:
        n = (n + 1) % 1000
    return n


FUNCTIONS = [compiled, calls_compiled, through_python, of_text, of_two]
FUNCTIONS += [cql.function("bigint", args=["bigint"], null_handling="call")(of_none)]
FUNCTIONS += [
    aggregate("endless_update", adds_for_ever, lambda state: state[0]),
    aggregate("endless_final", lambda state, x: (state[0] + x * 0,), counts_for_ever),
]
WINDOW = "FROM s [RANGE 10 SLIDE 10]"
CALLS = {
    "compiled": "SELECT compiled(n) FROM s",
    "compiled,": "SELECT calls_compiled(n) FROM s",
    "through_python": "SELECT i, through_python(n) FROM s WHERE i > 2",
    "of_text": "SELECT of_text(w) FROM s",
    "of_two": "SELECT of_two(w, n) FROM s",
    "of_none": "SELECT of_none(n) FROM s WHERE i > 3",
    "endless_update.update": f"SELECT b, endless_update(n) {WINDOW} GROUP BY b",
    "endless_final.final": f"SELECT endless_final(n) {WINDOW}",
    "through_python,": f"SELECT through_python(count(*)) {WINDOW}",
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_a_query_fails_whose_function_never_ends(settings: dict[str, Any]) -> None:
    with session_of(function_timeout="20 ms", on_bad_row="keep", **settings) as session:
        session.register_functions(FUNCTIONS)
        for name, text in CALLS.items():
            with pytest.raises(RunError) as caught:
                session.sql(text).to_arrow()
            said = str(caught.value)
            name = "calls_compiled" if name == "compiled," else name.rstrip(",")
            assert f"{name} ran longer than function_timeout = '20 ms', in " in said, text
            assert "hint: SET function_timeout = " in said
            assert caught.value.position is not None
        # The session works normally afterwards.
        assert values(session.sql("SELECT i FROM s")) == list(range(ROWS))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_a_limit_that_is_not_reached_changes_nothing(settings: dict[str, Any]) -> None:
    def steps(n: int) -> int:
        total = 0
        for k in range(1_000):
            for _ in range(3):
                total = (total + k * n) % 7_919
        return total

    def careful(n: int) -> int:
        try:
            return 100 // (n - 1)
        except ZeroDivisionError:
            return -1

    text = "SELECT steps(n), careful(n), shout(w), repeated(w, i) FROM s"
    made = []
    for limit in ("off", "1 hour"):
        with session_of(function_timeout=limit, morsel_rows=7, **settings) as session:
            session.register_functions([steps, careful, shout, repeated])
            made.append(session.sql(text).to_arrow())
    assert made[0].equals(made[1])
    assert made[0].num_rows == ROWS


def test_a_constant_that_never_ends() -> None:
    with session_of(function_timeout="20 ms") as session:
        session.register_function("compiled", compiled)
        with pytest.raises(RunError, match="compiled ran longer"):
            session.sql("SELECT compiled(7) FROM s").to_arrow()


def test_explain_says_what_runs_in_python_for_the_limit() -> None:
    def careful(n: int) -> int:
        try:
            return 100 // n
        except Exception:
            return -1

    with session_of(function_timeout="1 hour") as session:
        session.register_function("careful", careful)
        assert "has try or with" in session.sql("SELECT careful(n) FROM s").explain()


@pytest.mark.parametrize("wrong", ["soon", "-1 s", "0 s", "100 rows", 7, True])
def test_lengths_of_time_only(wrong: Any) -> None:
    with pytest.raises(SettingError, match="function_timeout does not take"):
        cql.connect(spark=False, function_timeout=wrong)
