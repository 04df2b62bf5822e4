"""The punctuation that the consumers of each source can use (the describe operator: out-of-order
paper A.1.1, Tucker's [28]).

Punctuation on a window attribute closes nothing unless it reaches another window's end. So every
consumer states the boundaries that it needs, the planner carries them down to the sources, and a
source emits punctuation at boundaries only: a watermark in between is rounded down to a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from cql.base.types import INTERVAL, DataType
from cql.base.window import Window
from cql.planner.lower.choose import duration
from cql.planner.lower.watermark import progress_origin, progressing
from cql.planner.nodes.expr import Call, Cast, Column, Expr, Literal
from cql.planner.nodes.physical import (
    ArrivalExec,
    Awaited,
    BucketExec,
    DupelimExec,
    FilterExec,
    KeyWindowsExec,
    LateRowsExec,
    LimitExec,
    MergeUnionExec,
    NumberExec,
    OnTimeExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    RelationExec,
    SlackExec,
    SortExec,
    SourceExec,
    UnionExec,
    ValuesExec,
    WidAggregateExec,
    inputs,
    with_input,
)
from cql.planner.nodes.physical_in_order_join import WindowJoinExec
from cql.planner.nodes.physical_join import (
    AsofJoinExec,
    BandExec,
    LookupExec,
    OopJoinExec,
    TableJoinExec,
    UnnestExec,
)
from cql.planner.optimize.join_condition import NO_BOUND

#: (step, offset): the values offset + n · step. None: any value.
Boundaries: TypeAlias = frozenset[tuple[int, int]] | None
#: Boundaries by output column of a node.
Wanted: TypeAlias = dict[int, Boundaries]
#: A join purges rows this many times within the width of its band, and so keeps at most 1/32 more
#: rows than the band needs.
_PURGES = 32


def describe(node: Physical, wanted: Wanted | None = None) -> Physical:
    """``node`` with the awaited punctuation noted at its sources. ``wanted`` holds the boundaries
    that the operator above needs on the columns of ``node``."""
    wanted = wanted or {}
    match node:
        case SourceExec():
            named = (
                Awaited(c, None if b is None else fewest(b)) for c, b in sorted(wanted.items())
            )
            return replace(node, awaited=tuple(named))
        case ValuesExec():
            return node
        case FilterExec() | LimitExec() | OnTimeExec() | LateRowsExec():
            return replace(node, input=describe(node.input, wanted))
        case ProjectExec():
            return replace(node, input=describe(node.input, _of_project(node, wanted)))
        case LookupExec():
            child = describe(node.input, _without(wanted, node.width))
            return replace(node, input=child, query=describe(node.query))
        case TableJoinExec():
            child = describe(node.input, _of_forwarded(node, wanted))
            return replace(node, input=child, table=describe(node.table))
        case UnnestExec():
            return replace(node, input=describe(node.input, _of_forwarded(node, wanted)))
        case BucketExec():
            width = len(node.input.schema)
            below = _without(wanted, width)
            if any(c >= width for c in wanted):
                _add(below, node.window.wa, _ends(node.window))
            return replace(node, input=describe(node.input, below))
        case UnionExec():
            return _each(node, [wanted for _ in node.inputs])
        case WidAggregateExec():
            below = {}
            if node.window is not None:
                _add(below, node.window.wa, _ends(node.window))
            return replace(node, input=describe(node.input, below))
        case DupelimExec():
            below = dict(wanted)
            _add(below, node.by, None)
            return replace(node, input=describe(node.input, below))
        case SortExec():
            below = dict(wanted)
            _add(below, node.window_end, None)
            return replace(node, input=describe(node.input, below))
        case NumberExec():
            width = len(node.input.schema)
            return replace(node, input=describe(node.input, _without(wanted, width)))
        case MergeUnionExec() | PunctuatedSortExec():  # rows wait for each value of the time
            return _each(node, [{node.order: None} for _ in inputs(node)])
        case RelationExec():  # rows wait for each instant
            return _each(node, [{node.window.wa: None} if node.window.wa is not None else {}])
        case ArrivalExec():
            return _each(node, [{node.wa: None}])
        case SlackExec() | KeyWindowsExec():  # make the watermark from the rows alone
            return _each(node, [{}])
        case WindowJoinExec() | AsofJoinExec():  # rows wait for each value of the other times
            return _each(node, [{time: None} for time in node.times])
        case OopJoinExec():
            return _each(node, _of_join(node, wanted))
        case _:  # operators over changelogs: punctuation flows on the instants only
            return _each(node, [dict.fromkeys(progressing(child)) for child in inputs(node)])


def _each(node: Physical, wanted: Sequence[Wanted]) -> Physical:
    """``node`` with its inputs described; ``wanted`` has one entry per input."""
    described = (describe(c, w) for c, w in zip(inputs(node), wanted, strict=True))
    return with_input(node, tuple(described))


def _without(wanted: Wanted, width: int) -> Wanted:
    """The part of ``wanted`` on the first ``width`` columns."""
    return {c: b for c, b in wanted.items() if c < width}


def _of_join(node: OopJoinExec, wanted: Wanted) -> list[Wanted]:
    """The boundaries that a join needs of each input: its own, to purge rows, and those that imply
    the boundaries ``wanted`` of its output times. The left time needs the same value of the left
    input, and of the right input a value that lies the band's upper limit above. The right time
    needs the same value of the right input, and of the left input a value that lies the band's
    lower limit below."""
    band = node.band
    if band is None:
        return [{}, {}]  # rows stay until the inputs end
    own = None if node.leaves_alone else _purges(band)
    sides: Wanted = {0: own, 1: own}
    low, high = band.low, band.high
    of_left, of_right = ((0, 0), (1, high)), ((0, -low), (1, 0))
    follows = {column: (port, far) for column, port, far in node.follows}
    for out, boundaries in wanted.items():
        column = node.columns[out]
        found: tuple[tuple[int, int], ...]
        far = 0
        if column == band.left:
            found = of_left
        elif column == len(node.left.schema) + band.right:
            found = of_right
        elif column == node.later:
            found = ((0, 0), (1, 0))
        elif column == node.later + 1:
            found = (*of_left, *of_right)
        elif column in follows:
            port, far = follows[column]
            found = (of_left, of_right)[port]
        else:
            continue
        for port, limit in found:
            if abs(limit) < NO_BOUND:
                _add(sides, port, _moved(boundaries, limit + far))
    return [{band.left: sides[0]}, {band.right: sides[1]}]


def _purges(band: BandExec) -> Boundaries:
    """The round values at which a join purges rows; None for a narrow band: any value. A join that
    emits rows without a partner needs any value, because these rows wait for the watermark."""
    limits = [limit for limit in (band.low, band.high) if abs(limit) < NO_BOUND]
    most = (limits[-1] - limits[0]) // _PURGES if len(limits) == 2 else 0
    if most < 2:
        return None
    digit = 10 ** (len(str(most)) - 1)
    return frozenset({(max(n * digit for n in (1, 2, 5) if n * digit <= most), 0)})


def _moved(wanted: Boundaries, by: int) -> Boundaries:
    """The boundaries that lie ``by`` above those of ``wanted``."""
    if wanted is None:
        return None
    return frozenset((step, (offset + by) % step) for step, offset in wanted)


def _add(wanted: Wanted, column: int | None, more: Boundaries) -> None:
    if column is None:
        return
    before = wanted.get(column, frozenset())
    wanted[column] = None if before is None or more is None else before | more


def _ends(window: Window) -> Boundaries:
    """The ends of windows. Sessions end anywhere, days of a time zone at no multiple of a step."""
    if not window.has_number or not window.slide or window.range is None or window.zone:
        return None
    return frozenset({(window.slide, (window.offset + window.range) % window.slide)})


def _of_forwarded(node: TableJoinExec | UnnestExec, wanted: Wanted) -> Wanted:
    below: Wanted = {}
    for column, origin in node.forwarded(range(node.width)).items():
        if column in wanted:
            _add(below, origin, wanted[column])
    return below


def _of_project(node: ProjectExec, wanted: Wanted) -> Wanted:
    live = progressing(node.input)
    below: Wanted = {}
    for column, boundaries in wanted.items():
        origin = progress_origin(node.exprs[column], live)
        if origin is not None:
            _add(below, origin, _before(node.exprs[column], boundaries))
    return below


def _before(expr: Expr, wanted: Boundaries) -> Boundaries:
    """The boundaries to await of the column in ``expr``, if ``wanted`` is awaited of ``expr``. A
    shift moves boundaries; other functions may need any value."""
    if wanted is None:
        return None
    match expr:
        case Column():
            return wanted
        case Cast() if expr.type.is_integer and expr.arg.type.is_integer:
            return _before(expr.arg, wanted)
        case Call(fn="add" | "sub", args=(inner, Literal(value=int() as by) as shift)):
            if _shifts(inner, shift, expr):
                return _before(inner, _moved(wanted, -by if expr.fn == "add" else by))
        case _:
            pass
    return None


def _shifts(inner: Expr, by: Literal, whole: Expr) -> bool:
    if inner.type.is_integer:
        return by.type.is_integer and whole.type.is_integer
    return inner.type.is_timestamp and by.type == INTERVAL and whole.type == inner.type


def fewest(wanted: frozenset[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """``wanted`` without the entries whose values are all values of another entry."""

    def covered(one: tuple[int, int]) -> bool:
        return any(
            other != one and one[0] % other[0] == 0 and (one[1] - other[1]) % other[0] == 0
            for other in wanted
        )

    return tuple(sorted(one for one in wanted if not covered(one)))


def awaited_text(node: SourceExec) -> str:
    """``awaited: punctuation on ts every 10 minutes``."""
    live = progressing(node)
    if node.awaited is None or not live:
        return ""
    named = [a for a in node.awaited if a.column in live and a.boundaries != ()]
    if not named:
        return "awaited: no punctuation"
    return "awaited: punctuation on " + "; on ".join(
        f"{node.schema[a.column].name} {_listed(a, node.schema[a.column].type)}" for a in named
    )


def _listed(awaited: Awaited, kind: DataType) -> str:
    if awaited.boundaries is None:
        return "at any value"
    return " and ".join(
        f"every {duration(step, kind)}" + (f" + {duration(offset, kind)}" if offset else "")
        for step, offset in awaited.boundaries
    )
