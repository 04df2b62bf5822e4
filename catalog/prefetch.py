"""Reading ahead: an iterator that runs on its own thread, a few items before its reader.

Arrow decodes files without the GIL, and kernels run without it, so both cores work.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from queue import SimpleQueue
from typing import Generic, TypeVar

from cql.base.waiting import get

T = TypeVar("T")

#: Most items that wait for the reader.
AHEAD = 2


class Prefetch(Generic[T]):
    """The items of ``source``; at most AHEAD items wait. The thread starts with the first ``next``.
    ``next`` also raises an error of ``source``, in its place among the items. ``close`` ends the
    thread after its current item, and closes ``source``."""

    def __init__(self, source: Generator[T, None, None], name: str) -> None:
        self._source = source
        self._room = threading.Semaphore(AHEAD)
        self._made: SimpleQueue[T | _Over] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __iter__(self) -> Prefetch[T]:
        return self

    def __next__(self) -> T:
        if self._thread.ident is None:
            self._thread.start()
        item = get(self._made)
        if isinstance(item, _Over):
            self._made.put(_Over())  # after an error there is nothing more
            raise StopIteration if item.error is None else item.error
        self._room.release()
        return item

    def close(self) -> None:
        self._closed = True
        self._room.release()
        if self._thread.ident is not None:
            self._thread.join()
        self._source.close()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while self._room.acquire() and not self._closed:
                self._made.put(next(self._source))
        except StopIteration:
            pass
        except BaseException as raised:  # raised where the items are taken
            error = raised
        self._made.put(_Over(error))


class _Over:
    """The end of the items; ``error`` is the exception that ended them, if one did."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
