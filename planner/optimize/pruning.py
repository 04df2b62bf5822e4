"""Column pruning: every node emits only the columns that a node above reads.

``SELECT a FROM (SELECT a, b, c FROM s) WHERE b > 1`` reads a and b of s, not c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from cql.base.types import DataType
from cql.base.window import Window, WindowKind
from cql.planner.bind.scope import column_of
from cql.planner.functions import registry
from cql.planner.nodes.expr import Column, Expr, columns_of, rebuild
from cql.planner.nodes.logical import (
    Aggregate,
    AggregateCall,
    Bucket,
    Filter,
    Join,
    Limit,
    Logical,
    Number,
    Process,
    Project,
    Rewindow,
    RowNumber,
    Running,
    Scan,
    Sort,
    SubqueryJoin,
    Sync,
    Union,
    Unnest,
    Unsupported,
    Watermark,
    Windowed,
)
from cql.planner.nodes.rewrite import replace

#: The new place of each kept column of a node.
Places: TypeAlias = Mapping[int, int]


def prune_columns(plan: Logical) -> Logical:
    """``plan`` with the same output, and without columns below that no node reads. A window keeps
    its attribute and ROWS the column that orders rows; an expression that can fail also stays."""
    return exactly(plan, range(len(plan.schema)))


def exactly(node: Logical, wanted: Iterable[int]) -> Logical:
    """``node`` pruned to exactly the columns ``wanted``, in this order."""
    columns = list(wanted)
    pruned, places = _pruned(node, frozenset(columns))
    now = [places[c] for c in columns]
    if now == list(range(len(pruned.schema))):
        return pruned
    exprs = tuple(column_of(pruned, k) for k in now)
    return Project(pruned, exprs, tuple(node.schema[c].name for c in columns))


def _pruned(node: Logical, wanted: frozenset[int]) -> tuple[Logical, Places]:
    """``node`` with at least the columns ``wanted``, and the places of its columns."""
    match node:
        case Scan():
            return _scan(node, wanted)
        case Unsupported():
            return node, _same(node)
        case Filter():
            below, places = _pruned(node.input, wanted | columns_of(node.condition))
            return replace(node, input=below, condition=moved(node.condition, places)), places
        case Project():
            return _project(node, wanted)
        case Union():
            return _union(node, wanted)
        case Aggregate():
            return _aggregate(node), _same(node)
        case Bucket():
            return _bucket(node, wanted)
        case Unnest():
            return _unnest(node, wanted)
        case Windowed():
            return _windowed(node, wanted)
        case Watermark():
            below, places = _pruned(node.input, wanted | {node.column})
            return replace(node, input=below, column=places[node.column]), places
        case Number():
            return _number(node, wanted)
        case Running():
            return _running(node, wanted)
        case Process():
            return _process(node, wanted)
        case Rewindow():
            return _rewindow(node, wanted)
        case Sync():
            return _sync(node, wanted)
        case Sort():
            return _sort(node, wanted)
        case Limit():
            below, places = _pruned(node.input, wanted)
            return replace(node, input=below), places
        case RowNumber():
            return _row_number(node, wanted)
        case Join():
            return _join(node, wanted)
        case SubqueryJoin():
            return _subquery_join(node, wanted)
    # Whole rows count: set operations and differences of two instants compare them.
    return node.map_inputs(prune_columns), _same(node)


def _same(node: Logical) -> Places:
    return {k: k for k in range(len(node.schema))}


def moved(expr: Expr, places: Places) -> Expr:
    """``expr`` with its columns at their new places."""
    if isinstance(expr, Column):
        return replace(expr, index=places[expr.index])
    return rebuild(expr, lambda e: moved(e, places))


def _scan(node: Scan, wanted: frozenset[int]) -> tuple[Logical, Places]:
    kept = sorted(wanted | node.queued_by)
    if not kept and node.columns:
        # rows must still be counted: the narrowest column carries them
        kept = [min(range(len(node.columns)), key=lambda k: (_width(node.schema[k].type), k))]
    places = {k: at for at, k in enumerate(kept)}
    return replace(node, columns=tuple(node.columns[k] for k in kept)), places


_WIDTHS = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "float32": 4}


def _width(type_: DataType) -> int:
    return 16 if type_.is_coded else _WIDTHS.get(type_.storage, 8)


def _project(node: Project, wanted: frozenset[int]) -> tuple[Logical, Places]:
    kept = [k for k, e in enumerate(node.exprs) if k in wanted or registry.can_fail(e)]
    if not kept and node.exprs:
        kept = [0]
    below, places = _pruned(node.input, columns_of(*(node.exprs[k] for k in kept)))
    exprs = tuple(moved(node.exprs[k], places) for k in kept)
    names = tuple(node.names[k] for k in kept)
    return replace(node, input=below, exprs=exprs, names=names), {
        k: at for at, k in enumerate(kept)
    }


def _union(node: Union, wanted: frozenset[int]) -> tuple[Logical, Places]:
    kept = sorted(wanted) or [0]
    inputs = tuple(exactly(i, kept) for i in node.inputs)
    return replace(node, inputs=inputs), {k: at for at, k in enumerate(kept)}


def _inputs_of(call: AggregateCall) -> tuple[Expr, ...]:
    return call.args if call.where is None else (*call.args, call.where)


def _aggregate(node: Aggregate) -> Logical:
    read = columns_of(*node.keys, *(e for call in node.calls for e in _inputs_of(call)))
    read |= _window_reads(node.input, node.window) | _late(node)
    below, places = _pruned(node.input, read)
    if isinstance(below, Join) and node.window is not None:  # drops columns that only it compares
        kept = sorted(read)
        below, places = exactly(node.input, kept), {c: k for k, c in enumerate(kept)}
    return replace(
        node,
        input=below,
        window=None if node.window is None else _window(node.window, places),
        keys=tuple(moved(k, places) for k in node.keys),
        calls=tuple(_call(c, places) for c in node.calls),
    )


def _call(call: AggregateCall, places: Places) -> AggregateCall:
    where = None if call.where is None else moved(call.where, places)
    return replace(call, args=tuple(moved(a, places) for a in call.args), where=where)


def _late(node: Aggregate | Windowed) -> frozenset[int]:
    """The columns that LATE OUTPUT needs: all, because it keeps whole rows."""
    return frozenset(range(len(node.input.schema))) if node.late_output else frozenset()


def _window_reads(below: Logical, window: Window | None) -> frozenset[int]:
    if window is None:
        return frozenset()
    read = set(window.partition_by)
    if window.end is not None:
        read.add(window.end)
    if window.change is not None:
        read.add(window.change)
    if window.wa is not None:
        read.add(window.wa)
    elif window.kind is not WindowKind.UNBOUNDED:
        read |= set(below.progressing)
    return frozenset(read)


def _window(window: Window, places: Places) -> Window:
    wa = None if window.wa is None else places[window.wa]
    end = None if window.end is None else places[window.end]
    partition = tuple(places[k] for k in window.partition_by)
    change = None if window.change is None else places[window.change]
    return replace(window, wa=wa, end=end, partition_by=partition, change=change)


def _bucket(node: Bucket, wanted: frozenset[int]) -> tuple[Logical, Places]:
    width = len(node.input.schema)
    reads = _window_reads(node.input, node.window)
    below, places = _pruned(node.input, frozenset(k for k in wanted if k < width) | reads)
    new_width, count = len(below.schema), len(node.schema) - width
    added = {width + k: new_width + k for k in range(count)}
    return replace(node, input=below, window=_window(node.window, places)), {**places, **added}


def _unnest(node: Unnest, wanted: frozenset[int]) -> tuple[Logical, Places]:
    width = len(node.input.schema)
    below, places = _pruned(node.input, (wanted - {width}) | columns_of(node.array))
    made = replace(node, input=below, array=moved(node.array, places))
    return made, {**places, width: len(below.schema)}


def _windowed(node: Windowed, wanted: frozenset[int]) -> tuple[Logical, Places]:
    read = wanted | _window_reads(node.input, node.window) | _late(node)
    below, places = _pruned(node.input, read)
    return replace(node, input=below, window=_window(node.window, places)), places


def _sort(node: Sort, wanted: frozenset[int]) -> tuple[Logical, Places]:
    read = wanted | columns_of(*(k.expr for k in node.keys))
    if node.window_end is not None:
        read |= {node.window_end}
    below, places = _pruned(node.input, read)
    keys = tuple(replace(k, expr=moved(k.expr, places)) for k in node.keys)
    end = None if node.window_end is None else places[node.window_end]
    return replace(node, input=below, keys=keys, window_end=end), places


def _number(node: Number, wanted: frozenset[int]) -> tuple[Logical, Places]:
    width = len(node.input.schema)
    made = range(width, len(node.schema))
    windows = node.windows
    keys = frozenset(windows.by) if windows is not None else frozenset()
    below, places = _pruned(node.input, (wanted - {*made}) | keys)
    if windows is not None:
        windows = replace(windows, by=tuple(places[c] for c in windows.by))
    moved = {c: len(below.schema) + c - width for c in made}
    return replace(node, input=below, windows=windows), {**places, **moved}


def _running(node: Running, wanted: frozenset[int]) -> tuple[Logical, Places]:
    width = len(node.input.schema)
    kept = [
        k
        for k, call in enumerate(node.calls)
        if width + k in wanted or registry.can_fail(call.value)
    ]
    read = columns_of(*(node.calls[k].value for k in kept))
    timed = frozenset(() if node.time is None or not kept else (node.time,))
    below, places = _pruned(node.input, frozenset(c for c in wanted if c < width) | read | timed)
    if not kept:
        return below, places
    moved_calls = (replace(c, value=moved(c.value, places)) for c in (node.calls[k] for k in kept))
    made = replace(
        node,
        input=below,
        calls=tuple(moved_calls),
        names=tuple(node.names[k] for k in kept),
        time=None if node.time is None else places[node.time],
    )
    return made, {**places, **{width + k: len(below.schema) + at for at, k in enumerate(kept)}}


def _process(node: Process, wanted: frozenset[int]) -> tuple[Logical, Places]:
    """All columns that the operator sees stay: nobody knows which of them it reads."""
    width = len(node.input.schema)
    kept = [k for k in range(len(node.columns)) if k in wanted] or [0]
    passed = {node.columns[k] for k in kept if node.columns[k] < width}
    below, places = _pruned(node.input, frozenset(node.given) | passed)
    new_width = len(below.schema)
    columns = (node.columns[k] for k in kept)
    made = replace(
        node,
        input=below,
        given=tuple(places[c] for c in node.given),
        columns=tuple(places[c] if c < width else c - width + new_width for c in columns),
        partition=tuple(places[c] for c in node.partition),
    )
    return made, {k: at for at, k in enumerate(kept)}


def _rewindow(node: Rewindow, wanted: frozenset[int]) -> tuple[Logical, Places]:
    width = len(node.channels)
    kept = [k for k in range(width) if k in wanted] or [0]
    read = frozenset(node.channels[k] for k in kept)
    below, places = _pruned(node.input, read if node.time is None else read | {node.time})
    channels = tuple(places[node.channels[k]] for k in kept)
    time = None if node.time is None else places[node.time]
    bounds = {k: len(kept) + k - width for k in range(width, len(node.schema))}
    made = replace(node, input=below, channels=channels, time=time)
    return made, {k: at for at, k in enumerate(kept)} | bounds


def _sync(node: Sync, wanted: frozenset[int]) -> tuple[Logical, Places]:
    width = len(node.left.schema)
    read = frozenset(c for c in wanted if c < width) | columns_of(node.begin, node.end)
    left, places = _pruned(node.left, read)
    kept = [k for k in range(len(node.channels)) if width + k in wanted] or [0]
    given = frozenset(node.channels[k] for k in kept)
    right, behind = _pruned(node.right, given if node.time is None else given | {node.time})
    made = replace(
        node,
        left=left,
        right=right,
        channels=tuple(behind[node.channels[k]] for k in kept),
        time=None if node.time is None else behind[node.time],
        begin=moved(node.begin, places),
        end=moved(node.end, places),
    )
    return made, {**places, **{width + k: len(left.schema) + at for at, k in enumerate(kept)}}


def _row_number(node: RowNumber, wanted: frozenset[int]) -> tuple[Logical, Places]:
    width = len(node.input.schema)
    read = columns_of(*(k.expr for k in node.keys)) | set(node.partition)
    below, places = _pruned(node.input, (wanted - {width}) | read)
    moved_node = replace(
        node,
        input=below,
        partition=tuple(places[k] for k in node.partition),
        keys=tuple(replace(k, expr=moved(k.expr, places)) for k in node.keys),
        window=None if node.window is None else places[node.window],
    )
    return moved_node, {**places, width: len(below.schema)}


def _subquery_join(node: SubqueryJoin, wanted: frozenset[int]) -> tuple[Logical, Places]:
    width = len(node.input.schema)
    tested = (*node.keys, *(() if node.condition is None else (node.condition,)))
    read = frozenset(c for c in wanted | columns_of(*tested) if c < width)
    below, places = _pruned(node.input, read)
    behind = {width + k: len(below.schema) + k for k in range(max(1, len(node.query.schema)))}
    both = {**places, **behind}
    made = replace(
        node,
        input=below,
        query=prune_columns(node.query),
        keys=tuple(moved(key, places) for key in node.keys),
        condition=None if node.condition is None else moved(node.condition, both),
    )
    return made, {**places, width: len(below.schema)}


def _join(node: Join, wanted: frozenset[int]) -> tuple[Logical, Places]:
    condition = frozenset[int]() if node.condition is None else columns_of(node.condition)
    width = len(node.left.schema)
    # A late row has no partners, whatever the condition: the times stay.
    live = {*node.left.progressing, *(width + c for c in node.right.progressing)}
    if node.looks_up:
        live = set()
    split = node.partitioning
    read = wanted | condition | live | set(() if split is None else split.keys)
    left, left_places = _pruned(node.left, frozenset(k for k in read if k < width))
    right, right_places = _pruned(node.right, frozenset(k - width for k in read if k >= width))
    places = dict(left_places)
    places |= {width + k: len(left.schema) + at for k, at in right_places.items()}
    made = replace(node, left=left, right=right)
    if node.condition is not None:
        made = replace(made, condition=moved(node.condition, places))
    if split is not None:
        made = replace(made, partitioning=replace(split, keys=tuple(places[k] for k in split.keys)))
    return made, places
