"""Ctrl-C does not reach numba's compiler: an interrupt inside would break the compiler for the
whole process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from cql.base.uninterruptible import uninterruptible
from cql.executor.codegen import module
from cql.session.session import Session

NUMBERS = pa.table({"t": [1, 2, 3], "k": [1, 0, -1]})


def test_what_is_done_apart() -> None:
    caller = threading.current_thread()
    assert uninterruptible(threading.current_thread) is not caller
    with pytest.raises(StopIteration, match="told"):
        uninterruptible(lambda: next(told for told in [_raise(StopIteration("told"))]))
    inner: list[bool] = []
    other = threading.Thread(
        target=lambda: inner.append(
            uninterruptible(threading.current_thread) is threading.current_thread()
        )
    )
    other.start()
    other.join()
    assert inner == [True]  # no interrupt reaches a thread other than the main thread


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("wakes", [True, False])
def test_an_interrupt_leaves_the_work_alone(wakes: bool, interrupts: Callable[[], None]) -> None:
    """With ``wakes`` false, the signal does not wake the main thread, as one that comes just before
    the main thread blocks."""
    go_on, done = threading.Event(), []

    def work() -> int:
        if wakes:
            interrupts()
        else:
            signal.raise_signal(signal.SIGINT)  # in this thread
        go_on.wait()
        done.append(1)
        return 1

    with pytest.raises(KeyboardInterrupt):
        uninterruptible(work)
    assert not done
    go_on.set()
    assert uninterruptible(lambda: len(done)) == 1  # this work waits for the first


@pytest.mark.parametrize("runtime", ["depth_first", "fifo", "ordered"])
def test_an_interrupted_kernel_is_there_for_the_next_query(
    runtime: str, interrupts: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    plain = module._import

    def interrupted(name: str, *rest: Any) -> ModuleType:
        if not compiled:
            interrupts()
        made = plain(name, *rest)
        compiled.append(name)
        return made

    monkeypatch.setattr(module, "_import", interrupted)
    terms = " + k" * len(runtime)  # a kernel of its own for each runtime
    text = f"SELECT t, k * 3{terms} AS v FROM s WHERE t - 99{terms} < t"
    with Session(False) as session:
        session.create_stream("s", NUMBERS, ordered_by="t", unit="seconds")
        session.set("runtime", runtime)
        with pytest.raises(KeyboardInterrupt):
            session.sql(text).to_arrow()
        got = session.sql(text).to_arrow()
    assert got.column("v").to_pylist() == [(3 + len(runtime)) * k for k in (1, 0, -1)]
    assert len(compiled) == len(set(compiled)) == 1


#: A program that notes the thread of each kernel that numba compiles or loads from its cache.
_WHERE = """
import threading
from numba.core import ccallback, dispatcher
import pyarrow as pa, cql

def watched(inner):
    def outer(self, *arguments):
        threads.add(threading.current_thread() is threading.main_thread())
        return inner(self, *arguments)
    return outer

threads = set()
dispatcher.Dispatcher.compile = watched(dispatcher.Dispatcher.compile)
ccallback.CFunc.compile = watched(ccallback.CFunc.compile)

def near(v: int) -> int:
    return v + 1

table = pa.table({"t": list(range(40)), "k": [i % 3 for i in range(40)], "s": ["a", "b"] * 20})
texts = [
    "SELECT k, count(*) AS n FROM s [RANGE 5 SLIDE 5 WA t] GROUP BY k",
    "SELECT s, near(k) AS m FROM s WHERE upper(s) < 'B'",
    "SELECT k, median(k) AS n, window_end FROM s [SESSION 2 WA t] GROUP BY k",
    "SELECT k, array_agg(t) AS n, window_end FROM s [SESSION 2 WA t] GROUP BY k",
    "SELECT k, count(*) AS n FROM s [RANGE 5 SLIDE 5 WA t] GROUP BY k ORDER BY n, k LIMIT 2",
    "SELECT a.t, b.k FROM s [RANGE 2] AS a JOIN s [RANGE 2] AS b ON a.k = b.k AND b.t < 5",
    "SELECT DISTINCT k FROM s [ROWS 3]",
]
with cql.connect(False, functions=[near]) as session:
    session.create_stream("s", table, ordered_by="t", unit="seconds")
    for runtime in ("depth_first", "fifo", "ordered"):
        session.set("runtime", runtime)
        for text in texts:
            query = session.sql(text)
            query.explain()
            assert query.to_arrow().num_rows, text
assert threads == {False}, threads
"""


@pytest.mark.slow
def test_no_query_compiles_in_the_main_thread() -> None:
    done = subprocess.run([sys.executable, "-c", _WHERE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
