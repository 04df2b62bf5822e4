"""Operators whose state goes from row to row: running functions, and operators of the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cql.base.model import Schema
from cql.errors import Position
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.logical.running import RunningCall, process_schema, running_fields
from cql.planner.nodes.physical.base import OneInput, WidensRows
from cql.planner.nodes.physical.columns import coded_columns, column_at, wanted_of
from cql.planner.nodes.physical.sources import SignalInput
from cql.planner.nodes.watermarks import Wanted, first_columns

if TYPE_CHECKING:
    from cql.planner.functions.user.operators import UserOperator


@dataclass(frozen=True, slots=True)
class RunningExec(OneInput):
    """The first ``width`` columns of each row, which pass on, and the values of running ``calls``
    of columns, under ``names``. ``signal``: the rows are the samples of the signal called ``name``,
    with times."""

    width: int
    calls: tuple[RunningCall, ...]
    names: tuple[str, ...]
    why: str = ""
    signal: SignalInput | None = None
    name: str = ""

    @cached_property
    def schema(self) -> Schema:
        passed = self.input.schema.fields[: self.width]
        own = running_fields(self.calls, self.names, self.signal is not None)
        return Schema((*passed, *own))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return tuple(c for c in self.input.progressing if c < self.width)

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return tuple(c for c in self.input.window_columns if c < self.width)

    @property
    def in_windows(self) -> bool:
        return self.input.in_windows

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [first_columns(wanted, self.width)]

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        return column < self.width and self.input.comes_in_order(column, guarded=guarded)

    def late_out_of_order(self, column: int, *, guarded: bool) -> bool:
        return column < self.width and self.input.late_out_of_order(column, guarded=guarded)

    @property
    def unique(self) -> list[set[int]] | None:
        below = self.input.unique or ()
        found = [places for places in below if all(c < self.width for c in places)]
        return found or None

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer,)

    @property
    def own_columns(self) -> frozenset[int] | None:
        return frozenset(range(self.width, len(self.schema)))

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        return ((0, column),) if column < self.width else None

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        inside = column < self.width
        return ((0, column_at(self.input.schema, column)),) if inside else ()

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [frozenset(c for c in needed if c < self.width)]

    @property
    def runs_python(self) -> bool:
        return self.signal is not None

    @property
    def row_cost(self) -> float:
        coefficients = sum(len(n) for c in self.calls if c.fn in ("fir", "iir") for n in c.numbers)
        return 5.0 * len(self.calls) + coefficients

    @property
    def state(self) -> str:
        """Its size follows from the constants of the calls."""
        return "the values that each function looks back on"


@dataclass(frozen=True, slots=True)
class ProcessExec(WidensRows, OneInput):
    """The rows that an operator of the user emits for each row, with columns of that row; the
    fields are as in the logical ``Process``."""

    function: UserOperator
    arguments: tuple[Literal, ...]
    given: tuple[int, ...]
    names: tuple[str, ...]
    columns: tuple[int, ...]
    partition: tuple[int, ...] = ()
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        return process_schema(self.input.schema, self.function, self.given, self.columns)

    @property
    def kind(self) -> str:
        """As of a join: a row without a row that is emitted for it leaves nothing."""
        return "inner"

    @property
    def shares_morsels(self) -> bool:
        return False

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [wanted_of(self.forwarded(range(self.width)), wanted)]

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        origin = self.columns[column]
        return origin < self.width and self.input.comes_in_order(origin, guarded=guarded)

    def late_out_of_order(self, column: int, *, guarded: bool) -> bool:
        origin = self.columns[column]
        return origin < self.width and self.input.late_out_of_order(origin, guarded=guarded)

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer or f"the operator {self.function.name}",)

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [coded_columns(self.input.schema)]

    @property
    def runs_python(self) -> bool:
        return True

    @property
    def row_cost(self) -> float:
        return 2_000.0

    @property
    def state(self) -> str:
        found = self.function.state_text or "none"
        if not self.partition:
            return found
        by = ", ".join(self.input.schema[c].name for c in self.partition)
        return f"for each {by}, kept: {found}"
