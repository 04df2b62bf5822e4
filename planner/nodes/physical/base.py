"""What each operator of a physical plan states about itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from cql.base.model import Schema
from cql.planner.nodes.abstract import Abstract, cached_property
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical import Partitioning
from cql.planner.nodes.physical.columns import coded_columns, column_at, forwarded_columns
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import Wanted

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical, SourceExec


def sources_below(nodes: Sequence[Physical]) -> tuple[SourceExec, ...]:
    """The sources below all ``nodes``, left to right, each once."""
    if len(nodes) == 1:
        return nodes[0].sources
    below = (source for node in nodes for source in node.sources)
    return tuple({id(source): source for source in below}.values())


class PhysicalNode(Abstract):
    """An operator of a physical plan, as immutable data.

    A node class states its properties itself; passes read them and do not ask for the class. A
    member without a default is abstract. The members with a default answer what is true of every
    node or costs speed only: unknown order, no unique columns, an input that must be in order,
    any punctuation awaited. A node class may state more, and must state only what holds of each
    of its outputs."""

    __slots__ = ()

    # -- abstract: no answer is true of every node -------------------------------------------------

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of the output."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[Physical, ...]:
        """The nodes whose output the operator reads, in the order of its ports."""

    @abstractmethod
    def with_inputs(self, new: tuple[Physical, ...]) -> Self:
        """The node over ``new`` inputs, which are as many as ``inputs``."""

    @property
    @abstractmethod
    def progressing(self) -> tuple[int, ...]:
        """Output columns on which punctuation flows, in ascending order."""

    @property
    @abstractmethod
    def rows_wait(self) -> bool:
        """Whether rows of one input wait for rows of another input."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the output ends without being stopped."""

    @property
    @abstractmethod
    def why(self) -> str:
        """The reason for the choice of the operator, for EXPLAIN."""

    @cached_property
    def sources(self) -> tuple[SourceExec, ...]:
        """The sources below the operator, left to right, each once."""
        return sources_below(self.inputs)

    # -- defaults that are safe for every node -----------------------------------------------------

    @property
    def window_columns(self) -> tuple[int, ...]:
        """Output columns that are functions of one window's bounds (they close together)."""
        return ()

    @property
    def windows_apart(self) -> bool:
        """Whether the rows are in windows of ``window_columns``, at most one of which contains an
        instant."""
        return False

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        """For each input, the boundaries that the operator needs of its columns, if ``wanted`` is
        needed of the output. The default needs any value of each column that progresses."""
        return [dict.fromkeys(child.progressing) for child in self.inputs]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        """For each input, the column in whose order its rows should come, if the rows of the output
        should come in the order of column ``wanted``; None: in any order."""
        return (None,) * len(self.inputs)

    def comes_in_order(self, column: int, *, guarded: bool = False) -> bool:
        """Whether rows come in the order of ``column``, without late rows. ``guarded`` disregards
        rows whose advance of time exceeds MAX ADVANCE and has to be confirmed."""
        return self.joined_in_order(column)

    def joined_in_order(self, column: int) -> bool:
        """Whether rows come from a join that emits them in the order of ``column``."""
        return False

    def late_out_of_order(self, column: int, *, guarded: bool) -> bool:
        """Whether every row that is out of the order of ``column`` is a late row; ``guarded`` as in
        ``in_order``."""
        return False

    def needs_order(self, matters: bool) -> bool:
        """Whether the rows of the inputs must be in order within a morsel; ``matters``: whether the
        output must be."""
        return True

    @property
    def unique(self) -> list[set[int]] | None:
        """Columns in which together no two rows are equal, each as the set of its places in the
        output; None: no such columns are known."""
        return None

    @property
    def in_windows(self) -> bool:
        """Whether each row is the result of a window or, by a window function, a row of one."""
        return False

    def columns_below(self, column: int) -> dict[int, int]:
        """Columns of the output, each with the most by which it lies below ``column`` in any
        row."""
        return {column: 0}

    # -- of late rows and the watermarks of single values ------------------------------------------

    @property
    def leaves_out_late_rows(self) -> bool:
        """Whether the operator itself may leave out late rows."""
        return False

    @property
    def emits_late_rows(self) -> bool:
        """Whether late rows may be in the output; False of a join that waits for watermarks."""
        return True

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        """For each input, the words for the operator that uses one watermark for all values of
        PUNCTUATE BY, if there is one. ``consumer`` are those for the output."""
        return (consumer or "an operator",) * len(self.inputs)

    # -- of columns and buffers --------------------------------------------------------------------

    @property
    def own_columns(self) -> frozenset[int] | None:
        """The output columns that the operator fills; the others are the buffers of its input.
        None: it fills all."""
        return None

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        """The (input, column of it) pairs that the output ``column`` passes on unchanged, while the
        blocks of their sources are there; None: it is computed, or rows are kept."""
        return None

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        """The (input, expression over it) pairs that together have all values of the output
        ``column``; (): unknown."""
        return ()

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        """For each input, the columns of texts that must be encoded, if those in ``needed`` must be
        in the output. The default keeps whole rows, with all their texts."""
        return [coded_columns(child.schema) for child in self.inputs]

    # -- of the work -------------------------------------------------------------------------------

    @property
    def row_cost(self) -> float:
        """Nanoseconds for each row of the inputs, measured, if the operator has a kernel to itself.
        The default is that of a join in order."""
        return 60.0

    @property
    def rows_per_row(self) -> float:
        """Expected rows of the output for each row of the inputs."""
        return 1.0

    @property
    def shares_morsels(self) -> bool:
        """Whether workers can share the operator morsel by morsel, since what a row gives depends
        on no other row of its stream."""
        return False

    @property
    def can_split(self) -> bool:
        """Whether partitions can share the operator: rows that differ in its keys never meet, and
        do not decide when a row of another key leaves."""
        return bool(self.split_columns)

    @property
    def split_columns(self) -> tuple[int, ...]:
        """Of an operator over a relation: the columns of its input by which partitions may share
        it. Empty if there are none."""
        return ()

    @property
    def partitioning(self) -> Partitioning | None:
        """The PARTITION BY of the operator."""
        return None

    @property
    def runs_python(self) -> bool:
        """Whether the operator runs Python for each morsel of its inputs."""
        return False

    @property
    def leaves_slowly(self) -> bool:
        """Whether rows leave a few at a time, with each morsel that comes (slow flush)."""
        return False

    def enters_at(self, column: int) -> bool:
        """Whether a column has the instant at which a row entered the relation."""
        return False

    @property
    def state(self) -> str:
        """The bound of its state in words, for EXPLAIN. The default is the most that any operator
        keeps."""
        return "the rows of its inputs"

    @property
    def title(self) -> str:
        """The name of the operator in EXPLAIN."""
        return type(self).__name__.removesuffix("Exec")

    @property
    def word(self) -> str:
        """The prefix of the names of its operators, for EXPLAIN ANALYZE, ledgers and errors."""
        return self.title.lower()

    # -- of changelogs -----------------------------------------------------------------------------

    @property
    def never_shrinks(self) -> bool:
        """Whether all weights of a changelog are above zero: no row ever leaves."""
        return False

    @property
    def is_raw(self) -> bool:
        """Whether no operator looks at a relation as a whole: all changes are a window's own
        rows."""
        return False

    @property
    def is_net(self) -> bool:
        """Whether no row both enters and leaves at one instant."""
        return False

    def showing(self, kind: str) -> Physical | None:
        """The changelog with the rows that enter only ("istream") or leave only ("dstream"), if
        these are the net changes; else None."""
        return None

    @property
    def equal_columns(self) -> frozenset[int]:
        """Columns that are equal in all changes of one instant."""
        return frozenset()

    def first_in_first_out(self, keys: frozenset[int]) -> bool:
        """Whether rows of a relation that agree in the columns ``keys`` leave in the order in which
        they entered."""
        return False

    @property
    def keeps_instants(self) -> bool:
        """Whether the inputs are changelogs whose changes make those of the output, at the same
        instants."""
        return False

    @property
    def early_end(self) -> int | None:
        """The column with the window's end, for windows whose rows are shown before that end; None
        if there is no such column, or none is known."""
        return None


