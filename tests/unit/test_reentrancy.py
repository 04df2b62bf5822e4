"""Functions that one thread at a time may execute: an interrupt leaves their locks free."""

from __future__ import annotations

import sys
import threading
from types import FrameType

import pytest

from cql.base import reentrancy, waiting
from cql.base.reentrancy import OneAtATime


def _is_free(lock: OneAtATime) -> bool:
    """Whether another thread can take the lock, and this one, too."""
    taken = list[int]()
    thread = threading.Thread(target=lock.call, args=(taken.append, 1), daemon=True)
    thread.start()
    thread.join(10)
    if taken:
        lock.call(taken.append, 2)
    return len(taken) == 2


class _Interrupt:
    """Raises KeyboardInterrupt, as Ctrl-C may, behind the ``number``-th call of a function in C in
    the modules under test."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        here = frame.f_code.co_filename in (reentrancy.__file__, waiting.__file__)
        self.left -= here and event == "c_return"
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("nested", [False, True])
def test_an_interrupt_behind_each_call(nested: bool) -> None:
    """Also in a call within the call."""
    lock, before = OneAtATime(), sys.getprofile()

    def work() -> str:
        return lock.call(str) if nested else ""

    def is_interrupted(number: int) -> bool:
        sys.setprofile(_Interrupt(number))
        try:
            lock.call(work)
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(before)
        return False

    number = 1
    while is_interrupted(number):
        assert _is_free(lock), number
        assert not reentrancy._thread.calls, number
        number += 1
    assert number > 2 + 2 * nested  # acquired and released


def test_an_interrupt_behind_the_acquisition(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = OneAtATime()

    def interrupted(one: threading.Lock) -> None:
        one.acquire()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reentrancy, "acquire", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.call(str)
    assert _is_free(lock)
