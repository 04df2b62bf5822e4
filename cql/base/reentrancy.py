"""The runs that a thread computes for, and the users' functions that the thread is inside of.

A run calls users' functions, iterables, sinks and notices. Such a call must not wait for its own
run: the two would deadlock. So each thread knows the runs that it computes for; there are several
where a function runs a query of its own. A function that only one thread at a time may execute
(``OneAtATime``) may run a query that calls the function again: that inner call must not wait for
the outer one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import ParamSpec, TypeVar

from cql.base.waiting import acquire

T = TypeVar("T")
P = ParamSpec("P")


class _Turn:
    """A lock that one thread at a time holds. ``over``: no thread may take the lock any more."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # it knows its thread, and no thread takes it twice
        self.over = False


class _Thread(threading.local):
    runs: frozenset[object] = frozenset()
    #: The ``OneAtATime`` calls that this thread is inside of, the innermost last. Nested calls of
    #: the same function take the turn beside the call.
    calls: tuple[tuple[OneAtATime, _Turn], ...] = ()


_thread = _Thread()


class OneAtATime:
    """A lock for a function that must not run in two threads at once.

    A call may run a query that calls the function again, from any threads. These nested calls wait
    for each other, but not for the outer call, which waits for them."""

    def __init__(self) -> None:
        self._turn = _Turn()

    def call(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """``function(*args, **named)``.

        An interrupt leaves the lock free, wherever it comes: Python raises behind the call of a
        function in C or on entry of one in Python, so that a first call in C is always made."""
        before, inner = _thread.calls, _Turn()
        held: _Turn | None = None
        try:
            held = self._take()
            _thread.calls = (*before, (self, inner))
            return function(*args, **named)
        finally:
            try:
                with inner.lock:  # the nested calls have ended
                    inner.over = True
            finally:
                _thread.calls = before
                if held is not None:
                    held.lock.release()
                else:  # interrupted in ``_take``, before or behind the acquisition
                    with suppress(RuntimeError):
                        self._within(before).lock.release()

    def _take(self) -> _Turn:
        """Takes and returns the turn of the innermost call of this lock that has not ended.

        A call may end while a background run that it started still makes nested calls: these take
        the turn of the next outer call."""
        while True:
            turn = self._within(_thread.calls)
            acquire(turn.lock)
            if not turn.over:
                return turn
            turn.lock.release()

    def _within(self, calls: tuple[tuple[OneAtATime, _Turn], ...]) -> _Turn:
        for one, turn in reversed(calls):  # no generator, which would swallow an interrupt
            if one is self and not turn.over:
                return turn
        return self._turn


def is_inside(run: object) -> bool:
    """Whether this thread computes for ``run``, which is the run's ``Control`` object."""
    return run in _thread.runs


class Inside:
    """In the ``with`` block, this thread also computes for ``runs``. Every result passes through
    one, so it is no generator."""

    __slots__ = ("_before", "_runs")

    def __init__(self, *runs: object) -> None:
        self._runs = runs

    def __enter__(self) -> None:
        self._before: frozenset[object] = _thread.runs
        _thread.runs = self._before.union(self._runs)

    def __exit__(self, *_: object) -> None:
        _thread.runs = self._before


def stepped(run: object, items: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yields ``items``; each item is computed inside ``run``, its consumer is not inside."""
    try:
        while True:
            with Inside(run):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
    finally:
        with Inside(run):
            items.close()


def inherited(work: Callable[P, None], *, computes: bool = True) -> Callable[P, None]:
    """``work`` for a new thread, which is inside the same calls as this thread.

    With ``computes``, the new thread also computes for the runs of this thread; without, the runs
    only started it."""
    runs, calls = _thread.runs if computes else (), _thread.calls

    def run(*args: P.args, **named: P.kwargs) -> None:
        _thread.calls = calls
        with Inside(*runs):
            work(*args, **named)

    return run
