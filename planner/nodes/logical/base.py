"""What each node of a logical plan states about itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from cql.base.model import Schema
from cql.errors import Position
from cql.planner.nodes.abstract import Abstract, cached_property
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical.progress import UNKNOWN, ProgressInfo, Progressing
from cql.planner.nodes.rewrite import replace

if TYPE_CHECKING:
    from cql.planner.nodes.logical import Logical


class LogicalNode(Abstract):
    """A step of what a query means, as immutable data.

    A member without a default is abstract: no answer is true of every node. The members with a
    default answer what is safe for every node: no column is known to progress, and rows may leave
    if those of an input may."""

    __slots__ = ()

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of the output."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[Logical, ...]:
        """The nodes whose rows the node reads."""

    @abstractmethod
    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        """The node over ``new`` inputs, which are as many as ``inputs``."""

    @property
    @abstractmethod
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions over the columns of the input."""

    @property
    @abstractmethod
    def pos(self) -> Position | None:
        """The place of the clause in the text; None: unknown."""

    # -- defaults that are safe for every node -----------------------------------------------------

    @property
    def progressing(self) -> Progressing:
        """The output columns that progress, in the order of their declaration."""
        return {}

    @property
    def times(self) -> tuple[int, ...] | None:
        """The columns of a join of streams that hold the times of its inputs, left to right: the
        window attribute of an input, or its first progressing column. None if a time is missing, or
        if the input contains other kinds of joins."""
        return None

    @property
    def instants(self) -> ProgressInfo:
        """The clock of a relation: that of the first window in it."""
        live = self.progressing
        if live or not self.inputs:
            return next(iter(live.values()), UNKNOWN)
        return self.inputs[0].instants

    @property
    def is_bounded(self) -> bool:
        """Whether the node ends: all its inputs do, or LIMIT ends it."""
        return all(child.is_bounded for child in self.inputs)

    @property
    def is_constant(self) -> bool:
        """Whether nothing below progresses: the rows of tables are there from the beginning."""
        return not self.progressing and all(child.is_constant for child in self.inputs)

    @property
    def is_table(self) -> bool:
        """Whether all rows are there before the first row of a stream: the node ends, and none of
        its columns progresses, pruned columns included."""
        return self.is_constant and all(child.is_table for child in self.inputs)

    @property
    def is_stream(self) -> bool:
        """Whether the node is certainly a stream, and not a relation whose rows may leave."""
        return False

    @property
    def update_key(self) -> tuple[int, ...] | None:
        """The columns of the update key: each row of an update stream replaces the one before it
        with the same values in them (no column: the one before it). None: the node is no update
        stream, or leaves out a column of the key."""
        return None

    @property
    def answer_key(self) -> tuple[int, ...] | None:
        """The columns by which answers are told apart: a newer answer with the same values in them
        takes the place of the older one. None: rows have no such columns."""
        return self.update_key

    @property
    def update_time(self) -> int | None:
        """The column of an update stream's time, by which a row is newer than another of its key.
        None: the node is no update stream, leaves the time out, or has none."""
        return None

    @property
    def makes_relation(self) -> bool | None:
        """Whether the output is a relation, whose rows may also leave (True), or none (False),
        whatever the inputs are; None: it is one if an input is one."""
        return None

    def map_inputs(self, fn: Callable[[Logical], Logical]) -> Self:
        """The node with ``fn`` applied to each of its inputs."""
        return self.with_inputs(tuple([fn(child) for child in self.inputs]))


class NoInput(LogicalNode):
    """A node that reads no other node."""

    __slots__ = ()

    @property
    def inputs(self) -> tuple[Logical, ...]:
        return ()

    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        assert not new
        return self

    def map_inputs(self, fn: Callable[[Logical], Logical]) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class OneInput(LogicalNode):
    """A node with the one input ``input``."""

    input: Logical

    @property
    def inputs(self) -> tuple[Logical, ...]:
        return (self.input,)

    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        (child,) = new
        return replace(self, input=child)

    def map_inputs(self, fn: Callable[[Logical], Logical]) -> Self:
        child = fn(self.input)
        return self if child is self.input else self.with_inputs((child,))


class SameColumns(OneInput):
    """A node whose output has the columns of its input."""

    __slots__ = ()

    @cached_property
    def schema(self) -> Schema:
        return self.input.schema


class PassesRows(SameColumns):
    """A node that passes on rows of its input: the columns of the input come first, others may
    follow (``schema`` says so), and a stream stays one."""

    __slots__ = ()

    @property
    def progressing(self) -> Progressing:
        return self.input.progressing

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream


@dataclass(frozen=True, slots=True)
class TwoInputs(LogicalNode):
    """A node with the inputs ``left`` and ``right``."""

    left: Logical
    right: Logical

    @property
    def inputs(self) -> tuple[Logical, ...]:
        return (self.left, self.right)

    def with_inputs(self, new: tuple[Logical, ...]) -> Self:
        left, right = new
        return replace(self, left=left, right=right)

    def map_inputs(self, fn: Callable[[Logical], Logical]) -> Self:
        left, right = fn(self.left), fn(self.right)
        same = left is self.left and right is self.right
        return self if same else self.with_inputs((left, right))


def first_time(node: LogicalNode) -> tuple[int, ...] | None:
    """``times`` of a stream that is no join: its first progressing column."""
    first = next(iter(node.progressing), None)
    return None if first is None else (first,)
