"""What a stage is, as data: its steps and its ending, and what its written kernel needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DataType
from cql.base.window import Window
from cql.executor.codegen.kernel_cache import Kernel
from cql.planner.nodes.expr import Column, Expr, substitute
from cql.planner.nodes.logical import SEQUENCE as NUMBER
from cql.planner.nodes.physical import (
    ArrivalExec,
    BucketExec,
    FilterExec,
    NumberExec,
    OnTimeExec,
    ProjectExec,
    WidAggregateExec,
)

if TYPE_CHECKING:
    from cql.executor.operators.aggregates.value_log import Log

#: Where a terminal looks whether a row is a late row: before each, in its own time, or nowhere.
Asks: TypeAlias = Literal["each row", "itself"] | None
#: Columns that order the results of partitions: the number of their window, and when their group
#: began.
ORDER = (Field("order", BIGINT, False), Field("born", BIGINT, False))
Step: TypeAlias = FilterExec | ProjectExec | BucketExec | OnTimeExec | ArrivalExec | NumberExec


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What one kernel does. ``live``: input columns on which punctuation arrives. ``assume_valid``:
    nullable input columns in which no NULL has been seen (the kernel is rebuilt at the first one).
    ``carry_late_rows``: whether some later operator still asks which rows were late. ``parted``:
    it has the rows of one partition (CHOSEN). ``placed``: it says where its results stand among
    those of all partitions: ``ORDER`` columns behind the others. ``limited``: of each window only
    the first results by some order leave (``kernels.order.top_n``). ``promised``: pairs of output
    columns, the first with progress of its own for each value of the second, which goes on."""

    input: Schema
    steps: tuple[Step, ...]
    aggregate: WidAggregateExec | None
    post: tuple[Step, ...]
    output: Schema
    live: tuple[int, ...]
    assume_valid: frozenset[int] = frozenset()
    carry_late_rows: bool = False
    parted: bool = False
    placed: bool = False
    limited: bool = False
    promised: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """What each window keeps of one kind: its groups, or values beside them. The names of its words
    in the descriptor end in ``suffix``; entries are records of ``columns``, (name, dtype), of which
    the first ``hashed`` are looked up (0: it has no index), in a ``direct`` one without a hash as
    long as that goes well."""

    suffix: str
    columns: tuple[tuple[str, str], ...]
    hashed: int
    direct: bool = False


@dataclass(frozen=True, slots=True)
class StageCode:
    """A written stage. ``by_ref`` maps output columns to the input columns that they pass on;
    ``tables`` are those of its windows, ``logs`` among them; ``codes`` the state columns that hold
    codes of the dictionary, as (suffix of their table, name, bit at which the code starts);
    ``fatal`` the error sites that no policy leaves out; ``passes``: whole morsels may
    go on as they are, by reference."""

    kernel: Kernel
    by_ref: dict[int, int]
    tables: tuple[Table, ...] = ()
    logs: tuple[Log, ...] = ()
    codes: tuple[tuple[str, str, int], ...] = ()
    fatal: frozenset[int] = frozenset()
    passes: bool = False


def window_column_type(schema: Schema, window: Window) -> DataType:
    assert window.wa is not None
    wa = schema[window.wa].type
    return BIGINT if wa.is_integer else wa


def columns_at(spec: StageSpec) -> list[tuple[Expr, ...]]:
    """The columns before each step, and after the last, written over the stage's input."""
    columns = input_columns(spec.input)
    levels = [columns]
    for step in spec.steps:
        if isinstance(step, ProjectExec):
            columns = tuple(substitute(e, columns) for e in step.exprs)
        elif isinstance(step, ArrivalExec):
            change = (Column(-1, f.name, f.type, False) for f in step.schema.fields[-2:])
            columns = (*columns, *change)
        elif isinstance(step, NumberExec):
            columns = (*columns, Column(-1, NUMBER, BIGINT, False))
        elif isinstance(step, BucketExec):
            kind = window_column_type(step.input.schema, step.window)
            columns = (*columns, *(Column(-1, "window", kind, False) for _ in range(3)))
        levels.append(columns)
    return levels


def input_columns(schema: Schema) -> tuple[Expr, ...]:
    return tuple(Column(i, f.name, f.type, f.nullable) for i, f in enumerate(schema))
