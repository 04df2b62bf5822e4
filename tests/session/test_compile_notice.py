"""The notice that kernels are being compiled: when it appears, and where it is printed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cql
from cql.base import compile_notice
from cql.base.compile_notice import NOTICE, CompileWatch


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.delenv("CQL_COMPILE_NOTICE")
    return Clock()


def watch_of(clock: Clock, told: list[str]) -> CompileWatch:
    watch = CompileWatch(clock)
    watch.notify = told.append
    return watch


def compiled(watch: CompileWatch, clock: Clock, seconds: float) -> None:
    watch.begins()
    clock.now += seconds
    watch.ends()


def test_it_comes_once_after_a_second_of_compiling(clock: Clock) -> None:
    told: list[str] = []
    watch = watch_of(clock, told)
    for _ in range(3):
        compiled(watch, clock, 0.4)
        clock.now += 1000.0  # time without compiling does not count
        assert told == []
    compiled(watch, clock, 0.4)
    compiled(watch, clock, 40.0)
    assert told == [NOTICE]


def test_kernels_that_others_call_count_once(clock: Clock) -> None:
    told: list[str] = []
    watch = watch_of(clock, told)
    watch.begins()
    for _ in range(2):
        clock.now += 0.3
        compiled(watch, clock, 0.3)
    watch.ends()
    assert told == []
    compiled(watch, clock, 0.8)
    compiled(watch, clock, 0.1)
    assert told == [NOTICE]


def test_what_fails_to_compile_is_over_with_its_statement(clock: Clock) -> None:
    class Teller:
        def notify(self, message: str) -> None:
            raise AssertionError(message)

    watch = watch_of(clock, [])
    teller = Teller()
    watch.begins()
    clock.now += 1000.0
    watch.report_to(teller.notify)
    compiled(watch, clock, 0.1)
    compiled(watch, clock, 0.1)


def test_where_it_goes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    watch = CompileWatch()
    monkeypatch.setattr("cql.session.session.WATCH", watch)
    with cql.connect(spark=False) as session:
        session.sql("SHOW SETTINGS")
        watch.notify(NOTICE)
        assert capsys.readouterr().err == f"cql: {NOTICE}\n"
        notices: list[str] = []
        session.on_notice = notices.append
        watch.notify(NOTICE)
        assert (notices, capsys.readouterr().err) == ([NOTICE], "")
    del session
    gc.collect()
    watch.notify(NOTICE)  # no session is left to receive it
    assert capsys.readouterr().err == ""


def test_a_notice_that_fails_does_not_end_what_compiles(clock: Clock) -> None:
    def fails(message: str) -> None:
        raise RuntimeError(message)

    watch = CompileWatch(clock)
    watch.notify = fails
    compiled(watch, clock, 5.0)
    compiled(watch, clock, 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["", "off"])
def test_numba_tells_of_what_is_in_no_cache(tmp_path: Path, switch: str) -> None:
    """Unless switched off, the notice comes from the process that compiles, not from the next."""
    (tmp_path / "kernel.py").write_text(
        "from cql.base import compile_notice\n"
        "from cql.executor.jit.decorators import njit\n"
        "compile_notice.WATCH.notify = print\n"
        "compile_notice.WATCH._spent = 10.0\n"
        "@njit('int64(int64)', cache=True)\n"
        "def kernel(x):\n"
        "    return x + 1\n"
        "print(kernel(1))\n"
    )
    env = {**os.environ, "CQL_COMPILE_NOTICE": switch, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    outputs = [
        subprocess.run(
            [sys.executable, "kernel.py"],
            cwd=tmp_path,
            env={**env, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert outputs == [f"{NOTICE}\n2\n" if not switch else "2\n", "2\n"]
    assert compile_notice.WATCH.quiet  # in tests, no output may depend on what is compiled
