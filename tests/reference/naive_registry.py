"""The reference's functions, by registry name: ``FUNCTIONS[name](call, *values) -> value``.

Functions in ``NULL_AWARE`` receive NULLs; all other functions are called with values only. The
caller fits the result into the type of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# The registry determines the types of the values of each call; Any keeps the code readable.
Function = Callable[..., Any]
FUNCTIONS: dict[str, Function] = {}
NULL_AWARE: set[str] = set()


def function(*names: str, nulls: bool = False) -> Callable[[Function], Function]:
    def register(fn: Function) -> Function:
        for name in names:
            FUNCTIONS[name] = fn
        if nulls:
            NULL_AWARE.update(names)
        return fn

    return register
