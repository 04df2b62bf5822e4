"""The runs that a thread computes for, and the functions that it is in the middle of.

What a run calls of its users (functions, iterables, sinks, notices) must not wait for that run: it
would wait for itself. So each thread knows the runs that it is inside of; more than one where a
function runs a query of its own. A function that only one thread may be in must not wait for
itself either, when a query that it runs calls it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class _Turn:
    """What one thread holds at a time. ``over``: nobody may take it any more."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.over = False


class _Thread(threading.local):
    runs: frozenset[object] = frozenset()
    #: The calls of ``OneAtATime`` that this thread is inside of, the innermost last: each with the
    #: turn that calls within it take.
    calls: tuple[tuple[OneAtATime, _Turn], ...] = ()


_thread = _Thread()


class OneAtATime:
    """A lock for functions that must not run in two threads at once. A call may run a query that
    calls the function again, in whatever threads: those wait for each other, not for the call that
    waits for them."""

    def __init__(self) -> None:
        self._turn = _Turn()

    def __enter__(self) -> None:
        turn = self._take()
        try:
            _thread.calls = (*_thread.calls, (self, _Turn()))
        except BaseException:
            turn.lock.release()
            raise

    def __exit__(self, *error: object) -> None:
        calls = _thread.calls
        _thread.calls = calls[:-1]
        try:
            with calls[-1][1].lock:  # calls within this one have ended
                calls[-1][1].over = True
        finally:
            self._within(_thread.calls).lock.release()

    def _take(self) -> _Turn:
        """Waits for the turn within the innermost call of this lock that has not ended: a run that
        was started in the background outlives it."""
        while True:
            turn = self._within(_thread.calls)
            turn.lock.acquire()
            if not turn.over:
                return turn
            turn.lock.release()

    def _within(self, calls: tuple[tuple[OneAtATime, _Turn], ...]) -> _Turn:
        return next((t for o, t in reversed(calls) if o is self and not t.over), self._turn)


def is_inside(run: object) -> bool:
    """Whether this thread computes for ``run``, known by the identity of its ``Control``."""
    return run in _thread.runs


@contextlib.contextmanager
def inside(*runs: object) -> Iterator[None]:
    """While this thread computes for ``runs``, too."""
    before = _thread.runs
    _thread.runs = before.union(runs)
    try:
        yield
    finally:
        _thread.runs = before


def stepped(run: object, items: Generator[T, None, None]) -> Generator[T, None, None]:
    """The items, each of them made inside ``run``; who takes them is not inside."""
    try:
        while True:
            with inside(run):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
    finally:
        with inside(run):
            items.close()


def inherited(work: Callable[P, None], *, computes: bool = True) -> Callable[P, None]:
    """``work`` for a new thread, which computes for the runs that this one computes for, unless it
    only was started by them (``computes``), and is inside the same calls."""
    runs, calls = _thread.runs if computes else (), _thread.calls

    def run(*args: P.args, **named: P.kwargs) -> None:
        _thread.calls = calls
        with inside(*runs):
            work(*args, **named)

    return run
