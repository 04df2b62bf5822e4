"""Reading ahead on a thread: the order of items, the place of errors, the bound, and the end."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from cql.catalog.prefetch import AHEAD, Prefetch


def test_items_come_in_order_and_never_more_than_the_bound_ahead() -> None:
    taken = 0
    ahead: list[int] = []

    def source() -> Generator[int, None, None]:
        for i in range(200):
            ahead.append(i - taken)
            yield i

    items = Prefetch(source(), "test")
    for item in items:
        assert item == taken
        taken += 1
    assert taken == 200
    assert max(ahead) <= AHEAD
    assert list(items) == []
    items.close()


def test_an_error_comes_after_the_items_before_it_and_once() -> None:
    def source() -> Generator[int, None, None]:
        yield 1
        raise ValueError("damaged")

    items = Prefetch(source(), "test")
    assert next(items) == 1
    with pytest.raises(ValueError, match="damaged"):
        next(items)
    assert list(items) == []
    items.close()


@pytest.mark.parametrize("read", [0, 1])
def test_closing_ends_the_thread_and_the_source(read: int) -> None:
    closed = threading.Event()

    def source() -> Generator[int, None, None]:
        try:
            yield from range(1_000_000)
        finally:
            closed.set()

    items = Prefetch(source(), "cql test of closing")
    for _ in range(read):
        next(items)
    items.close()
    assert closed.is_set() == bool(read)
    assert "cql test of closing" not in [t.name for t in threading.enumerate()]
