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

from cql.executor.texts import regular_expressions, search
from cql.executor.texts.casts import BLOCKS as CASTS
from cql.executor.texts.column import Column, Status, Texts
from cql.executor.texts.membership import BLOCKS as MEMBERSHIP
from cql.executor.texts.times import BLOCKS as TIMES
from cql.planner.nodes.expr import Literal

Argument: TypeAlias = Column | Literal
Values: TypeAlias = Texts | npt.NDArray[Any]
BlockFunction: TypeAlias = Callable[[Any, Sequence[Argument], Status], Values | None]

BLOCKS: dict[str, BlockFunction] = {
    **search.BLOCKS,
    **regular_expressions.BLOCKS,
    **CASTS,
    **MEMBERSHIP,
    **TIMES,
}
