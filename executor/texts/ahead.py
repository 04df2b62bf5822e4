"""Reads blocks ahead whose columns several threads compute at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import pyarrow as pa

from cql.executor.protocols import Block, Reader

T = TypeVar("T")


class Ahead(Generic[T]):
    """The blocks of the reader of a bounded source, in order, with what ``compute`` makes of each.
    Reads at most one block more than ``threads`` before they are taken, so that no thread rests
    while the caller works. ``close`` ends the threads."""

    def __init__(
        self, reader: Reader, compute: Callable[[pa.RecordBatch], T], threads: int
    ) -> None:
        self._reader = reader
        self._compute = compute
        self._most = threads + 1
        self._pool = ThreadPoolExecutor(threads, "cql-texts")
        self._waiting: deque[tuple[Block, Future[T]]] = deque()
        self._ended = False
        self._error: Exception | None = None

    def next(self) -> tuple[Block, T] | None:
        """The next block; None after the last one. Raises the error of the reader after the blocks
        before it."""
        while not self._ended and len(self._waiting) < self._most:
            try:
                block = self._reader.next(None)
            except Exception as error:
                self._error, self._ended = error, True
                break
            if block is None:
                self._ended = True
            else:
                self._waiting.append((block, self._pool.submit(self._compute, block.batch)))
        if self._waiting:
            block, made = self._waiting.popleft()
            return block, made.result()
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
