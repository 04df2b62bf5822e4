"""The in-order window joins of a physical plan: plain immutable data, as all its operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.errors import Position
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.physical_join import BandExec

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical


class JoinOperator(StrEnum):
    """How rows in order of their time are joined, so that the result is, too (in-order paper)."""

    SYNC_FILTER = (
        "sync_filter"  # rows wait for the other inputs, and are joined in their order (§4)
    )
    FILTER_ORDER = "filter_order"  # joined as they come; results wait for the other inputs (§5)
    ADAPTIVE = "adaptive"  # the first, or the second where it pays (§6)


@dataclass(frozen=True, slots=True)
class Distance:
    """``low <= right - left <= high`` of the times of two inputs; ``NO_BOUND``: none."""

    left: int
    right: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class WindowJoinExec:
    """Inner join of ``inputs`` (two at least), each in the order of its column ``times``, whose
    result leaves in the order of its time, the latest of its members' (in-order paper, 2005).

    Each of ``keys`` is a set of columns, (input, column), that are equal; ``bands`` has the
    distance of each two inputs, the earlier one left; ``apart`` that of other columns (of all
    inputs), none of which is NULL. ``rest`` is over the columns of all inputs; of these,
    ``columns`` go on, with ``time`` followed by the result's time. Adaptive takes Filter-Order
    where c·w·λ1·λ2 is ``alpha`` at least; ``cost`` is its c in seconds, None where it is measured;
    a second has ``second`` steps of time."""

    inputs: tuple[Physical, ...]
    times: tuple[int, ...]
    keys: tuple[tuple[tuple[int, int], ...], ...]
    bands: tuple[Distance, ...]
    apart: tuple[BandExec, ...]
    rest: tuple[Expr, ...]
    columns: tuple[int, ...]
    time: bool
    operator: JoinOperator
    alpha: float
    cost: float | None
    second: float
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def all_columns(self) -> Schema:
        """The columns of all inputs."""
        return Schema(tuple(f for child in self.inputs for f in child.schema))

    def first(self, number: int) -> int:
        """Where the columns of an input begin among those of all."""
        return sum(len(child.schema) for child in self.inputs[:number])

    @property
    def schema(self) -> Schema:
        every = self.all_columns
        fields = [every[c] for c in self.columns]
        if self.time:
            times = [c.schema[t] for c, t in zip(self.inputs, self.times, strict=True)]
            kind = times[0].type if len({f.type for f in times}) == 1 else BIGINT
            fields.append(Field(RESULT_TIME, kind, False))
        return Schema(tuple(fields))

    def reach(self, left: int, right: int) -> int:
        """How much later than ``left`` a row of ``right`` may be."""
        for band in self.bands:
            if (band.left, band.right) == (left, right):
                return band.high
            if (band.left, band.right) == (right, left):
                return -band.low
        raise AssertionError("each two inputs have a band")

    @property
    def latest(self) -> int | None:
        """The input whose time is that of the result: no other one's is later."""
        others = range(len(self.inputs))
        found = (i for i in others if all(self.reach(i, o) <= 0 for o in others if o != i))
        return next(found, None)

    @property
    def order(self) -> int | None:
        """The column that the result is in the order of, if it is one of its columns."""
        if self.time:
            return len(self.columns)
        if self.latest is None:
            return None
        column = self.first(self.latest) + self.times[self.latest]
        return next((k for k, c in enumerate(self.columns) if c == column), None)


#: The column of the time of a join's result.
RESULT_TIME = "_time"
