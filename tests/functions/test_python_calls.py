"""An interrupt of a Python function that a kernel calls reaches the query, and the query outputs no
row for which the function gave no result."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from cql.executor.kernels.lib.python_calls import ERROR, python_function
from cql.session.session import Session


@pytest.mark.parametrize("error", [KeyboardInterrupt("now"), SystemExit(3), ValueError("no")])
def test_what_a_function_raises_is_kept(error: BaseException) -> None:
    """The kernel's caller receives the error even if the function raises it in its first step."""

    def function(arguments: int, results: int) -> int:
        if arguments == 1:
            raise error
        return arguments + results

    raised: list[BaseException] = []
    own = function, raised
    call = python_function.ctypes
    assert call(id(own), 40, 2) == 42
    assert not raised
    assert call(id(own), 1, 2) == ERROR
    assert raised == [error]
    assert call(id(own), 0, 1) == 1


class CtrlC:
    """Ctrl-C held down: another thread sends the signal to the main thread, which raises
    ``KeyboardInterrupt`` once, and again if Python dropped the exception."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dropped: list[Any] = []
        self._due = False
        monkeypatch.setattr("sys.unraisablehook", self._drop)
        self._before = signal.signal(signal.SIGINT, self._interrupt)

    def _drop(self, what: Any) -> None:
        self.dropped.append(what.err_msg)
        self._due = True

    def _interrupt(self, number: int, frame: object) -> None:
        if self._due:
            self._due = False
            raise KeyboardInterrupt

    def taken(self, batches: Iterator[pa.RecordBatch], wait: float) -> list[pa.RecordBatch]:
        """The batches until the interrupt, about ``wait`` seconds after the first batch."""
        main, over, taken = threading.main_thread().ident, threading.Event(), [next(batches)]
        assert main is not None

        def press() -> None:
            while not over.wait(wait):
                signal.pthread_kill(main, signal.SIGINT)

        thread = threading.Thread(target=press, daemon=True)
        thread.start()
        self._due = True
        try:
            for batch in batches:  # list() would lose the batches before the interrupt
                taken.append(batch)  # noqa: PERF402
        except KeyboardInterrupt:
            over.set()
        thread.join()
        return taken

    def end(self) -> None:
        signal.signal(signal.SIGINT, self._before)


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["depth_first", "fifo", "ordered"])
def test_rows_before_ctrl_c(runtime: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any time while Python computes each row, Ctrl-C stops the query without a wrong row."""
    rng, session = random.Random(seed), Session(False)
    session.set("runtime", runtime)
    session.set("morsel_rows", 100)
    session.register_function("one_more", lambda v: v + 1, ["bigint"], "bigint", parallel=False)
    session.create_stream("s", endless, ordered_by="ts", unit="seconds", bounded=False)
    key = CtrlC(monkeypatch)
    try:
        for _ in range(30):
            query = session.sql("SELECT ts, one_more(ts) AS w FROM s")
            for batch in key.taken(query.batches(), rng.uniform(0.001, 0.02)):
                given = batch.to_pydict()
                assert given["w"] == [ts + 1 for ts in given["ts"]]
            assert query.status == "stopped"
    finally:
        key.end()
    assert not [told for told in key.dropped if "callback" in str(told)]


def endless() -> Iterator[pa.RecordBatch]:
    first = 0
    while True:
        numbers = pa.array(range(first, first + 500))
        yield pa.record_batch({"ts": numbers})
        first += 500
