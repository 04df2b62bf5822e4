"""Two levels: the first tasks aggregate their rows in part, the second ones merge the parts.

The rows of a part have equal keys, lie in the same windows, and find the same windows closed. So
the first tasks take rows in any order of time, each with the watermark before it, and a part counts
for the windows that are open to its rows. The parts in the order of their first rows are to the
second tasks what the rows are to a run over all rows: the groups of a window leave in the same
order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, DOUBLE, INT, Kind
from cql.base.window import Window, WindowOperator
from cql.planner.functions.coercion import cast
from cql.planner.functions.operators import arithmetic, nullif
from cql.planner.nodes.catalog import Relation
from cql.planner.nodes.expr import Call, Column, Expr, Literal
from cql.planner.nodes.logical import AggregateCall
from cql.planner.nodes.physical import (
    Awaited,
    FilterExec,
    Physical,
    ProjectExec,
    SourceExec,
    WidAggregateExec,
    sources,
    walk,
)
from cql.planner.placement.by_key import KINDS

#: The columns that a first task's source has behind those of its relation: the watermark before a
#: row, and the number of its cell (NULL: the row has no time in range). A cell holds the rows that
#: lie in the same windows and find the same ones closed.
BEFORE, CELL = "\0part_before", "\0part_cell"
HIDDEN = (Field(BEFORE, BIGINT, False), Field(CELL, BIGINT))
#: The column of a part with a time of its rows.
TIME = "\0part_time"
#: Digits of numbers whose sums fit in 64 bits, whatever the number of rows.
_EXACT_DIGITS = 10
_HALF = 32


@dataclass(frozen=True, slots=True)
class _Parted:
    """A call as the calls of its parts, and how a row's columns of merged parts give its value."""

    calls: tuple[AggregateCall, ...]
    call: AggregateCall

    def value(self, merged: tuple[Column, ...]) -> Expr:
        """The value of the call from the merged ``calls``."""
        call, pos = self.call, self.call.pos
        if call.fn == "avg":
            total, rows = merged
            divisor = cast(rows, DOUBLE, pos)
            if not call.nullable:
                return Call("div", (total, divisor), DOUBLE, False, pos)
            return arithmetic("div")((total, nullif((divisor, Literal(0.0, DOUBLE)), pos)), pos)
        if len(self.calls) == 1:
            return replace(merged[0], type=call.type, nullable=call.nullable)
        high, low = merged
        carried = _number("add", high, _number("shiftright", low, Literal(_HALF, INT)))
        above = _number("mul", carried, Literal(1 << _HALF, BIGINT))
        return _number("add", above, _number("bit_and", low, Literal((1 << _HALF) - 1, BIGINT)))


def _number(fn: str, a: Expr, b: Expr) -> Call:
    return Call(fn, (a, b), BIGINT, a.nullable, a.pos)


def _parted(call: AggregateCall) -> _Parted | None:
    """``call`` in parts, None if it has none."""
    if call.distinct or call.function is not None or call.holistic or call.by_time:
        return None
    if call.fn in ("count", "count_if", "min", "max", "bool_and", "bool_or"):
        return _Parted((call,), call)
    if call.fn not in ("sum", "avg"):
        return None
    (arg,) = call.args
    if call.fn == "avg":
        if arg.type.kind is Kind.DECIMAL:
            return None
        total = replace(call, fn="sum", args=(cast(arg, DOUBLE, call.pos),))
        return _Parted((total, replace(call, fn="count", type=BIGINT, nullable=False)), call)
    exact = arg.type.kind is Kind.DECIMAL and arg.type.precision <= _EXACT_DIGITS
    if exact or arg.type.is_fraction or (arg.type.is_integer and arg.type.storage != "int64"):
        return _Parted((call,), call)
    if not arg.type.is_integer:
        return None
    # The sums of the upper and of the lower halves fit in 64 bits, even if a part's sum does not.
    high = Call("shiftright", (arg, Literal(_HALF, INT)), BIGINT, arg.nullable, call.pos)
    low = Call("bit_and", (arg, Literal((1 << _HALF) - 1, BIGINT)), BIGINT, arg.nullable, call.pos)
    return _Parted((replace(call, args=(high,)), replace(call, args=(low,))), call)


_COUNT = AggregateCall("count", (), BIGINT, False)


