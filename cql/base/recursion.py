"""Room for deep recursion: a query may nest, or chain, more than Python's own limit allows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_RECURSION_LIMIT = 24_000
_lock = threading.Lock()
_inside = 0
_previous_limit = 0


@contextmanager
def deep_stack() -> Iterator[None]:
    """Room for recursion over a tree of ``dialect.lexical.MAX_TREE_DEPTH``, restored afterwards.
    As a decorator, for the first function of a walk, not for the one that recurs.

    Calls from Python to Python use no C stack since 3.11, so only the interpreter's own counter has
    to be raised. It is one counter for all threads: the last one out restores it.
    """
    global _inside, _previous_limit
    with _lock:
        if _inside == 0:
            _previous_limit = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_previous_limit, _RECURSION_LIMIT))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                sys.setrecursionlimit(_previous_limit)
