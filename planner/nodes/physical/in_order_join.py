"""The in-order window joins of a physical plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.errors import Position
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.physical.base import PhysicalNode
from cql.planner.nodes.physical.joins import BandExec
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import Wanted

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical


class JoinOperator(StrEnum):
    """The algorithms of the in-order window join, whose inputs and output are in the order of time
    (in-order paper)."""

    SYNC_FILTER = (
        "sync_filter"  # rows wait for the other inputs and are joined in the order of time (§4)
    )
    FILTER_ORDER = "filter_order"  # rows are joined on arrival; results wait for order (§5)
    ADAPTIVE = "adaptive"  # Sync-Filter, or Filter-Order where it costs less (§6)


@dataclass(frozen=True, slots=True)
class Distance:
    """``low <= right - left <= high`` for the times of two inputs; ``NO_BOUND``: no bound."""

    left: int
    right: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class WindowJoinExec(PhysicalNode):
    """Inner join of two or more ``inputs``, each in the order of its time column (``times``). The
    results leave in the order of their time, which is the latest time of their members (in-order
    paper, 2005).

    Each of ``keys`` is a set of columns, (input, column), that must be equal. ``bands`` has the
    distance of the times of each two inputs (the left one is the earlier input); ``column_bands``
    has distances of other columns (numbered over all inputs), none of which is NULL. ``rest`` are
    conditions over the columns of all inputs. The output has ``columns`` of these and, with
    ``time``, the result's time. Adaptive uses Filter-Order if c·w·λ1·λ2 is at least ``alpha``;
    ``cost`` is its c in seconds (None: measured at run time); one second has ``second`` units of
    time."""

    inputs: tuple[Physical, ...] = field()
    times: tuple[int, ...]
    keys: tuple[tuple[tuple[int, int], ...], ...]
    bands: tuple[Distance, ...]
    column_bands: tuple[BandExec, ...]
    rest: tuple[Expr, ...]
    columns: tuple[int, ...]
    time: bool
    operator: JoinOperator
    alpha: float
    cost: float | None
    second: float
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def all_columns(self) -> Schema:
        """The columns of all inputs."""
        return Schema(tuple(f for child in self.inputs for f in child.schema))

    def first(self, number: int) -> int:
        """The index in ``all_columns`` of the first column of an input."""
        return sum(len(child.schema) for child in self.inputs[:number])

    @cached_property
    def schema(self) -> Schema:
        every = self.all_columns
        fields = [every[c] for c in self.columns]
        if self.time:
            times = [c.schema[t] for c, t in zip(self.inputs, self.times, strict=True)]
            kind = times[0].type if len({f.type for f in times}) == 1 else BIGINT
            fields.append(Field(RESULT_TIME, kind, False))
        return Schema(tuple(fields))

    def reach(self, left: int, right: int) -> int:
        """The most that the time of a row of ``right`` may exceed that of a row of ``left``."""
        for band in self.bands:
            if (band.left, band.right) == (left, right):
                return band.high
            if (band.left, band.right) == (right, left):
                return -band.low
        raise AssertionError("each two inputs have a band")

    @property
    def latest(self) -> int | None:
        """The input whose time is always the result's time, because no other input's time can be
        later; None if there is no such input."""
        others = range(len(self.inputs))
        found = (i for i in others if all(self.reach(i, o) <= 0 for o in others if o != i))
        return next(found, None)

    @property
    def order(self) -> int | None:
        """The output column by which the result is ordered; None if it is no output column."""
        if self.time:
            return len(self.columns)
        if self.latest is None:
            return None
        column = self.first(self.latest) + self.times[self.latest]
        return next((k for k, c in enumerate(self.columns) if c == column), None)

    def with_inputs(self, new: tuple[Physical, ...]) -> Self:
        return replace(self, inputs=new)

    @property
    def bounded(self) -> bool:
        return all(child.bounded for child in self.inputs)

    @property
    def rows_wait(self) -> bool:
        return True

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        # the time of each input, and the time of the result
        times = {self.first(i) + t for i, t in enumerate(self.times)}
        found = tuple(k for k, c in enumerate(self.columns) if c in times)
        return (*found, len(self.columns)) if self.time else found

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{time: None} for time in self.times]  # rows wait for each value of the other times

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return self.times

    def joined_in_order(self, column: int) -> bool:
        return self.order == column

    @property
    def emits_late_rows(self) -> bool:
        return False

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return ("a join",) * len(self.inputs)


#: The output column with the time of a join's result.
RESULT_TIME = "_time"
