"""The joins of a physical plan (``physical``): plain immutable data, as all its operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, BOOLEAN, DataType
from cql.errors import Position
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical import Partitioning
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical


@dataclass(frozen=True, slots=True)
class SubqueryJoinExec:
    """What a subquery says of each row (``logical.SubqueryJoin``). The input has the changes of
    both sides: the columns of the left, the keys (or the value of a scalar subquery), the side,
    ``_time``, ``_weight``. ``fields``: those of the left, and the answer's. ``constant``: the
    subquery never changes."""

    input: Physical
    kind: str
    keys: int
    fields: tuple[Field, ...]
    constant: bool
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        return Schema((*self.fields, *self.input.schema.fields[-2:]))


@dataclass(frozen=True, slots=True)
class LookupExec:
    """What a subquery over tables says of each row of a stream (``logical.SubqueryJoin``): rows
    pass as they come. Both inputs have the columns of the stream, the ``keys`` (or the value of a
    scalar subquery), and a weight."""

    input: Physical
    query: Physical
    kind: str
    keys: int
    answer: Field
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def asked(self) -> int:
        """Columns of the subquery that count."""
        return self.keys or int(self.kind == "scalar")

    @property
    def width(self) -> int:
        """Columns of the stream."""
        return len(self.input.schema) - self.asked - 1

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields[: self.width], self.answer))


@dataclass(frozen=True, slots=True)
class BandExec:
    """``low <= right - left <= high`` of two columns; half of 64 bits: no bound."""

    left: int
    right: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class OopJoinExec:
    """Join of streams in any order (out-of-order paper §5.3): each pair of rows with equal
    ``keys`` (columns of the left and of the right), within the ``band`` and for which ``rest``
    holds, over the columns of the left, then of the right; ``columns`` of these go on, under
    ``names``. ``kind`` is inner; left, right or full, which also give rows of a side that have no
    partner, when none can come any more; or semi or anti, of rows of the left alone. ``sliced``:
    rows are looked up by slices of time, since they may be far from order, or must be of one time.
    ``smooth``: rows without a partner leave a few at a time, as others come (slow flush, §6).
    ``follows``: columns of a pair that progress as the time of the band on their side does, so far
    below it (column, 0 for the left, how far).
    """

    left: Physical
    right: Physical
    keys: tuple[tuple[int, int], ...]
    band: BandExec | None
    rest: tuple[Expr, ...]
    columns: tuple[int, ...]
    names: tuple[str, ...]
    kind: str = "inner"
    sliced: bool = False
    smooth: bool = False
    why: str = ""
    pos: Position | None = field(default=None, compare=False)
    partitioning: Partitioning | None = None
    follows: tuple[tuple[int, int, int], ...] = ()

    @property
    def pair(self) -> Schema:
        """The columns of both; under a band also ``later`` and ``earlier``, of its two times."""
        ends: tuple[Field, ...] = ()
        if self.band is not None:
            kind, other = self.left.schema[self.band.left].type, self.right.schema[self.band.right]
            kind = kind if kind == other.type else BIGINT
            ends = Field("later", kind, False), Field("earlier", kind, False)
        return Schema((*self.left.schema, *self.right.schema, *ends))

    @property
    def leaves_alone(self) -> bool:
        """Whether rows leave for which no partner can come any more, before the inputs end."""
        return self.band is not None and self.kind in ("left", "right", "full", "anti")

    @property
    def later(self) -> int:
        """Where it is in ``pair``, which ends with ``earlier``."""
        return len(self.left.schema) + len(self.right.schema)

    @property
    def schema(self) -> Schema:
        pair, first = self.pair.fields, len(self.left.schema)
        loose = self.loose(0), self.loose(1)
        return Schema(
            tuple(
                [
                    replace(pair[c], name=n, nullable=pair[c].nullable or loose[c >= first])
                    for c, n in zip(self.columns, self.names, strict=True)
                ]
            )
        )

    def loose(self, port: int) -> bool:
        """Whether the columns of that input may be NULL for want of a partner."""
        return self.kind in (("right", "full"), ("left", "full"))[port]

    def shows_of(self, port: int) -> bool:
        """Whether a row of that input may show without one of the other."""
        return self.kind in (("left", "full", "semi", "anti"), ("right", "full"))[port]


@dataclass(frozen=True, slots=True)
class TableJoinExec:
    """A stream (``input``) joined with a bounded ``table`` that is read before it: each row finds
    its partners as it passes. ``keys`` are columns of the stream and of the table; ``rest`` reads
    the stream's columns, then the table's; of these, ``columns`` go on. ``kind``: inner, left (rows
    without a partner pass, too), semi or anti (rows of the stream alone, with and without one)."""

    input: Physical
    table: Physical
    kind: str
    keys: tuple[tuple[int, int], ...]
    rest: tuple[Expr, ...]
    columns: tuple[int, ...]
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def width(self) -> int:
        """Columns of the stream."""
        return len(self.input.schema)

    @property
    def pair(self) -> Schema:
        """The columns of both."""
        pads = self.kind == "left"
        return Schema((*self.input.schema, *self.table.schema.padded(pads)))

    @property
    def schema(self) -> Schema:
        pair = self.pair
        return Schema(tuple(pair[c] for c in self.columns))

    def passed(self, columns: Iterable[int]) -> dict[int, int]:
        """Those of the stream's ``columns`` that go on, by their places in the output."""
        return passed_on(self.columns, columns)


