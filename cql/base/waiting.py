"""Waits that Ctrl-C ends wherever it arrives.

Python misses a signal that comes just before its main thread blocks: the handler runs only when the
next signal comes or the wait ends. So the main thread waits in short turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")

#: Seconds of a turn: the longest time after which an interrupt is served.
TURN = 0.1


def interruptible(wait: Callable[[float | None], object], timeout: float | None = None) -> bool:
    """Whether ``wait`` returned something true within ``timeout`` seconds; None sets no limit.

    ``wait`` takes a timeout in seconds and returns something false when the time is over."""
    if threading.current_thread() is not threading.main_thread():
        return bool(wait(timeout))  # Python interrupts only the main thread
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = TURN if end is None else min(TURN, end - time.monotonic())
        if wait(max(left, 0)):
            return True
        if left <= 0:
            return False


def acquire(lock: threading.Lock | threading.RLock) -> None:
    """Acquires ``lock``."""
    if not lock.acquire(blocking=False):  # mostly free, and taken at each call of a function
        interruptible(lambda left: lock.acquire(timeout=-1 if left is None else left))


def get(items: SimpleQueue[T]) -> T:
    """Takes the next of ``items``."""
    taken: list[T] = []

    def one(left: float | None) -> bool:
        try:
            taken.append(items.get(timeout=left))
        except Empty:
            return False
        return True

    interruptible(one)
    return taken.pop()


def join(thread: threading.Thread, timeout: float | None = None) -> bool:
    """Whether ``thread`` ended within ``timeout`` seconds."""

    def over(left: float | None) -> bool:
        thread.join(left)
        return not thread.is_alive()

    return interruptible(over, timeout)
