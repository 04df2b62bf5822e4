"""What the reference works on: rows with their row watermarks, a run, its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from naive_aggregates import QueryFailsError
from naive_expr import evaluate as value_of
from naive_progress import NEVER
from naive_values import BadRowError

from cql.planner.nodes.expr import Column, Expr, columns_of

if TYPE_CHECKING:
    from naive_order import Order

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
    """Rows in an order that the semantics allow, the (row, window) pairs left out as late, and the
    bad rows left out. ``undetermined`` says that a tie at a LIMIT makes several answers right;
    ``left_out`` are the late rows that something in order had no place for."""

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
        """A bad row: FAIL ends the query, KEEP counts it and goes on without it."""
        if not self.keep_bad:
            raise QueryFailsError(f"bad row: {error}") from error
        self.bad += 1
        self.reasons.add(str(error))


def moved_mark(expr: Expr, row: Row) -> float | None:
    """The row watermark of a computed column: where the expression rises with one progressing
    column (the binder lets only such be a WA), it is the expression of that column's mark."""
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
