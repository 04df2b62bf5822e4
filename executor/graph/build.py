"""From a physical plan to running operators; decides which nodes share a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, assert_never

from cql.base.model import Schema
from cql.base.recursion import deep_stack
from cql.base.uninterruptible import load_module
from cql.base.window import WindowKind
from cql.executor.codegen.expressions.emit import host_sites
from cql.executor.graph.graph import SINK, Edge, Graph
from cql.executor.graph.keys import operator_keys
from cql.executor.graph.partition import Partitions
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import Operator
from cql.executor.operators.flow.dupelim import DupelimOperator
from cql.executor.operators.flow.late_output import LateRowsOperator
from cql.executor.operators.flow.limit import LimitOperator
from cql.executor.operators.flow.replicas import ReplicatedOperator
from cql.executor.operators.flow.union import UnionOperator
from cql.executor.operators.joins.asof_join import AsofJoinOperator
from cql.executor.operators.joins.lookup_join import TableJoinOperator
from cql.executor.operators.joins.oop_join import OopJoinOperator
from cql.executor.operators.joins.relation_join import RelationJoinOperator
from cql.executor.operators.joins.subquery_lookup import LookupOperator
from cql.executor.operators.joins.unnest import UnnestOperator
from cql.executor.operators.order.bounded_disorder import SlackOperator
from cql.executor.operators.order.merge import MergeOperator
from cql.executor.operators.relations.change_aggregate import ChangeAggregateOperator
from cql.executor.operators.relations.keyed_rows import KeyedRowsOperator
from cql.executor.operators.relations.ranking import RankingOperator
from cql.executor.operators.relations.set_operations import WeightsOperator
from cql.executor.operators.relations.stream_of_relation import stream_operator
from cql.executor.operators.relations.subquery_join import SubqueryJoinOperator
from cql.executor.operators.relations.window_relation import RelationOperator, relation_operator
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.operators.stage.spec import StageSpec, Step
from cql.executor.operators.workspace import Workspace
from cql.executor.run.partition_sizing import Measured
from cql.executor.state.store import BUFFERS
from cql.planner.nodes.expr import Column, Expr, walk
from cql.planner.nodes.physical import (
    ArrivalExec,
    AsofJoinExec,
    BucketExec,
    ChangeAggregateExec,
    DupelimExec,
    FilterExec,
    KeyWindowsExec,
    LateRowsExec,
    LimitExec,
    LookupExec,
    MergeUnionExec,
    NumberExec,
    OnTimeExec,
    OopJoinExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    RelationExec,
    RelationJoinExec,
    RowNumberExec,
    SetOperationExec,
    SlackExec,
    SortExec,
    SourceExec,
    StreamExec,
    SubqueryJoinExec,
    TableJoinExec,
    TopExec,
    UnionExec,
    UnnestExec,
    ValuesExec,
    WidAggregateExec,
    WindowJoinExec,
    WindowOperator,
    relations,
    sources,
)
from cql.planner.nodes.watermarks import progress_origin, value_origin
from cql.planner.placement.cost import SplitJoin, SplitRelation
from cql.planner.placement.order_sensitivity import in_order

#: Nodes with one input that keep rows.
Rows: TypeAlias = (
    SortExec
    | KeyWindowsExec
    | RelationExec
    | ChangeAggregateExec
    | SetOperationExec
    | SubqueryJoinExec
    | TopExec
    | RowNumberExec
    | StreamExec
)
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
    none, whatever PARTITION BY says. ``split`` has the ids of the nodes to split; None splits all.
    ``measured`` overrides the number of partitions per node, by node id. ``exactly`` replaces all
    this: it has the number of partitions of each node that is split, by node id."""
    path_counts = _path_counts(roots)
    # Each sink has an operator to itself, because the sink takes the morsel's buffers away.
    own = [_identity(r) if path_counts[id(r)] > 1 or isinstance(r, _FED) else r for r in roots]
    unasked = frozenset(() if late_rows else map(id, own))
    partitions = Partitions(parts, split, measured or {}, in_order(own), exactly)
    builder = _Builder(unasked, workspace, fuse, nulls, Graph(), path_counts, partitions)
    feeds = sources(*roots)
    builder.entries = [[] for _ in feeds] or [[]]
    builder.order = {id(s): k for k, s in enumerate(feeds)}
    for root in own:
        last = builder.node(root)
        builder.graph.edges[last].append(Edge(SINK, 0))
        builder.graph.sinks.append(last)
    builder.enter(feeds)
    graph = builder.graph
    graph.bounds, graph.partitions = partitions.bounds, partitions.made
    roles = {index: (node, "") for node, index in builder.built.items()}
    roles |= {
        builder.built[id(node)]: (id(root), f"copy {query}")
        for query, (root, node) in enumerate(zip(roots, own, strict=True))
        if node is not root
    }
    graph.keys = operator_keys(roots, graph, roles | partitions.splits | builder.repeats)
    return graph


