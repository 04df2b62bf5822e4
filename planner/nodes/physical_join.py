"""The joins of a physical plan (``physical``), as plain immutable data."""

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
    """A subquery's answer to each row of a changing relation (``logical.SubqueryJoin``). The input
    has the changes of both sides: the columns of the left, the keys (or the value of a scalar
    subquery), the side, ``_time``, ``_weight``. ``fields`` are the columns of the left and the
    answer. ``constant``: the subquery never changes."""

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
    """A subquery's answer to each row of a stream, if the subquery reads tables only
    (``logical.SubqueryJoin``): rows pass on arrival. Both inputs have the columns of the stream,
    ``keys`` key columns (or the value of a scalar subquery), and a weight."""

    input: Physical
    query: Physical
    kind: str
    keys: int
    answer: Field
    why: str = ""
    pos: Position | None = field(default=None, compare=False)

    @property
    def requested(self) -> int:
        """The number of key columns, or 1 for the value of a scalar subquery."""
        return self.keys or int(self.kind == "scalar")

    @property
    def width(self) -> int:
        """The number of columns of the stream."""
        return len(self.input.schema) - self.requested - 1

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields[: self.width], self.answer))


@dataclass(frozen=True, slots=True)
class BandExec:
    """``low <= right - left <= high`` for two columns; ``NO_BOUND``: no bound."""

    left: int
    right: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class OopJoinExec:
    """Join of streams in any order (out-of-order paper §5.3): each pair of rows with equal ``keys``
    (columns of the left and of the right), within the ``band``, and for which ``rest`` holds (over
    the columns of the left, then of the right). The output has ``columns`` of these, under
    ``names``.

    ``kind`` is inner; left, right or full, which also emit a row without a partner as soon as no
    partner can arrive any more; or semi or anti, which emit rows of the left alone. ``sliced``:
    the join looks up rows by slices of time, because rows may be far out of order or the two times
    must be equal. ``smooth``: rows without a partner leave a few at a time, when other rows arrive
    (slow flush, §6). ``follows``: columns of a pair that progress with the band's time on their
    side, as (column, side with 0 for the left, the most that the column lies below the time).
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
        """The columns of both inputs; with a band also ``later`` and ``earlier``, the later and the
        earlier of its two times."""
        ends: tuple[Field, ...] = ()
        if self.band is not None:
            kind, other = self.left.schema[self.band.left].type, self.right.schema[self.band.right]
            kind = kind if kind == other.type else BIGINT
            ends = Field("later", kind, False), Field("earlier", kind, False)
        return Schema((*self.left.schema, *self.right.schema, *ends))

    @property
    def leaves_alone(self) -> bool:
        """Whether rows that can find no partner any more leave before the inputs end."""
        return self.band is not None and self.kind in ("left", "right", "full", "anti")

    @property
    def later(self) -> int:
        """The index of ``later`` in ``pair``; ``earlier`` follows."""
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
        """Whether the columns of input ``port`` are NULL in rows without a partner."""
        return self.kind in (("right", "full"), ("left", "full"))[port]

    def shows_of(self, port: int) -> bool:
        """Whether a row of input ``port`` may leave without the columns of the other input."""
        return self.kind in (("left", "full", "semi", "anti"), ("right", "full"))[port]


@dataclass(frozen=True, slots=True)
class TableJoinExec:
    """A stream (``input``) joined with a bounded ``table``, which is read before the stream: each
    row finds its partners on arrival. ``keys`` are columns of the stream and of the table; ``rest``
    reads the stream's columns, then the table's. The output has ``columns`` of these. ``kind``:
    inner, left (rows without a partner also pass), semi or anti (rows of the stream alone, with or
    without a partner)."""

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
        """The number of columns of the stream."""
        return len(self.input.schema)

    @property
    def pair(self) -> Schema:
        """The columns of the stream, then of the table."""
        pads = self.kind == "left"
        return Schema((*self.input.schema, *self.table.schema.padded(pads)))

    @property
    def schema(self) -> Schema:
        pair = self.pair
        return Schema(tuple(pair[c] for c in self.columns))

    def forwarded(self, columns: Iterable[int]) -> dict[int, int]:
        """The stream's ``columns`` that are in the output, by their indices there."""
        return forwarded_columns(self.columns, columns)


@dataclass(frozen=True, slots=True)
class UnnestExec:
    """Each row of the input once per element of its array (column ``array``), in the order of the
    elements. The element is behind the input's columns; the output has ``columns`` of these, under
    ``names``. ``kind``: inner, or left (a row without elements passes once)."""

    input: Physical
    array: int
    kind: str
    columns: tuple[int, ...]
    names: tuple[str, ...]
    why: str = ""

    @property
    def width(self) -> int:
        """The number of columns of the input."""
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

    def forwarded(self, columns: Iterable[int]) -> dict[int, int]:
        """The input's ``columns`` that are in the output, by their indices there."""
        return forwarded_columns(self.columns, columns)


def forwarded_columns(shown: Sequence[int], columns: Iterable[int]) -> dict[int, int]:
    """The ``columns`` that are in ``shown``, by their indices in ``shown``."""
    live = frozenset(columns)
    return {k: c for k, c in enumerate(shown) if c in live}


@dataclass(frozen=True, slots=True)
class RelationJoinExec:
    """Join of two changing relations, at each instant (CQL paper, section 5): pairs of rows with
    equal ``keys`` (columns of the left and of the right) for which ``rest`` holds (over the left's
    columns, then the right's, without ``_time`` and ``_weight``). The output has ``columns`` of
    these. ``kind`` is inner, left, right, full (rows without a partner are padded with NULLs), or
    mark: the rows of the left, with a last column ``name`` that says whether a row has a
    partner."""

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
        """The columns of the left, then of the right, without ``_time`` and ``_weight``."""
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
    right), by the columns ``times``: the latest row with ``right - left <= shift`` or, if not
    ``backward``, the earliest row with ``right - left >= shift``. The difference may miss ``shift``
    by at most ``tolerance`` (None: by any amount). Among right rows of one time, the last to arrive
    counts. ``pads``: left rows without a right row also leave. ``rows``: each left row has so many
    latest right rows (backward, without shift or tolerance). The output has ``columns`` of the
    left's and the right's columns."""

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
    rows: int = 1
    pos: Position | None = field(default=None, compare=False)
    partitioning: Partitioning | None = None

    @property
    def schema(self) -> Schema:
        pair = (*self.left.schema, *self.right.schema.padded(self.pads))
        return Schema(tuple(pair[c] for c in self.columns))
