"""LATE OUTPUT INTO t: marks the window whose late rows go into a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cql.base.window import WindowKind
from cql.dialect import nodes
from cql.planner.bind.context import Binder
from cql.planner.bind.relations.from_clause import name_of
from cql.planner.nodes.logical import (
    Aggregate,
    Join,
    Logical,
    Windowed,
)
from cql.planner.nodes.statements import LateTarget, Name


def late_target(binder: Binder, clause: nodes.LateOutput, into: Name | None) -> LateTarget:
    """The table that LATE OUTPUT names. ``into`` is the table of the query's results. Raises
    BindError if both are the same, or if the name is that of a query."""
    name = name_of(clause.this)
    shown = ".".join(name)
    if into is not None and shown.casefold() == ".".join(into).casefold():
        raise binder.error(
            f"the results of the query go into {shown}", clause.this, "name another table"
        )
    if binder.context.named(name) is not None:
        raise binder.error(f"{shown} is a query; rows go into a table", clause.this)
    return LateTarget(name, binder.pos(clause.this))


def late_output(binder: Binder, plan: Logical, clause: nodes.LateOutput) -> Logical:
    """``plan`` with its lowest window marked ``late_output``. The output of a window is never late,
    so that the windows above the lowest one leave out no row.

    Raises BindError for a plan without a window over sources, NotSupportedError for a join, for
    several lowest windows, and for EMIT CHANGES of a window with SLIDE."""
    join = _join(plan)
    if join is not None:
        raise binder.unsupported(
            "LATE OUTPUT INTO of a join",
            clause,
            "the rows of its inputs differ: write late ones away in a query of each input",
        )
    found = list(_windows(plan))
    if not found:
        raise binder.error(
            "LATE OUTPUT INTO takes rows that a window leaves out, and no window of this query"
            " leaves any out",
            clause,
            hint="add a window over a stream: FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE]",
        )
    if len(found) > 1:
        raise binder.unsupported(
            "LATE OUTPUT INTO of several windows",
            clause,
            "their rows differ: write a query for each, or unite the streams under one window",
        )
    window = found[0].window
    if window is not None and window.kind is WindowKind.EARLY:
        raise binder.unsupported(
            "LATE OUTPUT INTO with EMIT CHANGES of a window with SLIDE",
            clause,
            "leave EMIT CHANGES out: SHOW LATE counts the rows in either case",
        )
    return _marked(plan, found[0])


def _join(node: Logical) -> Join | None:
    if isinstance(node, Join):
        return node
    return next((found for child in node.inputs if (found := _join(child))), None)


def _windows(node: Logical) -> Iterator[Aggregate | Windowed]:
    """The windows with no other window below them, whose attribute progresses."""
    below = [w for child in node.inputs for w in _windows(child)]
    yield from below
    if below or not isinstance(node, Aggregate | Windowed) or node.window is None:
        return
    if node.window.wa in node.input.progressing:
        yield node


def _marked(node: Logical, window: Aggregate | Windowed) -> Logical:
    if node is window:
        return replace(window, late_output=True)
    return node.map_inputs(lambda child: _marked(child, window))