@dataclass(frozen=True, slots=True)
class UnnestExec:
    """Each row of the input with each element of an array, which is column ``array``, in their
    order, as it passes. The element stands behind the input's columns; of all these, ``columns`` go
    on, under ``names``. ``kind``: inner, or left (a row without elements passes once)."""

    input: Physical
    array: int
    kind: str
    columns: tuple[int, ...]
    names: tuple[str, ...]
    why: str = ""

    @property
    def width(self) -> int:
        """Columns of the input."""
        return len(self.input.schema)

    @property
    def element(self) -> DataType:
        kind = self.input.schema[self.array].type.element
        assert kind is not None
        return kind

    @property
    def schema(self) -> Schema:
        all_ = (*self.input.schema, Field("", self.element, self.kind == "left"))
        named = zip(self.columns, self.names, strict=True)
        return Schema(tuple(replace(all_[c], name=name) for c, name in named))

    def passed(self, columns: Iterable[int]) -> dict[int, int]:
        """Those of the input's ``columns`` that go on, by their places in the output."""
        return passed_on(self.columns, columns)


def passed_on(shown: Sequence[int], columns: Iterable[int]) -> dict[int, int]:
    """Those of ``columns`` that are ``shown``, by their places there."""
    live = frozenset(columns)
    return {k: c for k, c in enumerate(shown) if c in live}


@dataclass(frozen=True, slots=True)
class RelationJoinExec:
    """Join of two changing relations, at each instant (CQL paper, section 5): pairs of rows with
    equal ``keys`` (columns of the left and of the right) for which ``rest`` holds, over the left's
    columns, then the right's, both without the change's own; of these, ``columns`` go on. ``kind``
    is inner, left, right, full (rows without a partner are there with NULLs), or mark: the rows of
    the left, and in a column ``name`` behind them whether each has a partner."""

    left: Physical
    right: Physical
    kind: str
    keys: tuple[tuple[int, int], ...]
    rest: tuple[Expr, ...]
    columns: tuple[int, ...]
    name: str = ""
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def pair(self) -> Schema:
        """The columns of both."""
        sides = ((self.left, ("right", "full")), (self.right, ("left", "full")))
        shown = (side.schema.padded(self.kind in pads).fields[:-2] for side, pads in sides)
        return Schema(tuple(f for fields in shown for f in fields))

    @property
    def schema(self) -> Schema:
        pair = self.pair
        mark = (Field(self.name, BOOLEAN, False),) if self.kind == "mark" else ()
        change = self.left.schema.fields[-2:]
        return Schema((*(pair[c] for c in self.columns), *mark, *change))


@dataclass(frozen=True, slots=True)
class AsofJoinExec:
    """Each left row with the nearest right row of equal ``keys`` (columns of the left and of the
    right), by the columns ``times``: the latest with ``right - left <= shift``, or (not
    ``backward``) the earliest with ``right - left >= shift``, neither further away from that than
    ``tolerance``; of several of one time the last to come. ``pads``: left rows that have none
    leave, too. ``columns`` of the left's and the right's go on."""

    left: Physical
    right: Physical
    keys: tuple[tuple[int, int], ...]
    times: tuple[int, int]
    backward: bool
    shift: int
    tolerance: int | None
    pads: bool
    columns: tuple[int, ...]
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def schema(self) -> Schema:
        pair = (*self.left.schema, *self.right.schema.padded(self.pads))
        return Schema(tuple(pair[c] for c in self.columns))
