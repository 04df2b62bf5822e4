"""The text functions that are computed for all rows of a block at once, by name.

Each takes the call, its arguments and the status of the rows by their arguments. It returns the
values, and changes the status of VALID rows that have no result (NULL, FAILED) or that it does not
compute (ODD); it returns None, with the status as it was, if it does not compute this call. Rows
that are not VALID may have any value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy.typing as npt

from cql.executor.texts.column import Column, Status, Texts
from cql.executor.texts.functions import (
    build,
    case,
    casts,
    hexadecimal,
    measure,
    membership,
    nested,
    regular_expressions,
    search,
    slices,
    times,
)
from cql.planner.nodes.expr import Literal

Argument: TypeAlias = Column | Literal
Values: TypeAlias = Texts | npt.NDArray[Any]
BlockFunction: TypeAlias = Callable[[Any, Sequence[Argument], Status], Values | None]

BLOCKS: dict[str, BlockFunction] = {
    **search.BLOCKS,
    **regular_expressions.BLOCKS,
    **slices.BLOCKS,
    **case.BLOCKS,
    **build.BLOCKS,
    **measure.BLOCKS,
    **hexadecimal.BLOCKS,
    **casts.BLOCKS,
    **times.BLOCKS,
    **membership.BLOCKS,
    **nested.BLOCKS,
}
#: Functions of blocks that Python computes row by row.
IN_PYTHON = nested.IN_PYTHON
#: Functions that take more than about 100 ns for a text: equal texts are worth finding first.
SLOW = frozenset(regular_expressions.BLOCKS)