@dataclass(frozen=True, slots=True)
class TwoLevels:
    """A plan whose windowed aggregate ``node`` can be shared in two levels.

    A part has the keys of ``node``, the number of its cell, the watermark before its first row, and
    the values of ``calls``, the first of which counts its rows."""

    root: Physical
    node: WidAggregateExec
    parted: tuple[_Parted, ...]

    @property
    def source(self) -> SourceExec:
        (found,) = sources(self.node)
        return found

    @property
    def window(self) -> Window:
        assert self.node.window is not None
        return self.node.window

    @property
    def calls(self) -> tuple[AggregateCall, ...]:
        return tuple(dict.fromkeys((_COUNT, *(c for made in self.parted for c in made.calls))))

    def first(self, relation: Relation) -> WidAggregateExec:
        """The plan of the first tasks, over ``relation``: that of the source without its stream,
        with the columns HIDDEN. It gives the parts, in the order of their first rows."""
        below = _widened(self.node.input, relation)
        width = len(below.schema)
        before, cell = (
            Column(width - 2 + n, f.name, f.type, f.nullable) for n, f in enumerate(HIDDEN)
        )
        least = AggregateCall("min", (before,), BIGINT, False)
        calls = (*self.calls, least)
        names = (
            *self.node.names[: len(self.node.keys)],
            CELL,
            *map(_name, range(len(self.calls))),
            BEFORE,
        )
        return replace(
            _plain(self.node),
            input=below,
            window=None,
            keys=(*self.node.keys, cell),
            calls=calls,
            names=names,
        )

    @property
    def schema(self) -> Schema:
        """The columns of the parts that the second tasks receive: the keys, TIME, the calls."""
        keys = zip(self.node.names, self.node.keys, strict=False)
        fields = [Field(name, key.type, key.nullable) for name, key in keys]
        fields.append(Field(TIME, self.node.input.schema[self._wa].type, False))
        fields += [Field(_name(n), c.type, c.nullable) for n, c in enumerate(self.calls)]
        return Schema(tuple(fields))

    @property
    def _wa(self) -> int:
        assert self.window.wa is not None
        return self.window.wa

    def second(self, relation: Relation) -> Physical:
        """The plan of the second tasks, over a ``relation`` of parts, whose stream has the
        watermark of TIME."""
        source, fields, count = self.source, self.schema, len(self.node.keys)
        ((time, _),) = source.progress
        awaited = (Awaited(count, source.awaited_on(time)),)
        every = tuple(range(len(fields)))
        below = SourceExec(relation, every, awaited=awaited, alias=source.alias)
        columns = [Column(n, f.name, f.type, f.nullable) for n, f in enumerate(fields)]
        merges = tuple(_merge(call, columns[count + 1 + n]) for n, call in enumerate(self.calls))
        merged = replace(
            _plain(self.node),
            input=below,
            window=replace(self.window, wa=count),
            keys=tuple(columns[:count]),
            calls=merges,
            names=tuple(f.name for n, f in enumerate(fields) if n != count),
        )
        shown = [Column(n, f.name, f.type, f.nullable) for n, f in enumerate(merged.schema)]
        places = {call: count + n for n, call in enumerate(self.calls)}
        values = [
            made.value(tuple(shown[places[call]] for call in made.calls)) for made in self.parted
        ]
        exprs = (*shown[:count], *values, *shown[count + len(self.calls) :])
        made = ProjectExec(merged, tuple(exprs), tuple(f.name for f in self.node.schema))
        return _replaced(self.root, self.node, made)


def two_levels(root: Physical, node: Physical) -> TwoLevels | None:
    """The two levels of a plan whose tasks can take ranges of the windows of ``node``; None if it
    has none: for an aggregate without parts, with values that tasks do not send, or with more than
    filters and projections below."""
    if not isinstance(node, WidAggregateExec) or node.window is None:
        return None
    parted = [_parted(call) for call in node.calls]
    kinds = {typed.type.kind for typed in (*node.keys, *node.calls)}
    passing = all(isinstance(n, SourceExec | FilterExec | ProjectExec) for n in walk(node.input))
    if not (passing and kinds <= KINDS) or None in parted:
        return None
    return TwoLevels(root, node, tuple(made for made in parted if made is not None))


def _name(n: int) -> str:
    return f"\0part{n}"


def _plain(node: WidAggregateExec) -> WidAggregateExec:
    return replace(
        node, pane=None, operator=WindowOperator.WID, flush=None, adaptive=False, partitioning=None
    )


def _merge(call: AggregateCall, part: Column) -> AggregateCall:
    fn = "sum" if call.fn in ("count", "count_if") else call.fn
    return AggregateCall(fn, (part,), call.type, call.nullable, pos=call.pos)


def _widened(node: Physical, relation: Relation) -> Physical:
    """``node`` with the columns HIDDEN behind its own."""
    if isinstance(node, SourceExec):
        width = len(node.relation.schema)
        columns = (*node.columns, *range(width, width + len(HIDDEN)))
        return replace(node, relation=relation, columns=columns, awaited=None)
    (below,) = node.inputs
    made = _widened(below, relation)
    if isinstance(node, ProjectExec):
        width = len(below.schema)
        more = [Column(width + n, f.name, f.type, f.nullable) for n, f in enumerate(HIDDEN)]
        names = (*node.names, *(f.name for f in HIDDEN))
        return replace(node, input=made, exprs=(*node.exprs, *more), names=names)
    return node.with_inputs((made,))


def _replaced(root: Physical, old: Physical, new: Physical) -> Physical:
    if root is old:
        return new
    return root.with_inputs(tuple(_replaced(child, old, new) for child in root.inputs))
