"""Doubly linked lists of the lines of a table. ``after`` and ``before`` are the words of a line
with its neighbours, ``first`` and ``last`` those of the queue with the ends of the list; -1: none.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit


@njit(inline="always")
def link(
    q: Any, table: Any, line: int, behind: int, first: int, last: int, after: int, before: int
) -> None:
    """Enters ``line`` into a list behind the line ``behind``; -1: at its head."""
    following = q[first] if behind < 0 else table[behind, after]
    table[line, before], table[line, after] = behind, following
    if behind < 0:
        q[first] = line
    else:
        table[behind, after] = line
    if following < 0:
        q[last] = line
    else:
        table[following, before] = line


@njit(inline="always")
def unlink(q: Any, table: Any, line: int, first: int, last: int, after: int, before: int) -> None:
    previous, following = table[line, before], table[line, after]
    if previous < 0:
        q[first] = following
    else:
        table[previous, after] = following
    if following < 0:
        q[last] = previous
    else:
        table[following, before] = previous


@njit(inline="always")
def link_first(q: Any, table: Any, line: int, first: int, after: int, before: int) -> None:
    """Enters ``line`` at the head of a list that has no word for its end."""
    following = q[first]
    table[line, before], table[line, after] = -1, following
    if following >= 0:
        table[following, before] = line
    q[first] = line


@njit(inline="always")
def unlink_from(q: Any, table: Any, line: int, first: int, after: int, before: int) -> None:
    """Takes ``line``, wherever it is, out of such a list."""
    previous, following = table[line, before], table[line, after]
    if previous < 0:
        q[first] = following
    else:
        table[previous, after] = following
    if following >= 0:
        table[following, before] = previous
