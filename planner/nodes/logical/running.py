"""Running functions and operators of the user: what they make of a row depends on the rows before
it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cql.base.model import Field, Schema
from cql.base.types import DataType, Kind
from cql.errors import Position
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.logical.base import OneInput, PassesRows, first_time
from cql.planner.nodes.logical.progress import Progressing

if TYPE_CHECKING:
    from cql.planner.functions.user.operators import UserOperator


@dataclass(frozen=True, slots=True)
class RunningCall:
    """The call of a running function, a name in ``cql.planner.functions.running``: of ``value``, a
    double, with constant ``numbers``, one list for each of its parts."""

    fn: str
    value: Expr
    type: DataType
    numbers: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Running(PassesRows):
    """The input (a stream) with the values of running ``calls`` behind its columns, under
    ``names``. The rows come in a defined order. If they are the samples of a signal whose times are
    in column ``time``, the functions begin anew behind each gap, and a sample that is too early for
    the signal has no value."""

    calls: tuple[RunningCall, ...]
    names: tuple[str, ...]
    time: int | None = None
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        own = running_fields(self.calls, self.names, self.time is not None)
        return Schema((*self.input.schema, *own))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(call.value for call in self.calls)

    @property
    def progressing(self) -> Progressing:
        return self.input.progressing

    @property
    def times(self) -> tuple[int, ...] | None:
        return self.input.times

    @property
    def is_table(self) -> bool:
        return False

    @property
    def makes_relation(self) -> bool | None:
        return False


def running_fields(
    calls: tuple[RunningCall, ...], names: tuple[str, ...], timed: bool
) -> tuple[Field, ...]:
    """The columns of the calls. ``timed``: over the samples of a signal with times."""
    pairs = zip(calls, names, strict=True)
    return tuple(Field(name, call.type, timed or call.value.nullable) for call, name in pairs)


@dataclass(frozen=True, slots=True)
class Process(OneInput):
    """The rows that the operator ``function`` of the user emits for the rows of ``input``, one
    after the other. It sees the columns ``given``, under ``names``, and has constant
    ``arguments``. The output has ``columns``: those of the input, and behind them (from the width
    of the input on) those that the operator returns. ``partition``: the columns by whose values
    rows have a state in common; without, all rows have it."""

    function: UserOperator
    arguments: tuple[Literal, ...]
    given: tuple[int, ...]
    names: tuple[str, ...]
    columns: tuple[int, ...]
    partition: tuple[int, ...] = ()
    pos: Position | None = field(default=None, compare=False)

    @cached_property
    def schema(self) -> Schema:
        return process_schema(self.input.schema, self.function, self.given, self.columns)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()

    @property
    def progressing(self) -> Progressing:
        below = self.input.progressing
        return {k: below[c] for k, c in enumerate(self.columns) if c in below}

    @property
    def times(self) -> tuple[int, ...] | None:
        return first_time(self)

    @property
    def is_table(self) -> bool:
        return False

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @property
    def makes_relation(self) -> bool | None:
        return False


def process_schema(
    below: Schema, function: UserOperator, given: tuple[int, ...], columns: tuple[int, ...]
) -> Schema:
    """The ``columns`` of the input and of what the operator returns for the columns ``given``: its
    segments are at the rate of the row's first segment."""
    timed = first_segment(below, given)
    rate = None if timed is None else below[timed].type.rate
    made = (
        Field(name, replace(kind, rate=rate), False)
        if kind.kind is Kind.SIGNAL
        else Field(name, kind, True)
        for name, kind in function.returns
    )
    every = (*below, *made)
    return Schema(tuple(every[c] for c in columns))


def first_segment(below: Schema, given: tuple[int, ...]) -> int | None:
    """The first of the columns ``given`` that has segments of a signal."""
    return next((c for c in given if below[c].type.kind is Kind.SIGNAL), None)
