"""Ctrl-C ends each wait, also when its signal does not wake the main thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

import pytest

from cql.base.waiting import acquire, get, interruptible, join

END = threading.Event()
LOCK = threading.Lock()
WAITS: dict[str, Callable[[], object]] = {
    "condition": lambda: _with(threading.Condition()),
    "lock": lambda: acquire(LOCK),
    "queue": lambda: get(SimpleQueue()),
    "thread": lambda: join(_waiting()),
}


def _with(condition: threading.Condition) -> None:
    with condition:
        interruptible(partial(condition.wait_for, lambda: False))


def _waiting() -> threading.Thread:
    thread = threading.Thread(target=END.wait)
    thread.start()
    return thread


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("what", WAITS)
def test_an_interrupt_ends_a_wait(what: str) -> None:
    """The signal is raised in another thread, so the main thread goes on sleeping, as if the signal
    had come just before it fell asleep."""
    END.clear()
    begun = threading.Event()

    def press() -> None:
        begun.wait()
        signal.raise_signal(signal.SIGINT)

    def wait() -> None:
        begun.set()
        WAITS[what]()

    other = threading.Thread(target=press)
    other.start()
    with LOCK, pytest.raises(KeyboardInterrupt):
        wait()
    END.set()
    other.join()


def test_what_comes_in_time_is_taken() -> None:
    items: SimpleQueue[int] = SimpleQueue()
    threading.Timer(0.15, items.put, [7]).start()  # longer than a turn
    assert get(items) == 7
    lock = threading.Lock()
    acquire(lock)
    threading.Timer(0.15, lock.release).start()
    acquire(lock)
    assert lock.locked()


def test_the_time_is_over() -> None:
    timeouts: list[float | None] = []
    assert not interruptible(timeouts.append, 0)
    assert timeouts == [0]
    assert not interruptible(lambda left: threading.Event().wait(left), 0.25)
    END.clear()
    thread = _waiting()
    assert not join(thread, 0)
    END.set()
    assert join(thread)


def test_other_threads_wait_once() -> None:
    timeouts: list[float | None] = []
    thread = threading.Thread(target=lambda: interruptible(timeouts.append, 5))
    thread.start()
    thread.join()
    assert timeouts == [5]
