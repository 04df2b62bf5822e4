"""From a physical plan to running operators; decides which nodes share a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from cql.base.model import Schema
from cql.base.recursion import deep_stack
from cql.base.uninterruptible import load_module
from cql.base.window import WindowKind, WindowOperator
from cql.executor.codegen.expressions.emit import host_sites
from cql.executor.graph.graph import SINK, Edge, Graph
from cql.executor.graph.keys import operator_keys
from cql.executor.graph.operators import PASS_LATE_ROWS, Site, operator_of
from cql.executor.graph.partition import Partitions, SplitJoin
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import Operator
from cql.executor.operators.flow.replicas import ReplicatedOperator
from cql.executor.operators.flow.union import UnionOperator
from cql.executor.operators.order.merge import MergeOperator
from cql.executor.operators.relations.window_relation import RelationOperator
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.operators.stage.spec import StageSpec, Step
from cql.executor.operators.workspace import Workspace
from cql.executor.run.partition_sizing import Measured
from cql.executor.state.store import BUFFERS
from cql.planner.nodes.expr import Column, Expr, walk
from cql.planner.nodes.physical import (
    ArrivalExec,
    BucketExec,
    FilterExec,
    MergeUnionExec,
    NumberExec,
    OnTimeExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    RelationExec,
    SortExec,
    SourceExec,
    UnionExec,
    ValuesExec,
    WidAggregateExec,
    relations,
    sources,
)
from cql.planner.nodes.physical.numbers import NodeNumbers, SourceNumbers
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import progress_origin, value_origin
from cql.planner.placement.order_sensitivity import in_order

#: Steps that look at one row alone.
_BY_ROW = FilterExec | ProjectExec | BucketExec | OnTimeExec | ArrivalExec
#: The number of expression nodes above which a step gets its own kernel: compile time grows faster
#: than kernel size.
MOST_NODES = 250


@deep_stack()
def build(
    roots: Sequence[Physical],
    workspace: Workspace,
    *,
    fuse: bool,
    nulls: list[set[int]],
    late_rows: bool = False,
    parts: int | None = None,
    split: frozenset[int] | None = None,
    measured: Mapping[int, Measured] | None = None,
    exactly: Mapping[int, int] | None = None,
) -> Graph:
    """The operators of one or several plans; common subplans are built once.

    ``fuse`` off makes every node an operator of its own. ``nulls`` has, per feed, the source
    columns that are known to hold NULLs. ``late_rows`` says whether the consumer of the results
    needs the late-row records (a sink does not). ``parts`` is the number of partitions of operators
    with keys, unless PARTITION BY names one; 0 splits only where PARTITION BY does; None splits
    none, whatever PARTITION BY says. ``split`` has the numbers of the nodes to split
    (``NodeNumbers`` of ``roots``); None splits all. ``measured`` overrides the number of partitions
    per node, by its number. ``exactly`` replaces all this: it has the number of partitions of each
    node that is split, by its number."""
    nodes = NodeNumbers(*roots)
    path_counts = _path_counts(roots, nodes)
    # Each sink has an operator to itself, because the sink takes the morsel's buffers away.
    shared = (path_counts[nodes[root]] > 1 for root in roots)
    own = [_identity(r) if s or not _fills(r) else r for r, s in zip(roots, shared, strict=True)]
    nodes = NodeNumbers(*roots, *own)  # the new nodes come last
    unasked = frozenset([] if late_rows else [nodes[root] for root in own])
    ordered = in_order(own, nodes)
    partitions = Partitions(nodes, parts, split, measured or {}, ordered, exactly)
    order = SourceNumbers(*roots)
    builder = _Builder(
        nodes, unasked, workspace, fuse, nulls, Graph(), path_counts, partitions, order
    )
    feeds = sources(*roots)
    builder.entries = [[] for _ in feeds] or [[]]
    for root in own:
        last = builder.node(root)
        builder.graph.edges[last].append(Edge(SINK, 0))
        builder.graph.sinks.append(last)
    builder.enter(feeds)
    graph = builder.graph
    graph.bounds, graph.partitions = partitions.bounds, partitions.made
    roles = {index: (node, "") for node, index in builder.built.items()}
    roles |= {
        builder.built[nodes[node]]: (nodes[root], f"copy {query}")
        for query, (root, node) in enumerate(zip(roots, own, strict=True))
        if node is not root
    }
    graph.keys = operator_keys(nodes, graph, roles | partitions.splits | builder.repeats)
    return graph


def _fills(node: Physical) -> bool:
    """Whether an operator fills all columns of ``node``, so that a sink can take its morsels."""
    return not isinstance(node, SourceExec | ValuesExec) and node.own_columns is None


def _path_counts(roots: Sequence[Physical], nodes: NodeNumbers) -> dict[int, int]:
    """By the number of a node: the number of paths from the roots to the node. Several operators
    may read a node with several paths."""
    order: list[Physical] = []  # each node before its inputs
    entered: set[int] = set()

    def visit(node: Physical) -> None:
        if nodes[node] not in entered:
            entered.add(nodes[node])
            for child in node.inputs:
                visit(child)
            order.append(node)

    for root in roots:
        visit(root)
    found = dict.fromkeys(entered, 0)
    for root in roots:
        found[nodes[root]] += 1
    for node in reversed(order):
        for child in node.inputs:
            found[nodes[child]] += found[nodes[node]]
    return found


@dataclass(slots=True)
class _Builder:
    nodes: NodeNumbers  # what is known of a node is kept by its number
    unasked: frozenset[int]  # the nodes whose late-row records no consumer reads
    workspace: Workspace
    fuse: bool
    nulls: list[set[int]]
    graph: Graph
    path_counts: dict[int, int]
    partitions: Partitions
    order: SourceNumbers  # the feeds of sources
    entries: list[list[Edge]] = field(default_factory=list)  # of each feed
    # of a window over a stream: its operators, one for each partition
    windows: dict[int, list[RelationOperator]] = field(default_factory=dict)
    built: dict[int, int] = field(default_factory=dict)
    # the sort whose rows are among the first ones, by their input
    top_n_sorts: dict[int, SortExec] = field(default_factory=dict)
    keyed_watermarks: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    # of the operators that repeat a feed: the feed's node, and no role
    repeats: dict[int, tuple[int, str]] = field(default_factory=dict)

    def enter(self, feeds: Sequence[SourceExec]) -> None:
        """Connects the feeds. A feed with several readers goes through an operator that repeats
        it."""
        for feed, edges in zip(feeds, self.entries, strict=False):
            if len(edges) < 2:
                continue
            node = _identity(feed)
            live = feed.progressing
            by = None if feed.by is None else feed.schema.find(feed.by)
            spec = StageSpec(
                feed.schema,
                (node,),
                None,
                (),
                feed.schema,
                live,
                carry_late_rows=True,
                keyed_watermarks=() if by is None else tuple((column, by) for column in live),
            )
            repeat = StageOperator(self.name("source"), spec, self.workspace)
            repeat.allocate_host()
            index = self.add(repeat, feed.schema, feed.schema, owned=frozenset(), late_rows=True)
            self.repeats[index] = self.nodes[feed], ""
            self.graph.edges[index] += edges
            edges[:] = [Edge(index, 0)]
        self.graph.entries = [edges[0] if edges else None for edges in self.entries]

    def node(self, node: Physical) -> int:
        """The operator that gives the output of ``node``; built at the first call."""
        known = self.built.get(self.nodes[node])
        if known is None:
            known = self.built[self.nodes[node]] = self._built(node)
        return known

    def _built(self, node: Physical) -> int:
        if isinstance(node, UnionExec):
            return self._union(node)
        if isinstance(node, MergeUnionExec | PunctuatedSortExec):
            return self._merge(node)
        if isinstance(node, Step | WidAggregateExec):
            return self._stage(node)
        if isinstance(node, SortExec) and node.limit and not node.number:
            self._push_down_top_n(node)
        if isinstance(node, SplitJoin) and self.partitions.splits_join(node):
            return self.partitions.join(self, node)
        if self.partitions.splits_relation(node):
            return self.partitions.relation(self, node, partial(self._operator, node))
        ports = [self.operator_below(child) for child in node.inputs]
        operator = self._shared(self._operator(node))
        late_rows = isinstance(node, PASS_LATE_ROWS)
        return self._over(node, ports, operator, late_rows=late_rows)

    def _operator(self, node: Physical, numbered: bool = False) -> Operator:
        """The operator of a node. ``numbered``: as a partition whose output has order columns."""

        def windows() -> list[RelationOperator]:
            below = (r for child in node.inputs for r in relations(child))
            return [window for r in below for window in self.windows[self.nodes[r]]]

        made = operator_of(node, Site(self.name(node.word), self.workspace, windows, numbered))
        if isinstance(node, RelationExec):
            self.windows.setdefault(self.nodes[node], []).append(cast("RelationOperator", made))
        return made

    def _shared(self, operator: Operator) -> Operator:
        """The operator, or its instances if several workers may run such."""
        shared = self.partitions.parts is not None and operator.can_replicate
        return ReplicatedOperator([operator]) if shared else operator

    def _over(
        self,
        node: Physical,
        ports: Sequence[int | None],
        operator: Operator,
        *,
        late_rows: bool = False,
    ) -> int:
        """Adds the operator of ``node``, over the operators ``ports`` of its inputs."""
        reads = [child.schema for child in node.inputs]
        index = self.add(operator, node.schema, *reads, owned=node.own_columns, late_rows=late_rows)
        for port, (child, below) in enumerate(zip(node.inputs, ports, strict=True)):
            self.edge(child, below, index, port)
        return index

    def _union(self, node: UnionExec) -> int:
        if node.keyed_watermark is not None:
            for child in node.inputs:
                self._pass_on(child, *node.keyed_watermark)
        ports = [self.operator_below(child) for child in node.inputs]
        operator = UnionOperator(
            self.name(node.word),
            node.schema,
            _inputs(node),
            node.progressing,
            self.workspace,
            node.keyed_watermark,
        )
        return self._over(node, ports, operator)

    def _pass_on(self, node: Physical, attribute: int, by: int) -> None:
        """Routes per-value punctuation of the sources through the stages from ``node`` down."""
        while isinstance(node, FilterExec | ProjectExec):
            self.keyed_watermarks[self.nodes[node]] = ((attribute, by),)
            if isinstance(node, ProjectExec):
                time = progress_origin(node.exprs[attribute], node.input.progressing)
                value = value_origin(node.exprs[by])
                if time is None or value is None:
                    del self.keyed_watermarks[self.nodes[node]]
                    return
                attribute, by = time, value
            node = node.input

    def _merge(self, node: MergeUnionExec | PunctuatedSortExec) -> int:
        ports = [self.operator_below(child) for child in node.inputs]
        workspace = self.workspace
        if isinstance(node, MergeUnionExec):
            merge = MergeOperator(
                self.name(node.word),
                node.schema,
                len(ports),
                node.order,
                workspace,
                refuses_null=node.refuses_null,
                names=_inputs(node),
            )
        else:
            merge = MergeOperator(
                self.name(node.word),
                node.schema,
                1,
                node.order,
                workspace,
                keys=node.keys,
                refuses_null=True,
            )
        return self._over(node, ports, merge)

    def _stage(self, node: Physical) -> int:
        """One stage: all nodes from ``node`` down that fit into one kernel."""
        post: list[Step] = []
        cursor = node
        while isinstance(cursor, _BY_ROW):
            if _is_fed(cursor):
                break
            if post and (not self.fuse or _size([*post, cursor]) > MOST_NODES):
                break
            # A row's lateness for its window is known only after the row has left the Bucket.
            if isinstance(cursor, BucketExec) and any(
                isinstance(s, BucketExec | OnTimeExec | ArrivalExec) for s in post
            ):
                break
            post.insert(0, cursor)
            cursor = cursor.input
        if isinstance(cursor, NumberExec) and (not post or self._can_number(post)):
            post.insert(0, cursor)
            cursor = cursor.input
        aggregate: WidAggregateExec | None = None
        steps = post
        alone = not post or (
            self._can_follow(post) and self.path_counts.get(self.nodes[cursor], 1) == 1
        )
        if isinstance(cursor, WidAggregateExec) and alone:
            aggregate, cursor = cursor, cursor.input
            steps = []
            together = aggregate.by is not None  # the aggregate reads per-value punctuation
            if self.partitions.splits_stage(aggregate):
                return self.partitions.stage(self, node, aggregate, tuple(post))
            while (self.fuse or together) and isinstance(cursor, FilterExec | ProjectExec):
                if _is_fed(cursor):
                    break
                if not together and steps and _size([*steps, cursor]) > MOST_NODES:
                    break
                steps.insert(0, cursor)
                cursor = cursor.input
            if isinstance(cursor, NumberExec) and self._can_number([*steps, aggregate]):
                steps.insert(0, cursor)
                cursor = cursor.input
        else:
            post = []
        below = self.operator_below(cursor)
        top_n = aggregate is not None and self.is_top_n(node, aggregate)
        spec = StageSpec(
            cursor.schema,
            tuple(steps),
            aggregate,
            tuple(post) if aggregate else (),
            node.schema,
            cursor.progressing,
            self._assumed(cursor),
            carry_late_rows=aggregate is None and self.nodes[node] not in self.unasked,
            top_n=top_n,
            keyed_watermarks=self.keyed_watermarks.get(self.nodes[node], ()),
        )
        kind = "aggregate" if aggregate is not None else node.word
        operator = self.stage_operator(self.name(kind), node, spec, node.schema)
        owned = frozenset(range(len(node.schema))) - frozenset(operator.code.by_ref)
        index = self.add(
            self._shared(operator),
            node.schema,
            cursor.schema,
            owned=owned,
            late_rows=spec.carry_late_rows,
        )
        if spec.assume_valid:
            self.graph.fed[index] = {c: self._places(cursor, c) for c in spec.assume_valid}
        self.edge(cursor, below, index, 0)
        return index

    def _push_down_top_n(self, sort: SortExec) -> None:
        """Notes a sort with LIMIT for its input, and for what lies below projections that pass the
        sort keys on unchanged: fusion decides which of these nodes an aggregate outputs."""
        while True:
            below = sort.input
            self.top_n_sorts[self.nodes[below]] = sort
            if not isinstance(below, ProjectExec):
                return
            exprs = [below.exprs[cast("Column", key.expr).index] for key in sort.keys]
            if not all(isinstance(expr, Column) for expr in exprs):
                return
            keys = tuple(replace(k, expr=e) for k, e in zip(sort.keys, exprs, strict=True))
            sort = replace(sort, input=below.input, keys=keys)

    def is_top_n(self, node: Physical, aggregate: WidAggregateExec) -> bool:
        """Whether a sort with LIMIT above ``node`` needs only the first results of each window, so
        that the others need not leave the operator. Text sort keys exclude the pushdown: computed
        texts have no order inside kernels."""
        sort = self.top_n_sorts.get(self.nodes[node])
        if sort is None or self.path_counts.get(self.nodes[node], 1) > 1 or aggregate.adaptive:
            return False
        plain = type(aggregate) is WidAggregateExec and aggregate.by is None
        plain &= aggregate.window is None or aggregate.window.kind is WindowKind.SLIDING
        few = 2 * (sort.offset + (sort.limit or 0)) <= self.workspace.morsel_rows
        kinds = (WindowOperator.WID, WindowOperator.PANES)
        texts = any(key.expr.type.is_text for key in sort.keys)
        return plain and few and aggregate.operator in kinds and not texts

    def stage_operator(
        self, name: str, node: Physical, spec: StageSpec, schema: Schema
    ) -> StageOperator:
        operator = _kind_of(spec)(name, spec, self.workspace)
        operator.allocate_host()
        if spec.top_n:
            sort = self.top_n_sorts[self.nodes[node]]
            operator.push_down_top_n(schema, sort.keys, sort.offset + (sort.limit or 0))
        return operator

    def _can_follow(self, post: list[Step]) -> bool:
        """Whether the steps can run in the loop that flushes a window."""
        if any(
            isinstance(step, BucketExec | OnTimeExec | ArrivalExec | NumberExec) for step in post
        ):
            return False
        return self.fuse and not any(host_sites(e) for step in post for e in _exprs(step))

    def _can_number(self, above: Sequence[Step | WidAggregateExec]) -> bool:
        """Whether the steps above a Number can share its kernel. They cannot if the host computes
        columns for them: the host runs before rows are numbered."""
        return self.fuse and not any(host_sites(e) for step in above for e in _exprs(step))

    def _assumed(self, node: Physical) -> frozenset[int]:
        """Nullable columns that come unchanged from source columns without a known NULL."""
        found = set()
        for c, f in enumerate(node.schema):
            places = self._places(node, c) if f.nullable else []
            if places and not any(p[1] in self.nulls[p[0]] for p in places):
                found.add(c)
        return frozenset(found)

    def _places(self, node: Physical, column: int) -> list[tuple[int, int]]:
        """The (feed, source column) pairs that a column comes from, without a copy between."""
        if isinstance(node, SourceExec):
            return [(self.order[node], column)]
        if isinstance(node, ProjectExec) and node.in_blocks:
            return self._places(node.input, column)
        if node.own_columns != frozenset():
            return []
        parts = [self._places(child, column) for child in node.inputs]
        return [p for part in parts for p in part] if all(parts) else []

    # -- wiring ----------------------------------------------------------------------------------

    def name(self, kind: str) -> str:
        """The name of the next operator."""
        return f"{kind}#{len(self.graph.operators)}"

    def add(
        self,
        operator: Operator,
        schema: Schema,
        *reads: Schema,
        owned: frozenset[int] | None = None,
        late_rows: bool = False,
        rows: int | None = None,
    ) -> int:
        rows = rows or self.workspace.morsel_rows
        ones = int(self.workspace.ones.ctypes.data)
        morsel = Morsel.allocate(schema, rows, ones=ones, owned=owned, late_rows=late_rows)
        self.workspace.resize(0, morsel.nbytes, BUFFERS)
        self.graph.operators.append(operator)
        self.graph.morsels.append(morsel)
        self.graph.schemas.append(schema)
        self.graph.inputs.append(reads)
        self.graph.edges.append([])
        return len(self.graph.operators) - 1

    def operator_below(self, node: Physical) -> int | None:
        return None if _is_fed(node) else self.node(node)

    def edge(self, child: Physical, below: int | None, index: int, port: int) -> None:
        if isinstance(child, ValuesExec):
            self.graph.constants.append((child, Edge(index, port)))
        elif below is None:
            source = child.input if isinstance(child, ProjectExec) else child
            assert isinstance(source, SourceExec)
            self.entries[self.order[source]].append(Edge(index, port))
        else:
            self.connect(below, index, port)

    def connect(self, below: int, index: int, port: int) -> None:
        self.graph.edges[below].append(Edge(index, port))


def _kind_of(spec: StageSpec) -> type[StageOperator]:
    window = spec.aggregate.window if spec.aggregate is not None else None
    if spec.aggregate is None or window is None:
        return StageOperator
    if window.kind is WindowKind.SESSION:
        load_module("cql.executor.operators.stage.session_windows")
        from cql.executor.operators.stage.session_windows import SessionOperator

        return SessionOperator
    if spec.aggregate.by is not None:
        load_module("cql.executor.operators.stage.partitioned_windows")
        from cql.executor.operators.stage.partitioned_windows import PartitionedWatermarkOperator

        return PartitionedWatermarkOperator
    if spec.aggregate.operator is WindowOperator.TWO_LEVEL:
        from cql.executor.operators.stage.two_level_windows import TwoLevelOperator

        return TwoLevelOperator
    return StageOperator


def _is_fed(node: Physical) -> bool:
    """Whether the rows of ``node`` come from outside of the operators."""
    return isinstance(node, SourceExec | ValuesExec) or (
        isinstance(node, ProjectExec) and node.in_blocks
    )


def _identity(node: Physical) -> ProjectExec:
    columns = tuple(Column(i, f.name, f.type, f.nullable) for i, f in enumerate(node.schema))
    return ProjectExec(node, columns, node.schema.names)


def _inputs(node: UnionExec | MergeUnionExec) -> tuple[str, ...]:
    """The source names behind each port."""
    return tuple(", ".join(s.name for s in sources(child)) for child in node.inputs)


def _exprs(step: Step | WidAggregateExec) -> tuple[Expr, ...]:
    match step:
        case WidAggregateExec():
            given = (e for c in step.calls for e in (*c.args, c.where) if e is not None)
            return (*step.keys, *given)
        case FilterExec():
            return (step.condition,)
        case ProjectExec():
            return tuple(e for e in step.exprs if not isinstance(e, Column))
        case BucketExec() | OnTimeExec() | ArrivalExec() | NumberExec():
            return ()


def _size(steps: Sequence[Step]) -> int:
    return sum(1 for step in steps for e in _exprs(step) for _ in walk(e))
