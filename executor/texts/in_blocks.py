"""Which functions over texts a source computes, block by block, before the plan reads the rows.

Their arguments are columns of the source, so that the texts need no code of the dictionary, and
their results are columns behind those of the source. They are computed for all rows of a block,
also for those that a filter or a branch of CASE leaves out; a row that fails in the block fails
only where the plan reads the result (``CHECKED``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cql.base.recursion import deep_stack
from cql.base.types import BOOLEAN
from cql.executor.codegen.expressions.emit import failure_of
from cql.executor.codegen.expressions.text import is_text_node
from cql.executor.strings.encoding import analyse
from cql.executor.texts.functions.table import BLOCKS
from cql.planner.functions.folding import can_fail
from cql.planner.nodes.expr import (
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    children,
    columns_of,
    rebuild,
    walk,
)
from cql.planner.nodes.logical import AggregateCall
from cql.planner.nodes.physical import (
    FilterExec,
    Physical,
    ProjectExec,
    SourceExec,
    WidAggregateExec,
    sources,
)
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.nodes.rewrite import replace

#: The function of a result that may have failed, (value, whether it failed), by the kind of error.
CHECKED = {"cast": "checked_cast", "value": "checked_value"}
#: The function that tells whether another expression fails.
FAILS = "fails"
_Top: TypeAlias = ProjectExec | WidAggregateExec


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """``roots`` with ``ProjectExec.in_blocks`` above the sources that compute. ``replaced``: of
    each node that is not the same the new node, by the number of the old one."""

    roots: tuple[Physical, ...]
    replaced: Mapping[int, Physical]


@deep_stack()
def in_blocks(roots: Sequence[Physical]) -> BlockColumns:
    """Moves functions over texts into the sources. A source that several operators read, or whose
    rows wait in an update queue, computes none; functions of texts that have codes anyway stay
    (tables by code)."""
    nodes = NodeNumbers(*roots)
    if not any(is_text_node(e) for node in nodes for e in _computed(node)):
        return BlockColumns(tuple(roots), {})
    readers = Counter(nodes[child] for node in nodes for child in node.inputs)
    first = _Rewriter(nodes, readers)
    made = tuple(map(first.node, roots))
    if not first.replaced:
        return BlockColumns(tuple(roots), {})
    order = sources(*made)
    coded: dict[int, frozenset[int]] = {}
    for place, column in analyse(made).encoded:
        source = nodes[order[place]]
        coded[source] = coded.get(source, frozenset()) | {column}
    second = _Rewriter(nodes, readers, coded)
    return BlockColumns(tuple(map(second.node, roots)), second.replaced)


def _computed(node: Physical) -> list[Expr]:
    """What a filter, a projection or an aggregate computes, with all expressions in it, except
    columns and literals. (A list of its own: most plans have no texts, and only ask this.)"""
    waiting: list[Expr] = []
    match node:
        case FilterExec():
            waiting = [node.condition]
        case ProjectExec():
            waiting = [*node.exprs]
        case WidAggregateExec():
            waiting = [*node.keys]
            for call in node.calls:
                waiting += call.args if call.where is None else (*call.args, call.where)
    found: list[Expr] = []
    while waiting:
        expr = waiting.pop()
        if not isinstance(expr, Column | Literal):
            found.append(expr)
            waiting += children(expr)
    return found


@dataclass(slots=True)
class _Rewriter:
    """Rewrites the nodes of plans, each once; what is known of a node is kept by its number."""

    nodes: NodeNumbers
    readers: Counter[int]
    coded: Mapping[int, frozenset[int]] = field(default_factory=dict)  # columns, by source
    replaced: dict[int, Physical] = field(default_factory=dict)
    _made: dict[int, Physical] = field(default_factory=dict)

    def node(self, node: Physical) -> Physical:
        number = self.nodes[node]
        if number not in self._made:
            made = self._made[number] = self._rewritten(node)
            if made is not node:
                self.replaced[number] = made
        return self._made[number]

    def _rewritten(self, node: Physical) -> Physical:
        if isinstance(node, SourceExec):
            return node
        top = node if isinstance(node, _Top) else None
        filters: list[FilterExec] = []
        below: Physical = node if top is None else top.input
        while isinstance(below, FilterExec) and self._is_read_once(below):
            filters.insert(0, below)
            below = below.input
        if isinstance(below, SourceExec) and below.updates is None and self._is_read_once(below):
            texts = _Texts(below, self.coded.get(self.nodes[below], frozenset()))
            moved = _moved(top, filters, texts)
            if moved is not None:
                return moved
        return node.with_inputs(tuple(map(self.node, node.inputs)))

    def _is_read_once(self, node: Physical) -> bool:
        return self.readers[self.nodes[node]] <= 1


def _moved(top: _Top | None, filters: Sequence[FilterExec], texts: _Texts) -> Physical | None:
    """``top`` over ``filters`` over the source with its texts in blocks; None if there are none.
    Without ``top`` a projection passes the columns of the source."""
    conditions = [texts.of(f.condition) for f in filters]
    exprs = texts.columns()
    keys: tuple[Expr, ...] = ()
    calls: tuple[AggregateCall, ...] = ()
    if isinstance(top, ProjectExec):
        exprs = tuple(map(texts.of, top.exprs))
    elif top is not None:
        keys, calls = tuple(map(texts.of, top.keys)), tuple(map(texts.of_call, top.calls))
    if not texts.found:
        return None
    below: Physical = texts.project()
    for filter_, condition in zip(filters, conditions, strict=True):
        below = replace(filter_, input=below, condition=condition)
    if top is None:
        return ProjectExec(below, exprs, texts.source.schema.names)
    if isinstance(top, ProjectExec):
        return replace(top, input=below, exprs=exprs)
    return replace(top, input=below, keys=keys, calls=calls)


@dataclass(slots=True)
class _Texts:
    """What a source computes; ``coded`` are its columns whose texts have codes anyway."""

    source: SourceExec
    coded: frozenset[int]
    found: list[Expr] = field(default_factory=list)

    def columns(self) -> tuple[Expr, ...]:
        """The columns of the source."""
        fields = enumerate(self.source.schema)
        return tuple(Column(i, f.name, f.type, f.nullable) for i, f in fields)

    def project(self) -> ProjectExec:
        names = (*self.source.schema.names, *(f"_text{k}" for k in range(len(self.found))))
        return ProjectExec(self.source, (*self.columns(), *self.found), names, in_blocks=True)

    def of(self, expr: Expr) -> Expr:
        """``expr`` with columns in place of what the source computes. What has an inner part that
        can fail stays: Python computes it again, to say why it failed."""
        if is_text_node(expr) and any(map(can_fail, children(expr))):
            return expr
        if is_text_node(expr) and _is_in_blocks(expr):
            texts = {c for c in columns_of(expr) if self.source.schema[c].type.is_coded}
            if not texts or not texts <= self.coded:
                return self._column(expr)
        return rebuild(expr, self.of)

    def of_call(self, call: AggregateCall) -> AggregateCall:
        where = call.where and self.of(call.where)
        return replace(call, args=tuple(map(self.of, call.args)), where=where)

    def _column(self, expr: Expr) -> Expr:
        if not can_fail(expr):
            return self._place(expr, expr.nullable)
        value = self._place(expr, nullable=True)
        failed = self._place(Call(FAILS, (expr,), BOOLEAN, False), nullable=False)
        site = failure_of(expr)
        fn, args = CHECKED[site.kind], (value, failed)
        return Call(fn, args, expr.type, expr.nullable, expr.pos, word=site.message)

    def _place(self, expr: Expr, nullable: bool) -> Column:
        if expr not in self.found:
            self.found.append(expr)
        k = self.found.index(expr)
        return Column(len(self.source.schema) + k, f"_text{k}", expr.type, nullable)


def _is_in_blocks(expr: Expr) -> bool:
    """Whether all of a text function are functions of blocks, over columns and literals, at least
    one column."""
    nodes = list(walk(expr))
    return any(isinstance(e, Column) for e in nodes) and all(map(_is_known, nodes))


def _is_known(expr: Expr) -> bool:
    match expr:
        case Column() | Literal():
            return True
        case Cast():
            return "cast" in BLOCKS and is_text_node(expr)
        case Call(function=None):
            return expr.fn in BLOCKS and is_text_node(expr)
    return False


def unwrapped(expr: Expr) -> tuple[Expr, bool]:
    """The expression that a column of a source stands for, and whether the column tells that it
    fails."""
    match expr:
        case Call(fn="fails", args=(inner,)):
            return inner, True
    return expr, False
