"""Operators over the changelogs of relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, BOOLEAN, INT, DataType
from cql.base.window import Window, WindowKind
from cql.errors import Position
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import TIME, WEIGHT, AggregateCall, SortKey
from cql.planner.nodes.physical.base import Changelog, OneInput, TwoInputs
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import Wanted


def change_fields(time: DataType) -> tuple[Field, Field]:
    """The columns ``_time`` and ``_weight`` of a change."""
    return Field(TIME, time, False), Field(WEIGHT, BIGINT, False)


@dataclass(frozen=True, slots=True)
class ArrivalExec(Changelog):
    """Changes of rows that enter a relation on arrival and never leave it, each before the end of
    its window (column ``end``). The instant is the event time; for a late row, its row
    watermark."""

    wa: int
    end: int
    why: str = ""

    @property
    def is_raw(self) -> bool:
        return True

    @cached_property
    def schema(self) -> Schema:
        wa = self.input.schema[self.wa].type
        return Schema((*self.input.schema, *change_fields(BIGINT if wa.is_integer else wa)))

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{self.wa: None}]

    @property
    def never_shrinks(self) -> bool:
        return True

    @property
    def equal_columns(self) -> frozenset[int]:
        # A late row enters at its own watermark, which lies in its window.
        return frozenset(self.input.window_columns if self.input.windows_apart else ())

    @property
    def early_end(self) -> int | None:
        return self.end

    @property
    def leaves_out_late_rows(self) -> bool:
        return True

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        return ((0, column),) if column < len(self.input.schema) else None

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [needed]

    @property
    def keeps_instants(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class RelationExec(Changelog):
    """The changelog of a stream as CQL's relation under a window without SLIDE: each row enters and
    leaves at an instant of ``window.wa``. Output: the input's columns, ``_time`` and ``_weight``
    (1 or -1), in the order of time."""

    window: Window
    why: str = ""

    def enters_at(self, column: int) -> bool:
        return self.window.kind is WindowKind.UNBOUNDED and self.window.wa == column

    @property
    def is_raw(self) -> bool:
        return True

    @cached_property
    def schema(self) -> Schema:
        assert self.window.wa is not None
        wa = self.input.schema[self.window.wa].type
        return Schema((*self.input.schema, *change_fields(BIGINT if wa.is_integer else wa)))

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        # rows wait for each instant
        return [{} if self.window.wa is None else {self.window.wa: None}]

    @property
    def never_shrinks(self) -> bool:
        return self.window.kind is WindowKind.UNBOUNDED

    def first_in_first_out(self, keys: frozenset[int]) -> bool:
        return keys.issuperset(self.window.partition_by)

    @property
    def row_cost(self) -> float:
        return 25.0

    @property
    def keeps_instants(self) -> bool:
        return False

    @property
    def split_columns(self) -> tuple[int, ...]:
        rows = self.window.kind is WindowKind.ROWS
        return tuple(self.window.partition_by) if rows else ()


@dataclass(frozen=True, slots=True)
class ChangeAggregateExec(Changelog):
    """Aggregates over a changing relation: at each instant, the old row of a changed group leaves
    and the new row enters. The input has the keys, then the columns that the calls read, then
    ``_time`` and ``_weight``.

    ``method`` is how states forget rows: no row ever leaves ("append_only"), rows are retracted
    from their state ("retract"), rows leave in the order of their arrival ("two_stacks"), or in any
    order ("rescan"); a DISTINCT keeps the weight of each group ("weights"). ``ends`` is the key
    with the time from which no row of a group follows. ``entered`` is the column with the instant
    at which a row entered; it distinguishes a leaving row from others with the same values. An
    aggregate without keys has a row from the instant ``since`` on; None: from the first instant of
    the windows below or, if these have no row, from ``beginning`` on. ``shows``: all changes
    ("both"), the rows that enter ("istream") or those that leave ("dstream")."""

    keys: int
    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]
    method: str
    ends: int | None = None
    why: str = ""
    entered: int | None = None
    beginning: int = 0
    since: int | None = None
    shows: str = "both"

    @property
    def runs_python(self) -> bool:
        # Python takes rows into the value logs, and computes results from these.
        return self.method != "weights" and any(call.beside is not None for call in self.calls)

    @property
    def is_net(self) -> bool:
        return True

    def showing(self, kind: str) -> Self | None:
        # A group's old row leaves if its new row differs.
        return None if self.method == "weights" else replace(self, shows=kind)

    @cached_property
    def schema(self) -> Schema:
        typed = [*((f.type, f.nullable) for f in self.input.schema.fields[: self.keys])]
        typed += [(c.type, c.nullable) for c in self.calls]
        fields = [Field(n, t, o) for n, (t, o) in zip(self.names, typed, strict=True)]
        return Schema((*fields, *self.input.schema.fields[-2:]))

    @property
    def equal_columns(self) -> frozenset[int]:
        return frozenset(k for k in self.input.equal_columns if k < self.keys)

    @property
    def word(self) -> str:
        return "aggregate"

    @property
    def row_cost(self) -> float:
        return 45.0

    @property
    def split_columns(self) -> tuple[int, ...]:
        own = [call.function for call in self.calls if call.function is not None]
        alone = any(function.parallel is False for function in own)
        return () if alone else tuple(range(self.keys))


@dataclass(frozen=True, slots=True)
class SetOperationExec(Changelog):
    """EXCEPT and INTERSECT of changing relations, by the weights of each row on both sides. The
    input is the union of both, with the side (0 or 1) in a column before ``_time`` and
    ``_weight``."""

    kind: str
    distinct: bool
    why: str = ""

    @property
    def is_net(self) -> bool:
        return True

    @cached_property
    def schema(self) -> Schema:
        fields = self.input.schema.fields
        return Schema((*fields[:-3], *fields[-2:]))

    @property
    def word(self) -> str:
        return self.kind

    @property
    def row_cost(self) -> float:
        return 100.0

    @property
    def split_columns(self) -> tuple[int, ...]:
        return tuple(range(len(self.schema) - 2))


@dataclass(frozen=True, slots=True)
class TopExec(Changelog):
    """The first ``limit`` rows after ``offset`` of a changing relation, by ``keys`` (columns);
    ties by the order in which rows entered."""

    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int
    why: str = ""

    @property
    def is_net(self) -> bool:
        return True

    @cached_property
    def schema(self) -> Schema:
        return self.input.schema

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return ("ORDER BY … LIMIT",)

    @property
    def row_cost(self) -> float:
        return 250.0


@dataclass(frozen=True, slots=True)
class RowNumberExec(Changelog):
    """The rows of a changing relation with the number of each row, from 1, among the rows with
    equal ``partition`` columns, ordered by ``keys`` (columns); ties by the order in which rows
    entered. The plan above needs only rows numbered up to ``limit``. ``forgets``: no row ever
    leaves the relation, so that the operator can forget rows behind ``limit``."""

    partition: tuple[int, ...]
    keys: tuple[SortKey, ...]
    limit: int | None
    forgets: bool
    name: str
    why: str = ""

    @property
    def keeps_one_row(self) -> bool:
        """Whether the first or the latest row of each partition suffices, in the order of the
        instants at which rows enter, and no row leaves."""
        if self.limit != 1 or not self.forgets or len(self.keys) != 1 or not self.partition:
            return False
        (key,) = self.keys
        return isinstance(key.expr, Column) and self.input.enters_at(key.expr.index)

    @property
    def is_net(self) -> bool:
        return True

    @cached_property
    def schema(self) -> Schema:
        fields = self.input.schema.fields
        return Schema((*fields[:-2], Field(self.name, INT, False), *fields[-2:]))

    @property
    def row_cost(self) -> float:
        return 50.0 if self.keeps_one_row else 250.0

    @property
    def split_columns(self) -> tuple[int, ...]:
        return self.partition if self.keeps_one_row else ()


@dataclass(frozen=True, slots=True)
class StreamExec(OneInput):
    """ISTREAM, DSTREAM or RSTREAM (``kind``) of a changing relation: rows with their instant. Kind
    ``net``: the changelog, with the net difference of each instant."""

    kind: str
    why: str = ""

    @property
    def is_raw(self) -> bool:
        return True

    @cached_property
    def schema(self) -> Schema:
        fields = self.input.schema.fields
        return Schema(fields if self.kind == "net" else fields[:-1])

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return (len(self.input.schema) - 2,)

    @property
    def word(self) -> str:
        return self.kind

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer or "a relation",)

    @property
    def row_cost(self) -> float:
        return 15.0


@dataclass(frozen=True, slots=True)
class SubqueryJoinExec(Changelog):
    """A subquery's answer to each row of a changing relation (``logical.SubqueryJoin``). The input
    has the changes of both sides: the columns of the left, the keys (or the value of a scalar
    subquery), the side, ``_time``, ``_weight``. ``fields`` are the columns of the left and the
    answer. ``constant``: the subquery never changes."""

    kind: str
    keys: int
    fields: tuple[Field, ...]
    constant: bool
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def width(self) -> int:
        """The number of columns of the left."""
        return len(self.fields) - 1

    @property
    def by_key(self) -> bool:
        """Whether only rows of the subquery with a row's own key decide on its answer: not if a
        NULL in another key makes the answer unknown."""
        keys = self.input.schema.fields[self.width : self.width + self.keys]
        is_known = self.kind == "in" and not any(f.nullable for f in keys)
        return self.kind == "exists" or is_known

    @property
    def is_raw(self) -> bool:
        return True

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.fields, *self.input.schema.fields[-2:]))

    @property
    def word(self) -> str:
        return "subquery"

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return ("a subquery",)

    @property
    def row_cost(self) -> float:
        return 100.0

    @property
    def split_columns(self) -> tuple[int, ...]:
        return tuple(range(self.width, self.width + self.keys)) if self.by_key else ()


@dataclass(frozen=True, slots=True)
class RelationJoinExec(TwoInputs):
    """Join of two changing relations, at each instant (CQL paper, section 5): pairs of rows with
    equal ``keys`` (columns of the left and of the right) for which ``rest`` holds (over the left's
    columns, then the right's, without ``_time`` and ``_weight``). The output has ``columns`` of
    these. ``kind`` is inner, left, right, full (rows without a partner are padded with NULLs), or
    mark: the rows of the left, with a last column ``name`` that says whether a row has a
    partner."""

    kind: str
    keys: tuple[tuple[int, int], ...]
    rest: tuple[Expr, ...]
    columns: tuple[int, ...]
    name: str = ""
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def is_net(self) -> bool:
        # A row without a partner may equal a row whose partner is all NULL.
        return self.kind in ("inner", "mark")

    @cached_property
    def pair(self) -> Schema:
        """The columns of the left, then of the right, without ``_time`` and ``_weight``."""
        sides = ((self.left, ("right", "full")), (self.right, ("left", "full")))
        shown = (side.schema.padded(self.kind in pads).fields[:-2] for side, pads in sides)
        return Schema(tuple(f for fields in shown for f in fields))

    @cached_property
    def schema(self) -> Schema:
        pair = self.pair
        mark = (Field(self.name, BOOLEAN, False),) if self.kind == "mark" else ()
        change = self.left.schema.fields[-2:]
        return Schema((*(pair[c] for c in self.columns), *mark, *change))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return (len(self.schema) - 2,)

    @property
    def never_shrinks(self) -> bool:
        return self.kind == "inner" and self.left.never_shrinks and self.right.never_shrinks

    @property
    def row_cost(self) -> float:
        return 110.0

    @property
    def keeps_instants(self) -> bool:
        return True

    @property
    def can_split(self) -> bool:
        return bool(self.keys)
