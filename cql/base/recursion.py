"""Room for deep recursion: a query may nest, or chain, more than Python's own limit allows."""

from __future__ import annotations

import sys
import threading
from contextlib import ContextDecorator

_RECURSION_LIMIT = 24_000
_lock = threading.Lock()
_inside = 0
_previous_limit = 0


class deep_stack(ContextDecorator):  # noqa: N801
    """Raises the recursion limit for a tree of depth ``dialect.lexical.MAX_TREE_DEPTH``.

    As a decorator, ``deep_stack`` belongs on the entry function of a walk, not on the function that
    recurs. Calls from Python to Python use no C stack since 3.11, so only the interpreter's
    recursion limit has to rise. All threads share this limit: the last thread to leave restores it.
    """

    def __enter__(self) -> None:
        global _inside, _previous_limit
        with _lock:
            if _inside == 0:
                _previous_limit = sys.getrecursionlimit()
                sys.setrecursionlimit(max(_previous_limit, _RECURSION_LIMIT))
            _inside += 1

    def __exit__(self, *_: object) -> None:
        global _inside
        with _lock:
            _inside -= 1
            if _inside == 0:
                sys.setrecursionlimit(_previous_limit)
