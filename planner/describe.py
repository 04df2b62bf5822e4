"""Which punctuation the consumers of each source can use (the describe operator: out-of-order paper
A.1.1, Tucker's [28]).

Punctuation on a window attribute that does not reach another window's end closes nothing. So every
consumer states the boundaries that it needs, these are carried down to the sources, and a source
makes punctuation at boundaries only: what it promises in between is rolled down to the last one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from cql.planner.choose import duration
from cql.planner.expr import Call, Cast, Column, Expr, Literal
from cql.planner.physical import (
    Awaited,
    BucketExec,
    DupelimExec,
    FilterExec,
    LateRowsExec,
    OnTimeExec,
    Physical,
    ProjectExec,
    SortExec,
    SourceExec,
    UnionExec,
    ValuesExec,
    WidAggregateExec,
    inputs,
    with_input,
)
from cql.planner.physical_joins import LookupExec, TableJoinExec, UnnestExec
from cql.planner.physical_progress import progress_origin, progressing
from cql.types import INTERVAL, DataType
from cql.window import Window

#: (step, offset): the values at offset + a multiple of step. None: any value.
Boundaries: TypeAlias = frozenset[tuple[int, int]] | None
#: By output column of a node.
Wanted: TypeAlias = dict[int, Boundaries]


def describe(node: Physical, wanted: Wanted | None = None) -> Physical:
    """``node``, its sources told what is awaited of them; ``wanted`` is what the operator above
    needs on the columns of ``node``."""
    wanted = wanted or {}
    match node:
        case SourceExec():
            named = (
                Awaited(c, None if b is None else fewest(b)) for c, b in sorted(wanted.items())
            )
            return replace(node, awaited=tuple(named))
        case ValuesExec():
            return node
        case FilterExec() | OnTimeExec() | LateRowsExec():
            return replace(node, input=describe(node.input, wanted))
        case ProjectExec():
            return replace(node, input=describe(node.input, _of_project(node, wanted)))
        case LookupExec():
            below = {c: b for c, b in wanted.items() if c < node.width}
            return replace(node, input=describe(node.input, below), query=describe(node.query))
        case TableJoinExec():
            child = describe(node.input, _of_passed(node, wanted))
            return replace(node, input=child, table=describe(node.table))
        case UnnestExec():
            return replace(node, input=describe(node.input, _of_passed(node, wanted)))
        case BucketExec():
            width = len(node.input.schema)
            below = {c: b for c, b in wanted.items() if c < width}
            if any(c >= width for c in wanted):
                _add(below, node.window.wa, _ends(node.window))
            return replace(node, input=describe(node.input, below))
        case UnionExec():
            return replace(node, inputs=tuple(describe(i, wanted) for i in node.inputs))
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
        case _:  # says nothing: all punctuation passes
            everything = (dict.fromkeys(progressing(child)) for child in inputs(node))
            told = (describe(c, w) for c, w in zip(inputs(node), everything, strict=True))
            return with_input(node, tuple(told))


def _add(wanted: Wanted, column: int | None, more: Boundaries) -> None:
    if column is None:
        return
    before = wanted.get(column, frozenset())
    wanted[column] = None if before is None or more is None else before | more


def _ends(window: Window) -> Boundaries:
    """Where windows end. Sessions end anywhere; days of a time zone, at no multiple of anything."""
    if not window.has_number or not window.slide or window.range is None or window.zone:
        return None
    return frozenset({(window.slide, (window.offset + window.range) % window.slide)})


def _of_passed(node: TableJoinExec | UnnestExec, wanted: Wanted) -> Wanted:
    below: Wanted = {}
    for column, origin in node.passed(range(node.width)).items():
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
    """What to await of the column in ``expr``, where ``wanted`` is awaited of ``expr``: a shift
    moves boundaries, other functions may need any value."""
    if wanted is None:
        return None
    match expr:
        case Column():
            return wanted
        case Cast() if expr.type.is_integer and expr.arg.type.is_integer:
            return _before(expr.arg, wanted)
        case Call(fn="add" | "sub", args=(inner, Literal(value=int() as by) as shift)):
            if _shifts(inner, shift, expr):
                moved = -by if expr.fn == "add" else by
                return _before(inner, frozenset((s, (o + moved) % s) for s, o in wanted))
        case _:
            pass
    return None


def _shifts(inner: Expr, by: Literal, whole: Expr) -> bool:
    if inner.type.is_integer:
        return by.type.is_integer and whole.type.is_integer
    return inner.type.is_timestamp and by.type == INTERVAL and whole.type == inner.type


def fewest(wanted: frozenset[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Without those whose values are all values of another."""

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
