"""Joins of streams as physical operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from cql.base.types import DataType, Kind
from cql.base.window import WindowKind
from cql.errors import NotSupportedError, PlanError
from cql.planner.bind.scope import column_of
from cql.planner.lower.choose import duration
from cql.planner.lower.joins.asof_join import asof_join
from cql.planner.lower.joins.hints import length, names_of, window
from cql.planner.lower.joins.lookup_join import table_join
from cql.planner.lower.joins.pair_columns import with_columns, without_late_rows
from cql.planner.lower.joins.pair_condition import Below
from cql.planner.nodes.expr import Column, Expr, conjunction, conjuncts
from cql.planner.nodes.logical import (
    ASOF,
    Filter,
    Join,
    Logical,
    Project,
    Windowed,
    is_inner,
)
from cql.planner.nodes.logical.progress import end_of_pair
from cql.planner.nodes.physical import (
    BandExec,
    FilterExec,
    OopJoinExec,
    Physical,
    ProjectExec,
    UnnestExec,
    WindowJoinExec,
    sources,
)
from cql.planner.nodes.show import labels, show_of
from cql.planner.nodes.watermarks import NO_BOUND
from cql.planner.optimize.join_condition import (
    Band,
    Sides,
    Terms,
    split_condition,
)
from cql.planner.placement import partitioning

Lower: TypeAlias = Callable[[Logical], Physical]
#: How long a row stays after its time, by kind of window. RANGE windows have their own length.
_STAYS = {WindowKind.NOW: 0, WindowKind.UNBOUNDED: NO_BOUND}


def join_of(node: Join, lower: Lower, settings: Mapping[str, Any]) -> Physical:
    """OOP-Join of two streams (out-of-order paper §5.3), which emits each pair of rows once. Joins
    with tables and ASOF joins get operators of their own.

    Raises PlanError if the rows of two endless inputs would stay for ever."""
    if node.looks_up:
        return table_join(node, lower)
    if node.kind in ASOF:
        return asof_join(node, lower)
    width = len(node.left.schema)
    left, right = lower(bare(node.left)), lower(bare(node.right))
    sides = Sides(width, left.progressing, right.progressing)
    parts = [] if node.condition is None else conjuncts(node.condition)
    terms = split_condition(parts, list(_of_windows(node)), sides)
    _refuse_endless(node, left, right, terms)
    left, right = without_late_rows(left), without_late_rows(right)
    left, lefts = with_columns(left, [a for a, _ in terms.keys])
    right, rights = with_columns(right, [b for _, b in terms.keys])
    band, sliced, ordered = None, False, False
    if terms.band is not None:
        left, (a,) = with_columns(left, [terms.band.left])
        right, (b,) = with_columns(right, [terms.band.right])
        band = BandExec(a, b, terms.band.low, terms.band.high)
        timed = (left, a), (right, b)
        ordered = all(side.comes_in_order(time, guarded=True) for side, time in timed)
        sliced = terms.band.closed and not (ordered and terms.band.low < terms.band.high)
    names = labels(node.left.schema, node.right.schema)
    looked_up = "looked up by slices of time, which need no order" if sliced else ""
    instead = _in_order_instead(node, terms, settings, ordered=ordered)
    why = "; ".join(part for part in (_why(terms, names), looked_up, instead, node.order) if part)
    kind = "inner" if node.kind == "cross" else node.kind
    below = Below(left, right, sides, kind)
    rest = [below.on_pair(e) for e in terms.rest]
    others = [e for e, inside in zip(terms.rest, rest, strict=True) if inside is None]
    columns = tuple(range(width))
    if kind not in ("semi", "anti"):
        columns += tuple(width + below.more + k for k in range(len(node.right.schema)))
    keys = list(zip(lefts, rights, strict=True))
    # a slice of one time implies equal times: they need no key besides
    kept = [k for k, pair in enumerate(keys) if not (sliced and _at_once(band, pair))]
    made = OopJoinExec(
        below.left,
        below.right,
        tuple(keys[k] for k in kept),
        band,
        tuple(below.behind(e) for e in rest if e is not None),
        columns,
        node.schema.names,
        kind,
        sliced,
        settings["join_flush"] == "slow",
        why,
        node.pos,
        partitioning.of_join(node, [terms.keys[k] for k in kept]),
    )
    made = replace(made, follows=_followers(made))
    return FilterExec(made, conjunction(others)) if others else made


def _followers(node: OopJoinExec) -> tuple[tuple[int, int, int], ...]:
    """The value of ``node.follows``: (column, port, the most that it lies below the port's time),
    by the bands of this join and of those below."""
    if node.band is None:
        return ()
    times = node.band.left, len(node.left.schema) + node.band.right
    return tuple(
        (column, port, far)
        for port, time in enumerate(times)
        if not node.loose(port)
        for column, far in node.side_below(port, time).items()
        if column != time
    )


def _at_once(band: BandExec | None, key: tuple[int, int]) -> bool:
    return band is not None and (band.left, band.right, band.low, band.high) == (*key, 0, 0)


def projected(child: Physical, exprs: Sequence[Expr], names: Sequence[str]) -> Physical:
    """The columns of ``child`` that a query selects. A join emits no other columns, and computes
    the later or the earlier of its times itself."""
    chosen = []
    for expr in exprs:
        end = end_of_pair(expr)
        made = None if end is None else with_end(child, *end)
        if made is not None and made[0].schema[made[1]].type == expr.type:
            child, at = made
            expr = replace(_columns_of(child)[at], pos=expr.pos)
        chosen.append(expr)
    places = [e.index for e in chosen if isinstance(e, Column)]
    if isinstance(child, OopJoinExec | UnnestExec) and len(places) == len(chosen):
        return replace(child, columns=tuple(child.columns[c] for c in places), names=tuple(names))
    return ProjectExec(child, tuple(chosen), tuple(names))


def with_end(child: Physical, times: tuple[int, int], fn: str) -> tuple[Physical, int] | None:
    """``child`` with one more column, and the place of it. The column is the ``greatest`` or the
    ``least`` of the columns ``times`` and carries joint punctuation. None unless ``times`` are the
    times of a join's band."""
    if isinstance(child, OopJoinExec) and child.band is not None and child.kind == "inner":
        sides = (child.band.left, len(child.left.schema) + child.band.right)
        if {child.columns[t] for t in times} != set(sides):
            return None
        end = child.later + (fn == "least")
        made = replace(child, columns=(*child.columns, end), names=(*child.names, f"_{fn}"))
        return made, len(child.columns)
    if isinstance(child, WindowJoinExec) and fn == "greatest":
        members = {child.first(i) + t for i, t in enumerate(child.times)}
        if {child.columns[t] for t in times} != members:
            return None
        kinds = {child.schema[t].type for t in times}
        order = child.order
        if order is None or {child.schema[order].type} != kinds:
            child = replace(child, time=True)
        return None if child.order is None else (child, child.order)
    if isinstance(child, FilterExec):
        below = with_end(child.input, times, fn)
        return None if below is None else (replace(child, input=below[0]), below[1])
    if isinstance(child, ProjectExec):
        found = [e.index for e in (child.exprs[t] for t in times) if isinstance(e, Column)]
        below = with_end(child.input, (found[0], found[1]), fn) if len(found) == 2 else None
        if below is None:
            return None
        input, at = below
        exprs = (*child.exprs, _columns_of(input)[at])
        names = (*child.names, input.schema[at].name)
        return replace(child, input=input, exprs=exprs, names=names), len(child.exprs)
    return None


def _columns_of(child: Physical) -> list[Column]:
    return [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(child.schema)]


def bare(node: Logical) -> Logical:
    """``node`` without the window under which its rows join."""
    match node:
        case Windowed():
            return node.input
        case Filter() | Project():
            return replace(node, input=bare(node.input))
    return node


def _of_windows(node: Join) -> Iterator[Band]:
    """The bands that windows imply: rows join while both are in their windows. A row comes no later
    than the window of its partner allows. Both ends are included."""
    for left, stays in stays_of(node.left):
        for right, waits in stays_of(node.right):
            a, b = column_of(node.left, left), column_of(node.right, right)
            if min(stays, waits) < NO_BOUND:
                yield Band(a, b, -waits, stays)


def stays_of(node: Logical) -> Iterator[tuple[int, int]]:
    """(time column, how long a row stays after that time) of each input in ``node``. A stream
    without a window keeps all its rows.

    Raises NotSupportedError if a subquery drops the time of its window."""
    if isinstance(node, Windowed) and node.window.wa is not None:
        yield node.window.wa, _STAYS.get(node.window.kind, node.window.range or 0)
    elif isinstance(node, Filter):
        yield from stays_of(node.input)
    elif isinstance(node, Project):
        for column, stays in stays_of(node.input):
            at = [k for k, e in enumerate(node.exprs) if _is(e, column)]
            if at:
                yield at[0], stays
            elif stays < NO_BOUND:
                raise NotSupportedError(
                    "a join of a subquery that leaves out the time of its window is not supported"
                    " by this version",
                    position=node.pos,
                    hint=f"select {node.input.schema[column].name} in it as well",
                )
    elif isinstance(node, Join):
        yield from stays_of(node.left)
        width = len(node.left.schema)
        if node.kind not in ("semi", "anti"):
            yield from ((width + column, stays) for column, stays in stays_of(node.right))
    else:
        yield from ((column, NO_BOUND) for column in [*node.progressing][:1])


def _is(expr: Expr, column: int) -> bool:
    return isinstance(expr, Column) and expr.index == column


def _refuse_endless(node: Join, left: Physical, right: Physical, terms: Terms) -> None:
    """Raises PlanError if the rows of two endless inputs never leave (out-of-order paper §5.3)."""
    if left.bounded or right.bounded or (terms.band is not None and terms.band.closed):
        return
    names = [".".join(sources(side)[0].relation.name) for side in (left, right)]
    missing = [n for n, side in zip(names, (left, right), strict=True) if not side.progressing]
    if missing:
        hint = f"declare ORDERED BY or WATERMARK on {' and '.join(missing)}"
    else:
        hint = _how_far(node, left.progressing[0], right.progressing[0], terms.band)
    raise PlanError(
        f"a join of the endless inputs {names[0]} and {names[1]} would keep their rows for ever",
        position=node.pos,
        hint=hint,
    )


def _how_far(node: Join, left: int, right: int, band: Band | None) -> str:
    """The hint for two inputs in which the columns ``left`` and ``right`` progress."""
    one, other = names_of(node.left.schema), names_of(node.right.schema)
    info = node.left.progressing.get(left)
    unit = None if info is None else info.unit
    kind, other_kind = node.left.schema[left].type, node.right.schema[right].type
    windows = f"give both streams a window: {window(kind, unit)}"
    if kind.is_integer != other_kind.is_integer:  # no band relates an integer to a timestamp
        return f"{windows}, {window(other_kind, None)}"
    distance = length(1, kind, unit)
    if band is None:
        a, b = one[left], other[right]
        near = f"{b} BETWEEN {a} - {distance} AND {a} + {distance}"
        near = f"{b} = {a}" if kind.kind is Kind.DATE else near  # dates are compared for equality
        return f"say how far apart rows may lie: AND {near}; or {windows}"
    a, b = show_of(band.left, one), show_of(band.right, other)
    open_side, bound = ("above", f"<= {a} +") if band.low > -NO_BOUND else ("below", f">= {a} -")
    return (
        f"the distance of {b} from {a} has no bound {open_side}: AND {b} {bound} {distance};"
        f" or {windows}"
    )


def _why(terms: Terms, names: Sequence[Sequence[str]]) -> str:
    found = "any order of arrival: state leaves by the other side's watermark (out-of-order 5.3)"
    if terms.band is None:
        return "no band between times: rows stay until the other input has ended"
    kind = terms.band.left.type
    return f"{found}; {band_text(terms.band, kind, *names)}"


def _in_order_instead(
    node: Join, terms: Terms, settings: Mapping[str, Any], *, ordered: bool
) -> str:
    """Text on the in-order operators as alternatives; empty if they cannot run this join."""
    if not is_inner(node) or terms.band is None or not terms.band.closed:
        return ""
    if settings["join_operator"] == "oop_join":
        return "forced: SET join_operator = 'oop_join'"
    would = "would make rows wait" if ordered else "would sort both inputs first"
    return f"no order is asked for: sync_filter, filter_order, adaptive {would} (SET join_operator)"


def band_text(band: Band, kind: DataType, left: Sequence[str], right: Sequence[str]) -> str:
    """The band in words; ``left`` and ``right`` are the column names of both sides."""
    ends = [(band.low, "from"), (band.high, "to")]
    parts = [f"{word} {duration(v, kind)}" for v, word in ends if abs(v) < NO_BOUND]
    return f"{show_of(band.right, right)} - {show_of(band.left, left)} {' '.join(parts)}"
