"""Operators with keys, split into partitions (ordered-multicore paper, §4): which operators are
split, into how many partitions, and which split operators precede them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from cql.base.model import Field, Schema
from cql.base.types import DataType
from cql.errors import NotSupportedError
from cql.executor.graph.keys import SPLIT
from cql.executor.operators.contract import Operator
from cql.executor.operators.flow.hash_split import (
    LISTS,
    Bounds,
    SplitOperator,
    can_split,
    split_schema,
)
from cql.executor.operators.flow.ownership import Spread
from cql.executor.operators.flow.replicas import PartitionedOperator
from cql.executor.operators.joins.asof_join import AsofJoinOperator
from cql.executor.operators.joins.oop_join import OopJoinOperator
from cql.executor.operators.joins.oop_join_kernel import Rows
from cql.executor.operators.joins.relation_join import RelationJoinOperator
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.operators.stage.spec import ORDER, StageSpec, Step
from cql.executor.operators.workspace import Workspace
from cql.executor.run.partition_sizing import Measured
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.physical import (
    AsofJoinExec,
    FilterExec,
    OopJoinExec,
    Physical,
    RelationJoinExec,
    WidAggregateExec,
)
from cql.planner.nodes.physical.numbers import NodeNumbers, SourceNumbers
from cql.planner.placement.choose_runtime import LOOKING
from cql.planner.placement.partitioning import origins

#: Joins that partitions may share.
SplitJoin: TypeAlias = OopJoinExec | AsofJoinExec | RelationJoinExec


class Builder(Protocol):
    """The part of the graph builder that partitions use. Operator numbers index the graph."""

    @property
    def workspace(self) -> Workspace: ...
    @property
    def path_counts(self) -> Mapping[int, int]:
        """By the number of a node: the number of paths from the roots to the node."""
        ...

    @property
    def order(self) -> SourceNumbers:
        """The feeds of sources."""
        ...

    def name(self, kind: str) -> str:
        """The name of the next operator."""
        ...

    def operator_below(self, node: Physical) -> int | None:
        """The operator that gives the output of ``node``; None if a feed gives it."""
        ...

    def is_top_n(self, node: Physical, aggregate: WidAggregateExec) -> bool:
        """Whether a LIMIT above ``node`` needs only the first of its results."""
        ...

    def stage_operator(
        self, name: str, node: Physical, spec: StageSpec, schema: Schema
    ) -> StageOperator:
        """The operator that runs ``spec`` and outputs the rows of ``node`` in ``schema``."""
        ...

    def add(
        self,
        operator: Operator,
        schema: Schema,
        *reads: Schema,
        owned: frozenset[int] | None = None,
        late_rows: bool = False,
        rows: int | None = None,
    ) -> int: ...
    def edge(self, child: Physical, below: int | None, index: int, port: int) -> None:
        """Connects operator ``below``, which gives the output of ``child``, to operator
        ``index``."""
        ...

    def connect(self, below: int, index: int, port: int) -> None:
        """Connects the output of operator ``below`` to operator ``index``."""
        ...


@dataclass(slots=True)
class Partitions:
    """``parts``, ``split``, ``measured`` and ``exactly`` as in ``graph.build``, by the numbers of
    ``nodes``. ``in_order`` has the nodes whose output must be in order. ``bounds`` are the range
    bounds of the range-split operators. ``made``: the number of partitions of each split node.
    ``splits``: for each split operator, by its number, the node whose input it splits,
    and its role (``graph.keys``)."""

    nodes: NodeNumbers
    parts: int | None
    split: frozenset[int] | None
    measured: Mapping[int, Measured]
    in_order: frozenset[int]
    exactly: Mapping[int, int] | None = None
    bounds: list[Bounds] = field(default_factory=list)
    made: dict[int, int] = field(default_factory=dict)
    splits: dict[int, tuple[int, str]] = field(default_factory=dict)

    def splits_stage(self, node: WidAggregateExec) -> bool:
        """Whether groups are spread over partitions and a kernel alone can compute a row's
        partition. Raises NotSupportedError if an explicit PARTITION BY has keys that no kernel can
        compute."""
        if not (self._parts_of(node) and node.can_split):
            return False
        by_kernel = can_split(node.input.schema, node.keys)
        if node.partitioning is not None and not by_kernel:
            raise NotSupportedError(
                "PARTITION BY of keys that are looked up, or can fail, is not supported",
                position=node.partitioning.pos,
                hint="compute the key in a subquery: FROM (SELECT *, … AS key FROM s)",
            )
        return by_kernel

    def splits_join(self, node: SplitJoin) -> bool:
        return bool(self._parts_of(node)) and node.can_split

    def stage(
        self,
        builder: Builder,
        node: Physical,
        aggregate: WidAggregateExec,
        post: tuple[Step, ...],
    ) -> int:
        """Adds the partitioned aggregate. The nodes below the aggregate get a kernel of their own,
        which several workers run; the split operator evaluates the filters."""
        below, conditions = aggregate.input, list[Expr]()
        while isinstance(below, FilterExec) and builder.path_counts.get(self.nodes[below], 1) == 1:
            if not can_split(below.schema, aggregate.keys, [below.condition]):
                break
            conditions.insert(0, below.condition)
            below = below.input
        spec = StageSpec(
            below.schema,
            (),
            aggregate,
            post,
            node.schema,
            below.progressing,
            partitioned=True,
            with_order_columns=self.nodes[node] in self.in_order,
            top_n=builder.is_top_n(node, aggregate),
        )
        parts = self._parts_of(aggregate)
        types = [key.type for key in aggregate.keys]
        sides = [(below, aggregate.keys)]
        (split,) = self._splits(builder, aggregate, sides, types, parts, conditions)
        name = builder.name("aggregate")
        order = ORDER if spec.with_order_columns else ()
        schema = Schema((*node.schema, *order))
        instances = [builder.stage_operator(name, node, spec, schema) for _ in range(parts)]
        partitioned = PartitionedOperator(instances, len(order), _spread(aggregate, types, parts))
        self.made[self.nodes[aggregate]] = parts
        if self.nodes[aggregate] in self.measured:
            partitioned.why = self.measured[self.nodes[aggregate]].why
        index = builder.add(partitioned, schema, split_schema(below.schema))
        builder.connect(split, index, 0)
        return index

    def join(self, builder: Builder, node: SplitJoin) -> int:
        """Adds the partitioned join. With few partitions, each partition of an OOP join selects its
        own rows; otherwise split operators divide both inputs by key."""
        children, parts, split = node.inputs, self._parts_of(node), node.partitioning
        hashed = split is None or (split.scheme == "HASH" and not split.keys)
        sliced = not isinstance(node, OopJoinExec) or node.sliced
        types = [node.left.schema[a].type for a, _ in node.keys]
        looking = parts <= LOOKING and hashed and not sliced
        if looking:
            below = [builder.operator_below(child) for child in children]
            reads, rows = [child.schema for child in children], Rows.OWN
        else:
            sides = [(child, _keys_of(node, port)) for port, child in enumerate(children)]
            splits = self._splits(builder, node, sides, types, parts)
            reads, rows = [split_schema(child.schema) for child in children], Rows.LISTED
        ordered, workspace = self.nodes[node] in self.in_order, builder.workspace
        name = builder.name(node.word)
        instances: list[Operator]
        order: tuple[Field, ...]
        if isinstance(node, AsofJoinExec):
            order = ORDER if ordered else ()
            instances = [
                AsofJoinOperator(name, node, workspace, with_order_columns=ordered)
                for _ in range(parts)
            ]
        elif isinstance(node, RelationJoinExec):
            order = ORDER if ordered else ()
            instances = [
                RelationJoinOperator(name, node, workspace, numbered=ordered) for _ in range(parts)
            ]
        else:
            order = ORDER[-1:] if ordered else ()
            instances = [
                OopJoinOperator(name, node, workspace, rows, part, parts, with_order_column=ordered)
                for part in range(parts)
            ]
        spread = _spread(node, types, parts)
        partitioned = PartitionedOperator(instances, len(order), spread, split=not looking)
        self.made[self.nodes[node]] = parts
        index = builder.add(partitioned, Schema((*node.schema, *order)), *reads)
        for port, child in enumerate(children):
            if looking:
                builder.edge(child, below[port], index, port)
            else:
                builder.connect(splits[port], index, port)
        return index

    def splits_relation(self, node: Physical) -> bool:
        return bool(node.split_columns and self._parts_of(node))

    def relation(self, builder: Builder, node: Physical, make: Callable[[bool], Operator]) -> int:
        """Adds a partitioned operator over a relation. ``make`` makes an instance; its argument
        says whether the output has order columns."""
        (below,), parts, ordered = (
            node.inputs,
            self._parts_of(node),
            self.nodes[node] in self.in_order,
        )
        keys = tuple(_column(below, c) for c in node.split_columns)
        (split,) = self._splits(builder, node, [(below, keys)], [k.type for k in keys], parts)
        order = ORDER if ordered else ()
        instances = [make(ordered) for _ in range(parts)]
        spread = _spread(node, [k.type for k in keys], parts)
        partitioned = PartitionedOperator(instances, len(order), spread)
        self.made[self.nodes[node]] = parts
        schema = Schema((*node.schema, *order))
        index = builder.add(partitioned, schema, split_schema(below.schema))
        builder.connect(split, index, 0)
        return index

    def _parts_of(self, node: Physical) -> int:
        """The number of partitions of an operator; 0 if the operator is not split."""
        if self.exactly is not None:
            return self.exactly.get(self.nodes[node], 0)
        wanted = node.partitioning
        if self.parts is not None and wanted is not None:
            return wanted.parts
        if self.split is not None and self.nodes[node] not in self.split:
            return 0
        known = self.measured.get(self.nodes[node])
        return known.parts if known is not None else self.parts or 0

    def _splits(
        self,
        builder: Builder,
        node: Physical,
        sides: Sequence[tuple[Physical, tuple[Expr, ...]]],
        types: Sequence[DataType],
        parts: int,
        conditions: Sequence[Expr] = (),
    ) -> list[int]:
        """Adds the operators that split the inputs of ``node`` by key; returns their numbers."""
        spread = _spread(node, types, parts)
        chosen, ranged = spread.chosen, spread.ranged
        found, splits, places = [], [], []
        for side, (below, keys) in enumerate(sides):
            before = builder.operator_below(below)
            split = SplitOperator(
                builder.name("split"),
                below.schema,
                [keys[k] for k in chosen],
                [types[k] for k in chosen],
                parts,
                builder.workspace,
                conditions,
                ranged=ranged,
            )
            own = range(len(below.schema), len(below.schema) + len(LISTS))
            index = builder.add(
                split,
                split_schema(below.schema),
                below.schema,
                owned=frozenset(own),
                late_rows=True,
                rows=max(builder.workspace.morsel_rows + 1, 2 * parts + 2),
            )
            builder.edge(below, before, index, 0)
            self.splits[index] = self.nodes[node], f"{SPLIT} {side}"
            found.append(index)
            if ranged:
                splits.append(split)
                places += [(builder.order[s], c) for s, c in origins(below, keys[chosen[0]])]
        if ranged:
            self.bounds.append(Bounds(splits, places))
        return found


def _spread(node: Physical, types: Sequence[DataType], parts: int) -> Spread:
    """How the keys of a node, of these types, are spread."""
    wanted = node.partitioning
    chosen = tuple(wanted.keys if wanted is not None else ()) or tuple(range(len(types)))
    ranged = wanted is not None and wanted.scheme == "RANGE"
    return Spread(tuple(types), chosen, parts, ranged)


def _keys_of(node: SplitJoin, port: int) -> tuple[Expr, ...]:
    """The keys of an input."""
    return tuple(_column(node.inputs[port], key[port]) for key in node.keys)


def _column(node: Physical, column: int) -> Column:
    field = node.schema[column]
    return Column(column, field.name, field.type, field.nullable)