@dataclass(frozen=True, slots=True)
class OneInput(PhysicalNode):
    """An operator with the one input ``input``, which ends when the input ends."""

    input: Physical

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.input,)

    def with_inputs(self, new: tuple[Physical, ...]) -> Self:
        (child,) = new
        return replace(self, input=child)

    @property
    def rows_wait(self) -> bool:
        return False

    @property
    def bounded(self) -> bool:
        return self.input.bounded


class WidensRows(PhysicalNode):
    """An operator whose rows are those of ``input``, each with the same columns of something else
    behind it; the output has ``columns`` of both."""

    __slots__ = ()
    input: Physical
    columns: tuple[int, ...]

    @property
    def width(self) -> int:
        """The number of columns of the input."""
        return len(self.input.schema)

    @property
    def rows_wait(self) -> bool:
        return False

    @property
    def shares_morsels(self) -> bool:
        return True

    def forwarded(self, columns: Iterable[int]) -> dict[int, int]:
        """The input's ``columns`` that are in the output, by their indices there."""
        return forwarded_columns(self.columns, columns)

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return tuple(self.forwarded(self.input.progressing))

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return tuple(self.forwarded(self.input.window_columns))

    @property
    def in_windows(self) -> bool:
        return self.input.in_windows

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        place = self.columns[column]
        return ((0, place),) if place < self.width else None

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        place = self.columns[column]
        inside = place < self.width
        return ((0, column_at(self.input.schema, place)),) if inside else ()


class NoInput(PhysicalNode):
    """An operator that reads no other operator."""

    __slots__ = ()

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return ()

    def with_inputs(self, new: tuple[Physical, ...]) -> Self:
        assert not new
        return self

    @property
    def rows_wait(self) -> bool:
        return False


class SameColumns(OneInput):
    """An operator whose output has the columns of its input."""

    __slots__ = ()

    @cached_property
    def schema(self) -> Schema:
        return self.input.schema

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        return ((0, column_at(self.schema, column)),)


class PassesRows(SameColumns):
    """An operator that passes rows of its input on, unchanged and in their order, with all
    punctuation."""

    __slots__ = ()

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return self.input.progressing

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return self.input.window_columns

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [wanted]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (wanted,)

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer,)

    def columns_below(self, column: int) -> dict[int, int]:
        return self.input.columns_below(column)

    def carried_from(self, column: int) -> Sequence[tuple[int, int]] | None:
        return ((0, column),)

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        return [needed]


class Changelog(OneInput):
    """An operator whose output is a changelog, with the columns ``_time`` and ``_weight`` at its
    end, in the order of time."""

    __slots__ = ()

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return (len(self.schema) - 2,)

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (consumer or "a relation",)

    @property
    def keeps_instants(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class TwoInputs(PhysicalNode):
    """A join of the inputs ``left`` and ``right``, which ends when both inputs end."""

    left: Physical
    right: Physical

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.left, self.right)

    def with_inputs(self, new: tuple[Physical, ...]) -> Self:
        left, right = new
        return replace(self, left=left, right=right)

    @property
    def rows_wait(self) -> bool:
        return True

    @property
    def bounded(self) -> bool:
        return self.left.bounded and self.right.bounded

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return ("a join", "a join")
