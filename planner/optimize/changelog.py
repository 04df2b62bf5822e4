"""Which logical plans are changing relations, and the clock of their changes.

A window without SLIDE makes a stream a relation: a bag of rows at each instant. Filters and
projections of it are relations, and so are aggregates, DISTINCT, EXCEPT, INTERSECT and LIMIT over
it; ISTREAM, DSTREAM and RSTREAM make a stream again (Arasu, Babu and Widom: The CQL Continuous
Query Language, 2006).
"""

from __future__ import annotations

from cql.base.types import BIGINT, INT, INTERVAL, DataType, Kind
from cql.base.window import Window, WindowKind
from cql.planner.bind.scope import column_of
from cql.planner.functions.signature import strict
from cql.planner.nodes.expr import Column, Expr, Literal, columns_of, conjuncts, substitute
from cql.planner.nodes.logical import (
    ASOF,
    KEY_WINDOW,
    Aggregate,
    Bucket,
    Filter,
    Join,
    Limit,
    Logical,
    Project,
    RowNumber,
    SetOperation,
    Sort,
    SubqueryJoin,
    Union,
    Windowed,
    is_inner,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.optimize.join_condition import Sides, split_condition


def is_relation(node: Logical) -> bool:
    """Whether rows may also leave ``node``'s output."""
    if isinstance(node, Join):
        return _join_changes(node)
    if isinstance(node, SubqueryJoin):
        return is_relation(node.input) or not node.query.is_constant
    made = node.makes_relation
    return any(map(is_relation, node.inputs)) if made is None else made


def _join_changes(node: Join) -> bool:
    """Whether a join emits changes. An outer, semi or anti join changes its answer for a row when a
    partner comes, unless a band bounds the distance of the times of two streams."""
    if is_relation(node.left) or is_relation(node.right):
        return True
    sides = (node.left.progressing, node.right.progressing)
    if is_inner(node) or node.kind in ASOF or not all(sides):
        return False
    parts = [] if node.condition is None else conjuncts(node.condition)
    return split_condition(parts, [], Sides(len(node.left.schema), *map(tuple, sides))).band is None


def is_append_only(node: Logical) -> bool:
    """Whether a relation at the top of a query consists of streams under windows only: selected,
    projected, ordered, united, joined, and grouped by keys that close each group. Users then get
    its rows, each once."""
    match node:
        case Aggregate() if node.closing_pair is not None:
            return is_append_only(node.input)
        case Windowed() if node.window.change is not None:
            return False
        case Filter() | Project() | Sort() | Limit() | Windowed():
            return is_append_only(node.input)
        case Union():
            return all(is_append_only(i) for i in node.inputs)
        case SubqueryJoin():
            return node.query.is_constant and is_append_only(node.input)
        case Join():
            once = is_inner(node) or node.looks_up or not is_relation(node)
            return once and is_append_only(node.left) and is_append_only(node.right)
    return not is_relation(node)


def changes(node: Logical) -> bool:
    """Whether the output of ``node`` at the top of a query is a changelog: rows also leave."""
    return is_relation(node) and not is_append_only(node)


def as_relation(node: Logical, above: tuple[Expr, ...] = ()) -> Logical:
    """``node`` as a relation: a stream in it becomes the relation of all its rows so far, an update
    stream that of the last row of each key. ``above`` are the conditions that operators above apply
    to its rows."""
    match node:
        case Filter() | Project() if is_of_updates(node):
            return replace(node, input=as_relation(node.input))
        case Filter() if sees_relation(node.input) or not node.progressing:
            conditions = (*above, *conjuncts(node.condition))
            return replace(node, input=as_relation(node.input, conditions))
        case Project() if sees_relation(node.input) or not node.progressing:
            conditions = tuple(substitute(e, node.exprs) for e in above)
            return replace(node, input=as_relation(node.input, conditions))
        case Sort():
            return replace(node, input=as_relation(node.input))
        case Limit() if sees_relation(node.input):
            return replace(node, input=as_relation(node.input))
        case RowNumber() if node.window is None:
            return replace(node, input=as_relation(node.input))
        case Aggregate() if node.window is None:
            return replace(node, input=as_relation(node.input))
        case Union():
            return replace(node, inputs=tuple(as_relation(i) for i in node.inputs))
        case SetOperation():
            left, right = as_relation(node.left), as_relation(node.right)
            return replace(node, left=left, right=right)
        case SubqueryJoin():
            return replace(node, input=as_relation(node.input))
        case Windowed():
            return node
        case Join() if is_relation(node):
            return node
    first = next(iter(node.progressing), None)
    if first is None:  # a table: all its rows are there from the beginning
        return node
    key = node.update_key
    if key is not None:
        last = Window(WindowKind.ROWS, first, rows=1, partition_by=key)
        return Windowed(node, last, getattr(node, "pos", None))
    if node.is_bounded and _without_band(node, above):
        return as_side(node)
    return Windowed(node, Window(WindowKind.UNBOUNDED, first), getattr(node, "pos", None))


def is_of_updates(node: Logical) -> bool:
    """Whether ``node`` consists of rows of an update stream, selected and projected. As a relation
    it has those of the last rows of the keys: a row that is not selected replaces one that was."""
    if isinstance(node, Filter | Project):
        return is_of_updates(node.input)
    return node.update_key is not None and bool(node.progressing)


def is_last_rows(node: Logical) -> bool:
    """Whether ``node`` is an update stream as a relation: that of the last row of each key."""
    return isinstance(node, Windowed) and node.answer_key is not None


def as_side(node: Logical) -> Logical:
    """An input of a join of relations, as a relation: a stream becomes the relation of all its rows
    so far, a join becomes a join of relations."""
    match node:
        case Join() if node.kind not in ASOF:
            return replace(node, left=as_side(node.left), right=as_side(node.right))
        case Filter() | Project() if _is_join(node):
            return replace(node, input=as_side(node.input))
    return as_relation(node)


def _is_join(node: Logical) -> bool:
    if isinstance(node, Filter | Project):
        return _is_join(node.input)
    return isinstance(node, Join) and node.kind not in ASOF


def _without_band(node: Logical, above: tuple[Expr, ...]) -> bool:
    """Whether ``node`` contains a join of streams without a band. Its pairs may come at any time:
    none of its times progresses before both inputs have ended."""
    match node:
        case Filter():
            return _without_band(node.input, (*above, *conjuncts(node.condition)))
        case Project():
            return _without_band(node.input, tuple(substitute(e, node.exprs) for e in above))
        case Join() if node.kind not in ASOF:
            width = len(node.left.schema)
            parts = [] if node.condition is None else conjuncts(node.condition)
            parts = [*parts, *above]
            sides = Sides(width, tuple(node.left.progressing), tuple(node.right.progressing))
            if not node.looks_up and split_condition(parts, [], sides).band is None:
                return True
            of = tuple(tuple(sides.own(e) for e in parts if sides.of(e) == k) for k in (0, 1))
            return _without_band(node.left, of[0]) or _without_band(node.right, of[1])
    return False


def as_it_comes(node: Logical) -> Logical:
    """``node`` for EMIT CHANGES: a relation of the groups of its windows so far, instead of a
    stream of complete groups. Applies to the windows with bounds at the top of the plan; windows
    further down stay streams."""
    return _as_it_comes(node, frozenset(range(len(node.schema))))


def _as_it_comes(node: Logical, read: frozenset[int]) -> Logical:
    """``read``: the columns of ``node`` that are read above."""
    match node:
        case Filter() if _early(node.input):
            below = _as_it_comes(node.input, read | columns_of(node.condition))
            return replace(node, input=below)
        case Project() if _early(node.input):
            below = _as_it_comes(node.input, columns_of(*(node.exprs[k] for k in read)))
            return replace(node, input=below)
        case Limit() if _early(node.input):
            return replace(node, input=_as_it_comes(node.input, read))
        case Sort() if _early(node.input) and node.limit is None and not node.offset:
            below = _as_it_comes(node.input, read | columns_of(*(key.expr for key in node.keys)))
            return replace(node, input=below, window_end=None)
        case Aggregate() if _early(node):
            return _so_far(node, read)
    return as_relation(node)


def only_complete(node: Logical) -> str | None:
    """The part of ``node`` that has no result before a window closes, in words; else None."""
    match node:
        case Filter() | Project() | Limit():
            return only_complete(node.input)
        case Sort():
            limited = node.limit is not None or node.offset
            first = "the first rows of each window" if limited and _early(node.input) else None
            return first or only_complete(node.input)
        case Aggregate() if node.window is not None and node.window.kind is WindowKind.SESSION:
            return "a session window"
        case Aggregate() if KEY_WINDOW in node.input.schema.names:
            return "a window of PARTITION BY and ROWS with SLIDE"
    return None


def _early(node: Logical) -> bool:
    match node:
        case Filter() | Project() | Sort() | Limit():
            return _early(node.input)
        case Aggregate():
            return node.window is not None and node.window.has_number
    return False


def _so_far(node: Aggregate, read: frozenset[int]) -> Logical:
    """Each row counts in all windows that hold it, from its time on; a late row counts from its row
    watermark on, so that no instant that is over changes. A group stays as it is after its window
    has ended. The end of a window says where it begins, except for CUMULATE: it is the only key for
    the window, and bounds that are ``read`` are computed from it."""
    assert node.window is not None
    bucket = Bucket(node.input, node.window, node.pos)
    width, keys, calls = len(node.input.schema), len(node.keys), len(node.calls)
    own = [
        Column(width + k, f.name, f.type, False) for k, f in enumerate(bucket.schema.fields[width:])
    ]
    if node.window.kind is not WindowKind.CUMULATE:
        own = own[1:2]
    rows = Windowed(bucket, Window(WindowKind.EARLY, node.window.wa, end=width + 1), node.pos)
    names = (*node.names[:keys], *(c.name for c in own), *node.names[keys:])
    made = Aggregate(rows, None, (*node.keys, *own), node.calls, names, node.pos)
    columns = [column_of(made, k) for k in range(len(made.schema))]
    bounds: list[Expr] = [*columns[keys : keys + len(own)]]
    if len(own) == 1:
        (end,) = bounds
        assert node.window.range is not None
        start, time = (_before(end, units) for units in (node.window.range, 1))
        first = keys + calls
        bounds = [start if first in read else end, end, time if first + 2 in read else end]
    shown = (*columns[:keys], *columns[keys + len(own) :], *bounds)
    return Project(made, shown, node.schema.names)


def _before(time: Expr, units: int) -> Expr:
    """The time ``units`` of its type before ``time``."""
    if time.type.is_timestamp:
        return strict("sub", (time, Literal(units, INTERVAL)), time.type, None)
    if time.type.kind is Kind.DATE:
        return strict("date_sub", (time, Literal(units, INT)), time.type, None)
    return strict("sub", (time, Literal(units, time.type)), time.type, None)


def sees_relation(node: Logical) -> bool:
    """Whether some operator in ``node`` takes its input as a relation."""
    match node:
        case Aggregate():
            return node.window is None
        case Filter() | Project() | Limit():
            return sees_relation(node.input)
        case Sort() | SubqueryJoin():
            return True
        case RowNumber():
            return node.window is None
    return is_relation(node)


def clock(node: Logical) -> DataType | None:
    """The type of the instants at which the relation ``node`` changes; None if nothing in it
    progresses (a table, whose rows are there from the beginning).

    Raises ValueError if the times of its inputs differ in type."""
    match node:
        case Windowed() if node.window.wa is not None:
            return _counted(node.input.schema[node.window.wa].type)
        case Filter() | Project() | Sort() | Limit() if sees_relation(node):
            return clock(node.input)
        case Aggregate() | RowNumber() if node.window is None:
            return clock(node.input)
        case Union():
            return _common([clock(i) for i in node.inputs])
        case SetOperation():
            return _common([clock(node.left), clock(node.right)])
        case SubqueryJoin():
            return _common([clock(node.input), clock(node.query)])
        case Join():
            return clock(node.left) or clock(node.right)
    first = next(iter(node.progressing), None)
    return None if first is None else _counted(node.schema[first].type)


def _counted(type_: DataType) -> DataType:
    return BIGINT if type_.is_integer else type_


def _common(clocks: list[DataType | None]) -> DataType | None:
    known = [c for c in clocks if c is not None]
    if any(c != known[0] for c in known[1:]):
        raise ValueError(" and ".join(dict.fromkeys(map(str, known))))
    return known[0] if known else None