#: Nodes without an output morsel that a sink could take.
_FED = SourceExec | ValuesExec | UnionExec | LimitExec | SlackExec | LookupExec


def _path_counts(roots: Sequence[Physical]) -> dict[int, int]:
    """By the id of a node: the number of paths from the roots to the node. Several operators may
    read a node with several paths."""
    order: list[Physical] = []  # each node before its inputs
    entered: set[int] = set()

    def visit(node: Physical) -> None:
        if id(node) not in entered:
            entered.add(id(node))
            for child in node.inputs:
                visit(child)
            order.append(node)

    for root in roots:
        visit(root)
    found = dict.fromkeys(entered, 0)
    for root in roots:
        found[id(root)] += 1
    for node in reversed(order):
        for child in node.inputs:
            found[id(child)] += found[id(node)]
    return found


@dataclass(slots=True)
class _Builder:
    unasked: frozenset[int]  # ids of the nodes whose late-row records no consumer reads
    workspace: Workspace
    fuse: bool
    nulls: list[set[int]]
    graph: Graph
    path_counts: dict[int, int]
    partitions: Partitions
    order: dict[int, int] = field(default_factory=dict)
    entries: list[list[Edge]] = field(default_factory=list)  # of each feed
    # of a window over a stream: its operators, one for each partition
    windows: dict[int, list[RelationOperator]] = field(default_factory=dict)
    built: dict[int, int] = field(default_factory=dict)
    # the sort, by its input node's id
    top_n_sorts: dict[int, SortExec] = field(default_factory=dict)
    keyed_watermarks: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    # of the operators that repeat a feed: the feed's id, and no role
    repeats: dict[int, tuple[int, str]] = field(default_factory=dict)

    def enter(self, feeds: Sequence[SourceExec]) -> None:
        """Connects the feeds. A feed with several readers goes through an operator that repeats
        it."""
        for feed, edges in zip(feeds, self.entries, strict=False):
            if len(edges) < 2:
                continue
            node = _identity(feed)
            stream, live = feed.relation.stream, feed.progressing
            by = feed.schema.find(stream.by) if stream is not None and stream.by else None
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
            self.repeats[index] = id(feed), ""
            self.graph.edges[index] += edges
            edges[:] = [Edge(index, 0)]
        self.graph.entries = [edges[0] if edges else None for edges in self.entries]

    def node(self, node: Physical) -> int:
        """The operator that gives the output of ``node``; built at the first call."""
        known = self.built.get(id(node))
        if known is None:
            known = self.built[id(node)] = self._built(node)
        return known

    def _built(self, node: Physical) -> int:
        match node:
            case UnionExec():
                return self._union(node)
            case MergeUnionExec() | PunctuatedSortExec():
                return self._merge(node)
            case SlackExec():
                below = self.operator_below(node.input)
                slack = SlackOperator(self.name("slack"), node, self.workspace)
                index = self.add(slack, node.schema, node.schema, owned=frozenset(), late_rows=True)
                self.edge(node.input, below, index, 0)
                return index
            case DupelimExec():
                below = self.operator_below(node.input)
                dupelim = DupelimOperator(self.name("dupelim"), node, self.workspace)
                index = self.add(dupelim, node.schema, node.schema, late_rows=True)
                self.edge(node.input, below, index, 0)
                return index
            case LateRowsExec():
                below = self.operator_below(node.input)
                late = LateRowsOperator(self.name("laterows"), node, self.workspace)
                index = self.add(late, node.schema, node.schema, owned=frozenset())
                self.edge(node.input, below, index, 0)
                return index
            case LimitExec():
                below = self.operator_below(node.input)
                limit = LimitOperator(self.name("limit"), node)
                index = self.add(limit, node.schema, node.schema, owned=frozenset(), late_rows=True)
                self.edge(node.input, below, index, 0)
                return index
            case LookupExec():
                below, query = (self.operator_below(child) for child in node.inputs)
                lookup = LookupOperator(self.name("lookup"), node, self.workspace)
                answer = frozenset((node.width,))
                index = self.add(
                    lookup, node.schema, node.input.schema, owned=answer, late_rows=True
                )
                self.edge(node.input, below, index, 0)
                self.edge(node.query, query, index, 1)
                return index
            case UnnestExec():
                below = self.operator_below(node.input)
                unnest = UnnestOperator(self.name("unnest"), node, self.workspace)
                index = self.add(unnest, node.schema, node.input.schema, late_rows=True)
                self.edge(node.input, below, index, 0)
                return index
            case (
                OopJoinExec()
                | RelationJoinExec()
                | TableJoinExec()
                | AsofJoinExec()
                | WindowJoinExec()
            ):
                return self._join(node)
            case (
                SortExec()
                | KeyWindowsExec()
                | RelationExec()
                | ChangeAggregateExec()
                | SetOperationExec()
                | SubqueryJoinExec()
                | TopExec()
                | RowNumberExec()
                | StreamExec()
            ):
                if isinstance(node, SortExec) and node.limit and not node.number:
                    self.top_n_sorts[id(node.input)] = node
                if isinstance(node, SplitRelation) and self.partitions.splits_relation(node):
                    make = partial(self._rows_operator, node)
                    return self.partitions.relation(self, node, make)
                below = self.operator_below(node.input)
                operator = self._rows_operator(node)
                index = self.add(operator, node.schema, node.input.schema)
                self.edge(node.input, below, index, 0)
                return index
            case SourceExec() | ValuesExec():
                raise AssertionError("a source is fed, not built")
            case FilterExec() | ProjectExec() | BucketExec() | WidAggregateExec() | NumberExec():
                return self._stage(node)
            case OnTimeExec() | ArrivalExec():
                return self._stage(node)
            case _:
                assert_never(node)

    def _rows_operator(self, node: Rows, numbered: bool = False) -> Operator:
        """The operator of a node. ``numbered``: as a partition whose output has order columns."""
        name = self.name(node.word)
        match node:
            case SortExec():
                load_module("cql.executor.operators.order.sort")
                from cql.executor.operators.order.sort import SortOperator

                return SortOperator(name, node, self.workspace)
            case KeyWindowsExec():
                load_module("cql.executor.operators.windows.key_windows")
                from cql.executor.operators.windows.key_windows import KeyWindowsOperator

                return KeyWindowsOperator(name, node, self.workspace)
            case RelationExec():
                window = relation_operator(name, node, self.workspace, numbered=numbered)
                self.windows.setdefault(id(node), []).append(window)
                return window
            case ChangeAggregateExec(method="weights") | SetOperationExec():
                return WeightsOperator(name, node, self.workspace, numbered=numbered)
            case ChangeAggregateExec():
                windows = [w for r in relations(node.input) for w in self.windows[id(r)]]
                return ChangeAggregateOperator(
                    name, node, self.workspace, windows, numbered=numbered
                )
            case SubqueryJoinExec():
                return SubqueryJoinOperator(name, node, self.workspace, numbered=numbered)
            case RowNumberExec() if node.keeps_one_row:
                return KeyedRowsOperator(name, node, self.workspace, numbered=numbered)
            case RowNumberExec() | TopExec():
                return RankingOperator(name, node, self.workspace)
            case StreamExec():
                return stream_operator(name, node, self.workspace)

    def _join(
        self,
        node: OopJoinExec | RelationJoinExec | TableJoinExec | AsofJoinExec | WindowJoinExec,
    ) -> int:
        if isinstance(node, SplitJoin) and self.partitions.splits_join(node):
            return self.partitions.join(self, node)
        children = node.inputs
        ports = [self.operator_below(child) for child in children]
        operator: Operator
        match node:
            case OopJoinExec():
                operator = OopJoinOperator(self.name("join"), node, self.workspace)
            case RelationJoinExec():
                operator = RelationJoinOperator(self.name("relationjoin"), node, self.workspace)
            case TableJoinExec():
                operator = TableJoinOperator(self.name("tablejoin"), node, self.workspace)
            case AsofJoinExec():
                operator = AsofJoinOperator(self.name("asofjoin"), node, self.workspace)
            case WindowJoinExec():
                load_module("cql.executor.operators.joins.in_order_join")
                from cql.executor.operators.joins.in_order_join import WindowJoinOperator

                operator = WindowJoinOperator(self.name("windowjoin"), node, self.workspace)
        reads = [child.schema for child in children]
        late = isinstance(node, TableJoinExec)  # other joins drop late rows
        index = self.add(operator, node.schema, *reads, late_rows=late)
        for port, (child, below) in enumerate(zip(children, ports, strict=True)):
            self.edge(child, below, index, port)
        return index

    def _union(self, node: UnionExec) -> int:
        if node.keyed_watermark is not None:
            for child in node.inputs:
                self._pass_on(child, *node.keyed_watermark)
        ports = [self.operator_below(child) for child in node.inputs]
        operator = UnionOperator(
            self.name("union"),
            node.schema,
            _inputs(node),
            node.progressing,
            self.workspace,
            node.keyed_watermark,
        )
        index = self.add(operator, node.schema, node.schema, owned=frozenset())
        for port, (child, below) in enumerate(zip(node.inputs, ports, strict=True)):
            self.edge(child, below, index, port)
        return index

    def _pass_on(self, node: Physical, attribute: int, by: int) -> None:
        """Routes per-value punctuation of the sources through the stages from ``node`` down."""
        while isinstance(node, FilterExec | ProjectExec):
            self.keyed_watermarks[id(node)] = ((attribute, by),)
            if isinstance(node, ProjectExec):
                time = progress_origin(node.exprs[attribute], node.input.progressing)
                value = value_origin(node.exprs[by])
                if time is None or value is None:
                    del self.keyed_watermarks[id(node)]
                    return
                attribute, by = time, value
            node = node.input

    def _merge(self, node: MergeUnionExec | PunctuatedSortExec) -> int:
        children = node.inputs
        ports = [self.operator_below(child) for child in children]
        workspace = self.workspace
        if isinstance(node, MergeUnionExec):
            merge = MergeOperator(
                self.name("merge"),
                node.schema,
                len(ports),
                node.order,
                workspace,
                refuses_null=node.refuses_null,
                names=_inputs(node),
            )
        else:
            merge = MergeOperator(
                self.name("sort"),
                node.schema,
                1,
                node.order,
                workspace,
                keys=node.keys,
                refuses_null=True,
            )
        index = self.add(merge, node.schema, node.schema)
        for port, (child, below) in enumerate(zip(children, ports, strict=True)):
            self.edge(child, below, index, port)
        return index

    def _stage(self, node: Physical) -> int:
        """One stage: all nodes from ``node`` down that fit into one kernel."""
        post: list[Step] = []
        cursor = node
        while isinstance(cursor, FilterExec | ProjectExec | BucketExec | OnTimeExec | ArrivalExec):
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
        alone = not post or (self._can_follow(post) and self.path_counts.get(id(cursor), 1) == 1)
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
            carry_late_rows=aggregate is None and id(node) not in self.unasked,
            top_n=top_n,
            keyed_watermarks=self.keyed_watermarks.get(id(node), ()),
        )
        kind = "aggregate" if aggregate is not None else node.word
        operator = self.stage_operator(self.name(kind), node, spec, node.schema)
        owned = frozenset(range(len(node.schema))) - frozenset(operator.code.by_ref)
        shared = self.partitions.parts is not None and operator.can_replicate
        index = self.add(
            ReplicatedOperator(operator) if shared else operator,
            node.schema,
            cursor.schema,
            owned=owned,
            late_rows=spec.carry_late_rows,
        )
        if spec.assume_valid:
            self.graph.fed[index] = {c: self._places(cursor, c) for c in spec.assume_valid}
        self.edge(cursor, below, index, 0)
        return index

    def is_top_n(self, node: Physical, aggregate: WidAggregateExec) -> bool:
        """Whether a sort with LIMIT above ``node`` needs only the first results of each window, so
        that the others need not leave the operator. Text sort keys exclude the pushdown: computed
        texts have no order inside kernels."""
        sort = self.top_n_sorts.get(id(node))
        if sort is None or self.path_counts.get(id(node), 1) > 1 or aggregate.adaptive:
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
            sort = self.top_n_sorts[id(node)]
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
            places = self._places(node, c)
            if f.nullable and places and not any(p[1] in self.nulls[p[0]] for p in places):
                found.add(c)
        return frozenset(found)

    def _places(self, node: Physical, column: int) -> list[tuple[int, int]]:
        match node:
            case SourceExec():
                return [(self.order[id(node)], column)]
            case ProjectExec(in_blocks=True):
                return [(self.order[id(node.input)], column)]
            case SlackExec() | LateRowsExec() | LimitExec():
                return self._places(node.input, column)
            case UnionExec():
                parts = [self._places(child, column) for child in node.inputs]
                return [p for part in parts for p in part] if all(parts) else []
            case ValuesExec() | FilterExec() | ProjectExec() | BucketExec() | MergeUnionExec():
                return []
            case PunctuatedSortExec() | WidAggregateExec() | SortExec() | NumberExec():
                return []
            case KeyWindowsExec() | OnTimeExec() | DupelimExec() | ArrivalExec() | RelationExec():
                return []
            case SubqueryJoinExec() | LookupExec() | OopJoinExec() | TableJoinExec() | UnnestExec():
                return []
            case RelationJoinExec() | AsofJoinExec() | WindowJoinExec() | ChangeAggregateExec():
                return []
            case SetOperationExec() | TopExec() | RowNumberExec() | StreamExec():
                return []
            case _:
                assert_never(node)

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
            self.entries[self.order.get(id(source), 0)].append(Edge(index, port))
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
