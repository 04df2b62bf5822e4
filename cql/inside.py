"""The runs that a thread computes for.

What a run calls of its users (functions, iterables, sinks, notices) must not wait for that run: it
would wait for itself. So each thread knows the runs that it is inside of; more than one where a
function runs a query of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class _Thread(threading.local):
    runs: frozenset[object] = frozenset()


_thread = _Thread()


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


def inherited(work: Callable[P, None]) -> Callable[P, None]:
    """``work`` for a new thread, which computes for the runs that this one computes for."""
    runs = _thread.runs

    def run(*args: P.args, **named: P.kwargs) -> None:
        with inside(*runs):
            work(*args, **named)

    return run
