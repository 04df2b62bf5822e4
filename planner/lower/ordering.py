"""Order and where the plan enforces it: merging unions, sorts that punctuation releases, and slack.

An out-of-order architecture needs no input in order. The planner therefore adds these operators
only where a query orders its result by time or a setting asks for order: to compare with the
in-order architecture (out-of-order paper §2), or for an outside consumer that needs order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from cql.base.slack import parse_slack
from cql.base.types import Kind
from cql.errors import NotSupportedError, PlanError, Position
from cql.planner.lower.choose import duration, why_union
from cql.planner.nodes.catalog import Progress, TimeUnit
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import Aggregate, SortKey, Watermark, Windowed
from cql.planner.nodes.physical import (
    DupelimExec,
    FilterExec,
    LateRowsExec,
    LimitExec,
    MergeUnionExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    SlackExec,
    SourceExec,
    UnionExec,
    walk,
)
from cql.planner.nodes.progress import max_advance_of

MICROSECONDS = {
    TimeUnit.NANOSECONDS: Fraction(1, 1000),
    TimeUnit.MICROSECONDS: Fraction(1),
    TimeUnit.MILLISECONDS: Fraction(1_000),
    TimeUnit.SECONDS: Fraction(1_000_000),
    TimeUnit.MINUTES: Fraction(60_000_000),
    TimeUnit.HOURS: Fraction(3_600_000_000),
    TimeUnit.DAYS: Fraction(86_400_000_000),
}


# -- before a windowed aggregate, and ORDER BY -----------------------------------------------------


def before_window(
    child: Physical,
    wa: int,
    unit: TimeUnit | None,
    settings: Mapping[str, Any],
    pos: Position | None,
) -> Physical:
    """``child``, the input of a windowed aggregate, under the slack and the sort that the settings
    ask for. ``unit`` is the time unit of the window attribute ``wa``."""
    child = with_slack(child, wa, unit, settings, pos)
    if settings["order_enforcement"] != "sort":
        return child
    name = child.schema[wa].name
    why = f"rows wait until {name} has passed them (SET order_enforcement = 'sort')"
    return PunctuatedSortExec(child, wa, why=why)


def late_rows(child: Physical, node: Aggregate | Windowed) -> Physical:
    """``child`` of a window, under LATE OUTPUT if the window has that clause."""
    if not node.late_output:
        return child
    assert node.window is not None
    why = "LATE OUTPUT: rows that the window leaves out"
    return LateRowsExec(child, node.window, why, node.pos)


def refuse_order(root: Physical) -> None:
    """Raises NotSupportedError for LATE OUTPUT above an ordering operator, which drops late rows
    itself."""
    for late in (n for n in walk(root) if isinstance(n, LateRowsExec)):
        for node in walk(late):
            if isinstance(node, MergeUnionExec | PunctuatedSortExec):
                raise NotSupportedError(
                    "LATE OUTPUT INTO behind a union or sort in order is not supported by this"
                    " version",
                    position=late.pos,
                    hint="SET union_operator = 'pass_through', SET order_enforcement = 'none'",
                )


def with_slack(
    child: Physical,
    column: int,
    unit: TimeUnit | None,
    settings: Mapping[str, Any],
    pos: Position | None,
) -> Physical:
    """``child`` under the slack that the setting asks for, if any.

    Raises PlanError for a slack that is no whole number of steps of the column."""
    text = str(settings["slack"])
    slack = None if text == "off" else parse_slack(text)
    if slack is None:
        return child
    field = child.schema[column]
    forced = f"(SET slack = '{text}')"
    if slack.rows is not None:
        why = f"watermark on {field.name} from arrival: late is what more than {text} overtook"
        return SlackExec(child, column, None, slack.rows, f"{why} {forced}")
    step = Fraction(1) if field.type.is_timestamp else None
    if field.type.kind is Kind.DATE:
        step = MICROSECONDS[TimeUnit.DAYS]
    if unit is not None:
        step = MICROSECONDS[unit]
    units: Fraction | None
    if slack.units is not None:
        units = Fraction(slack.units) if field.type.is_integer else None
    else:
        units = None if step is None else Fraction(slack.microseconds or 0) / step
    if units is None or units.denominator != 1:
        raise PlanError(
            f"the slack '{text}' is no whole number of steps of {field.name}, a {field.type}",
            position=pos,
            hint="SET slack = '1000 rows' fits every event time; an integer's unit is declared by"
            f" ORDERED BY {field.name} IN SECONDS",
        )
    length = duration(units.numerator, field.type)
    why = f"watermark on {field.name} from arrival: its highest value so far less {length} {forced}"
    most = _believed(child, column, Progress(field.name, units.numerator, unit=unit))
    return SlackExec(child, column, units.numerator, None, why, most)


def declared(child: Physical, node: Watermark) -> SlackExec:
    """``child`` with the watermark that the query itself declares on a column."""
    progress, field = node.progress, child.schema[node.column]
    length = duration(progress.slack, field.type)
    why = f"watermark on {field.name} from arrival: its highest value so far less {length}"
    most = max_advance_of(field.type, progress)
    return SlackExec(child, node.column, progress.slack, None, f"{why} ({progress.declared})", most)


def _believed(child: Physical, column: int, progress: Progress) -> int | None:
    """MAX ADVANCE of a slack: the largest that a source below declares for a time of the column's
    type, else the default."""
    kind = child.schema[column].type
    sources = [node for node in walk(child) if isinstance(node, SourceExec)]
    declared = [
        p.max_advance
        for node in sources
        for c, p in node.progress
        if p.max_advance is not None and node.schema[c].type == kind
    ]
    return max(declared, default=max_advance_of(kind, progress))


def sort(child: Physical, keys: tuple[SortKey, ...]) -> PunctuatedSortExec | None:
    """ORDER BY as a sort that punctuation releases; None unless the first key is an ascending
    column that progresses."""
    first = keys[0] if keys else None
    if first is None or first.descending or not isinstance(first.expr, Column):
        return None
    if first.expr.index not in child.progressing:
        return None
    why = f"rows leave as soon as {child.schema[first.expr.index].name} has passed them"
    return PunctuatedSortExec(child, first.expr.index, keys[1:], why)


def with_limit(child: Physical, limit: int | None, offset: int) -> Physical:
    """``child`` under LIMIT and OFFSET, which count rows in the order of arrival."""
    if limit is None and not offset:
        return child
    why = "the first rows to come; then the query ends, and reads its inputs no further"
    if limit is None:
        why = "the first rows are left out"
    return LimitExec(child, limit, offset, why)


def purged(node: DupelimExec) -> DupelimExec:
    """``node`` with what lets it forget rows: the order of its input, else punctuation."""
    name, ordered = node.schema[node.by].name, node.input.comes_in_order(node.by)
    passes = "the first of equal rows passes as it comes, and is forgotten when"
    when = f"{name} advances, by which its input is ordered" if ordered else ""
    when = when or f"punctuation on {name} has passed it"
    why = f"{passes} {when} (out-of-order paper §5.4)"
    return replace(node, in_order=ordered, why=why)


# -- unions ----------------------------------------------------------------------------------------


def choose_unions(root: Physical, settings: Mapping[str, Any]) -> Physical:
    """``root`` with a merging union where the setting asks for one or an operator above needs
    order, and without the sorts that the merging unions replace."""
    return _below(root, None, str(settings["union_operator"]))


def _below(node: Physical, wanted: int | None, choice: str) -> Physical:
    """``node`` with its unions chosen. The operator above needs the order of column ``wanted``, if
    it needs any."""
    if isinstance(node, PunctuatedSortExec):
        return _sort(node, choice)
    pairs = zip(node.inputs, node.wanted_order(wanted), strict=True)
    made = node.with_inputs(tuple(_below(child, column, choice) for child, column in pairs))
    if isinstance(made, UnionExec):
        return _union(made, wanted, choice)
    return purged(made) if isinstance(made, DupelimExec) else made


def _union(node: UnionExec, wanted: int | None, choice: str) -> Physical:
    live = node.progressing
    why = why_union(node)
    if choice != "merge" or not live:
        return replace(node, why=why + _forced(choice if choice != "merge" else "auto"))
    order = wanted if wanted in live else live[0]
    name = node.schema[order].name
    why = f"merge: rows wait until every input has passed {name}, and leave in its order"
    return MergeUnionExec(node.inputs, node.names, order, why=why + _forced(choice))


def _forced(choice: str) -> str:
    return "" if choice == "auto" else f" (SET union_operator = '{choice}')"


def _sort(node: PunctuatedSortExec, choice: str) -> Physical:
    """A sort by time alone becomes a merge over a union, and disappears over a join in order."""
    child = _below(node.input, node.order, choice)
    plain = not node.keys
    if plain and child.joined_in_order(node.order):
        return child
    merged = _merged(child, node.order) if plain and choice != "pass_through" else None
    return replace(node, input=child) if merged is None else merged


def _merged(node: Physical, column: int) -> Physical | None:
    """``node`` over a merge by ``column`` in place of the union that its rows come from. The merge
    refuses NULL, as a sort by ``column`` does. None if the rows do not come from a union through
    filters and projections."""
    if isinstance(node, UnionExec) and column in node.progressing:
        name = node.schema[column].name
        why = f"merge: the result is ordered by {name}, so rows wait until every input passed it"
        return MergeUnionExec(node.inputs, node.names, column, True, why)
    if isinstance(node, MergeUnionExec) and node.order == column:
        return replace(node, refuses_null=True)
    below = None
    if isinstance(node, FilterExec) and not node.schema[column].nullable:
        below = _merged(node.input, column)
    if isinstance(node, ProjectExec) and isinstance(expr := node.exprs[column], Column):
        below = _merged(node.input, expr.index)
    return None if below is None else node.with_inputs((below,))
