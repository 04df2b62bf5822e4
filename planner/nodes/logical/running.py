"""Running functions: values of each row that depend on the rows before it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.base.model import Field, Schema
from cql.base.types import DataType
from cql.errors import Position
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical.base import PassesRows
from cql.planner.nodes.logical.progress import Progressing


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
