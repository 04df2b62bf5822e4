"""A stage as data: its steps, its ending, and what its written kernel needs."""

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

#: Where a kernel tests whether a row is late: in the row loop before each row, in the terminal
#: itself, or nowhere.
LateRowTest: TypeAlias = Literal["each row", "itself"] | None
#: Columns that order the results of all partitions: the window of a result (its number; the end of
#: a session), and when the result's group began.
ORDER = (Field("order", BIGINT, False), Field("born", BIGINT, False))
Step: TypeAlias = FilterExec | ProjectExec | BucketExec | OnTimeExec | ArrivalExec | NumberExec


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What one kernel does.

    ``live``: input columns on which punctuation arrives. ``assume_valid``: nullable input columns
    in which no NULL has come yet (the kernel is rebuilt at the first NULL). ``carry_late_rows``: a
    later operator still tests which rows are late. ``partitioned``: the kernel takes the rows of
    one partition (CHOSEN). ``with_order_columns``: the output has order columns (``ORDER``) behind
    the others. ``top_n``: only the first results of each window, by some order, leave
    (``kernels.order.top_n``). ``keyed_watermarks``: pairs of output columns (attribute, key); the
    attribute has a per-key watermark, whose punctuation the stage passes on."""

    input: Schema
    steps: tuple[Step, ...]
    aggregate: WidAggregateExec | None
    post: tuple[Step, ...]
    output: Schema
    live: tuple[int, ...]
    assume_valid: frozenset[int] = frozenset()
    carry_late_rows: bool = False
    partitioned: bool = False
    with_order_columns: bool = False
    top_n: bool = False
    keyed_watermarks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of entries that each window keeps: its groups, or values beside the groups.

    ``suffix`` ends the names of the table's words in the descriptor. Entries are records of
    ``columns``, (name, dtype). The first ``hashed`` columns are the key of an index (0: no index).
    ``direct``: the index starts with the low bits of the key in place of a hash, and changes to the
    hash when too many keys collide."""

    suffix: str
    columns: tuple[tuple[str, str], ...]
    hashed: int
    direct: bool = False


@dataclass(frozen=True, slots=True)
class StageCode:
    """A written stage. ``by_ref`` maps output columns to the input columns that they pass on.
    ``tables``: the tables of its windows, those of ``logs`` included. ``codes``: the state columns
    that hold dictionary codes, as (suffix of the table, name, first bit of the code). ``fatal``:
    the error sites that fail the query under every ON BAD ROW policy. ``passes``: whole morsels may
    pass on by reference."""

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
    """The columns before each step and after the last, as expressions over the stage's input."""
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
