"""The data of the reference: rows with their row watermarks, a run, its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from cql.planner.nodes.expr import Column, Expr, columns_of
from tests.reference.naive_aggregates import QueryFailsError
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_progress import NEVER
from tests.reference.naive_values import BadRowError

if TYPE_CHECKING:
    from tests.reference.naive_order import Order

Inputs: TypeAlias = Mapping[str, Sequence[tuple[Any, ...]]]


@dataclass(frozen=True)
class Row:
    """``marks[i]`` is the row watermark on column *i*, None where the column does not progress.
    ``arrival`` orders the rows of one named stream."""

    values: tuple[Any, ...]
    marks: tuple[float | None, ...]
    arrival: int = 0


@dataclass(frozen=True)
class Answer:
    """The rows, in an order that the semantics allow, and the counts of what the query left out:
    late (row, window) pairs and bad rows.

    ``undetermined``: a tie at a LIMIT makes several answers right. ``left_out`` is the number of
    late rows that an operator in time order dropped."""

    rows: list[tuple[Any, ...]]
    late_pairs: int = 0
    bad_rows: int = 0
    undetermined: bool = False
    left_out: int = field(default=0, repr=False)
    reasons: frozenset[str] = field(default=frozenset(), repr=False, compare=False)  # of bad rows


@dataclass
class Run:
    inputs: Inputs
    keep_bad: bool
    order: Order
    late: int = 0
    left_out: int = 0
    bad: int = 0
    undetermined: bool = False
    reasons: set[str] = field(default_factory=set)

    def fails(self, error: BadRowError) -> None:
        """Handles a bad row: FAIL ends the query; KEEP counts and skips the row."""
        if not self.keep_bad:
            raise QueryFailsError(f"bad row: {error}") from error
        self.bad += 1
        self.reasons.add(str(error))


def moved_mark(expr: Expr, row: Row) -> float | None:
    """The row watermark of a computed column: the value of the expression at the row watermark of
    its one column. (The binder only accepts an expression as WA that rises with one progressing
    column.)"""
    used = columns_of(expr)
    if len(used) != 1:
        return None
    (index,) = used
    mark = row.marks[index]
    if mark is None or mark == NEVER or isinstance(expr, Column):
        return mark
    try:
        moved = value_of(expr, (*row.values[:index], mark, *row.values[index + 1 :]))
    except BadRowError:
        return NEVER
    whole = isinstance(moved, int) and not isinstance(moved, bool)
    return moved if whole else None
