"""Joins of streams, and of streams with tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.errors import Position
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Expr, columns_of
from cql.planner.nodes.logical import Partitioning
from cql.planner.nodes.physical.base import PhysicalNode, TwoInputs, WidensRows
from cql.planner.nodes.physical.columns import (
    coded_columns,
    column_at,
    wanted_of,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import (
    NO_BOUND,
    Boundaries,
    Wanted,
    add_wanted,
    first_columns,
    moved,
)

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical


@dataclass(frozen=True, slots=True)
class LookupExec(PhysicalNode):
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

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields[: self.width], self.answer))

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.input, self.query)

    def with_inputs(self, new: tuple[Physical, ...]) -> Self:
        child, query = new
        return replace(self, input=child, query=query)

    @property
    def rows_wait(self) -> bool:
        return False

    @property
    def shares_morsels(self) -> bool:
        return True

    @property
    def bounded(self) -> bool:
        return self.input.bounded and self.query.bounded

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return tuple(c for c in self.input.progressing if c < self.width)

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return tuple(c for c in self.input.window_columns if c < self.width)

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [first_columns(wanted, self.width), {}]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (wanted, None)

    @property
    def in_windows(self) -> bool:
        return self.input.in_windows

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer, None)  # the query is read to its end

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        return ((0, column),) if column < self.width else None

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        inside = column < self.width
        return ((0, column_at(self.input.schema, column)),) if inside else ()

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        keys = frozenset(c for c in coded_columns(self.input.schema) if c >= self.width)
        return [frozenset(c for c in needed if c < self.width) | keys, keys]

    @property
    def row_cost(self) -> float:
        return 15.0

    @property
    def own_columns(self) -> frozenset[int] | None:
        return frozenset({self.width})


@dataclass(frozen=True, slots=True)
class BandExec:
    """``low <= right - left <= high`` for two columns; ``NO_BOUND``: no bound."""

    left: int
    right: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class OopJoinExec(TwoInputs):
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
    def leaves_slowly(self) -> bool:
        return self.smooth and self.kind not in ("inner", "semi")

    @cached_property
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

    @cached_property
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

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        # The two times of the band (individual punctuation), the columns that follow them and,
        # where both progress, the later and the earlier time (joint punctuation, out-of-order
        # paper §7).
        band = self.band
        if band is None:
            return ()
        sides = ((0, self.left, band.left), (len(self.left.schema), self.right, band.right))
        live = {
            first + c
            for port, (first, side, c) in enumerate(sides)
            if c in side.progressing and not self.loose(port)
        }
        if len(live) == len(sides):
            live |= {self.later, self.later + 1}
        live |= {c for c, port, _ in self.follows if sides[port][0] + sides[port][2] in live}
        return tuple(k for k, c in enumerate(self.columns) if c in live)

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        # Its own boundaries, to purge rows, and those that imply ``wanted`` of its output times.
        # The left time needs the same value of the left input, and of the right input a value that
        # lies the band's upper limit above. The right time needs the same value of the right input,
        # and of the left input a value that lies the band's lower limit below.
        band = self.band
        if band is None:
            return [{}, {}]  # rows stay until the inputs end
        own = None if self.leaves_alone else _purges(band)
        sides: Wanted = {0: own, 1: own}
        low, high = band.low, band.high
        of_left, of_right = ((0, 0), (1, high)), ((0, -low), (1, 0))
        follows = {column: (port, far) for column, port, far in self.follows}
        for out, boundaries in wanted.items():
            column = self.columns[out]
            found: tuple[tuple[int, int], ...]
            far = 0
            if column == band.left:
                found = of_left
            elif column == len(self.left.schema) + band.right:
                found = of_right
            elif column == self.later:
                found = ((0, 0), (1, 0))
            elif column == self.later + 1:
                found = (*of_left, *of_right)
            elif column in follows:
                port, far = follows[column]
                found = (of_left, of_right)[port]
            else:
                continue
            for port, limit in found:
                if abs(limit) < NO_BOUND:
                    add_wanted(sides, port, moved(boundaries, limit + far))
        return [{band.left: sides[0]}, {band.right: sides[1]}]

    @property
    def emits_late_rows(self) -> bool:
        return False

    def columns_below(self, column: int) -> dict[int, int]:
        below = self._pair_below(self.columns[column])
        return {column: 0} | {
            k: far for k, c in enumerate(self.columns) if (far := below.get(c)) is not None
        }

    def _pair_below(self, column: int) -> dict[int, int]:
        """``columns_below`` of a column of ``pair``, as columns of ``pair``."""
        port = int(column >= len(self.left.schema))
        if self.band is None or column >= self.later or self.loose(port):
            return {}
        times = self.band.left, len(self.left.schema) + self.band.right
        found = self.side_below(port, column)
        # low <= right - left <= high
        reach = self.band.high if port else -self.band.low
        if self.kind == "inner" and times[port] in found and abs(reach) < NO_BOUND:
            far = found[times[port]] + reach
            found |= {c: far + d for c, d in self.side_below(1 - port, times[1 - port]).items()}
        return found

    def side_below(self, port: int, column: int) -> dict[int, int]:
        """``columns_below`` of a column of one input, as columns of ``pair``."""
        first = len(self.left.schema) if port else 0
        found = self.inputs[port].columns_below(column - first)
        return {first + c: far for c, far in found.items()}

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (None, None) if self.band is None else ("a join", "a join")

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        port, first = 0, 0
        if (place := self.columns[column]) >= len(self.left.schema):
            port, first = 1, len(self.left.schema)
        schema = self.inputs[port].schema
        inside = place - first < len(schema)
        return ((port, column_at(schema, place - first)),) if inside else ()

    @property
    def word(self) -> str:
        return "join"

    @property
    def can_split(self) -> bool:
        return self.kind == "inner" and bool(self.keys)  # no row leaves without a partner


#: A join purges rows this many times within the width of its band, and so keeps at most 1/32 more
#: rows than the band needs.
_PURGES = 32


def _purges(band: BandExec) -> Boundaries:
    """The round values at which a join purges rows; None for a narrow band: any value. A join that
    emits rows without a partner needs any value, because these rows wait for the watermark."""
    limits = [limit for limit in (band.low, band.high) if abs(limit) < NO_BOUND]
    most = (limits[-1] - limits[0]) // _PURGES if len(limits) == 2 else 0
    if most < 2:
        return None
    digit = 10 ** (len(str(most)) - 1)
    return frozenset({(max(n * digit for n in (1, 2, 5) if n * digit <= most), 0)})


@dataclass(frozen=True, slots=True)
class TableJoinExec(WidensRows):
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

    @cached_property
    def pair(self) -> Schema:
        """The columns of the stream, then of the table."""
        pads = self.kind == "left"
        return Schema((*self.input.schema, *self.table.schema.padded(pads)))

    @cached_property
    def schema(self) -> Schema:
        pair = self.pair
        return Schema(tuple(pair[c] for c in self.columns))

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.input, self.table)

    def with_inputs(self, new: tuple[Physical, ...]) -> Self:
        child, table = new
        return replace(self, input=child, table=table)

    @property
    def bounded(self) -> bool:
        return self.input.bounded and self.table.bounded

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [wanted_of(self.forwarded(range(self.width)), wanted), {}]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        forwarded = self.forwarded(range(self.width))
        return (None if wanted is None else forwarded.get(wanted), None)

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer, None)  # the table is read to its end

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        tested = {c for c in columns_of(*self.rest) if c < self.width}
        used = frozenset({a for a, _ in self.keys} | tested | {self.columns[c] for c in needed})
        return [used & coded_columns(self.input.schema), coded_columns(self.table.schema)]

    @property
    def row_cost(self) -> float:
        return 15.0


@dataclass(frozen=True, slots=True)
class AsofJoinExec(TwoInputs):
    """Each left row with the nearest right row of equal ``keys`` (columns of the left and of the
    right), by the columns ``times``: the latest row with ``right - left <= shift`` or, if not
    ``backward``, the earliest row with ``right - left >= shift``. The difference may miss ``shift``
    by at most ``tolerance`` (None: by any amount). Among right rows of one time, the last to arrive
    counts. ``pads``: left rows without a right row also leave. ``rows``: each left row has so many
    latest right rows (backward, without shift or tolerance). The output has ``columns`` of the
    left's and the right's columns."""

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

    @cached_property
    def schema(self) -> Schema:
        pair = (*self.left.schema, *self.right.schema.padded(self.pads))
        return Schema(tuple(pair[c] for c in self.columns))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        # left rows wait, and leave in the order of one time
        time = self.times[0]
        shown = time in self.left.progressing and time in self.columns
        return (self.columns.index(time),) if shown else ()

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{time: None} for time in self.times]  # rows wait for each value of the other time

    @property
    def emits_late_rows(self) -> bool:
        return False

    @property
    def can_split(self) -> bool:
        return self.backward and bool(self.keys)  # with later rows, rows wait for those before
