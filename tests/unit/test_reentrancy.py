"""Functions that one thread at a time may execute: an interrupt leaves their locks free."""

from __future__ import annotations

import threading

import pytest

from cql.base import reentrancy
from cql.base.reentrancy import Inside, OneAtATime


def _is_free(lock: OneAtATime) -> bool:
    """Whether another thread can take the lock, and this one, too."""
    taken = list[int]()

    def take() -> None:
        with lock:
            taken.append(1)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(10)
    with lock:
        return bool(taken)


def test_an_interrupt_behind_the_acquisition(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = OneAtATime()

    def interrupted(one: threading.Lock) -> None:
        one.acquire()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reentrancy, "acquire", interrupted)
        with pytest.raises(KeyboardInterrupt), lock:
            pass
    assert _is_free(lock)


@pytest.mark.parametrize("nested", [0, 1, 2])
def test_an_interrupt_before_the_end_of_a_call(nested: int) -> None:
    """Python may raise before the first line of ``__exit__``."""
    lock, other = OneAtATime(), OneAtATime()

    def interrupted() -> None:
        for one in (lock, other, lock)[: nested + 1]:
            one.__enter__()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Inside(object()):
        interrupted()
    assert _is_free(lock)
    assert _is_free(other)
    assert not reentrancy._thread.calls


def test_a_call_outside_of_a_run_that_an_interrupt_kept_from_ending() -> None:
    """The thread holds the lock still, so it need not wait for itself."""
    lock = OneAtATime()
    lock._turn.lock.acquire()
    with lock:
        pass
    assert _is_free(lock)
