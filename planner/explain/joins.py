"""Prints the joins of a physical plan."""

from __future__ import annotations

from collections.abc import Iterable

from cql.base.model import Schema
from cql.planner.explain.line import Line, progress_text
from cql.planner.lower.choose import duration
from cql.planner.nodes import physical as ph
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.physical import (
    AsofJoinExec,
    OopJoinExec,
    RelationJoinExec,
    TableJoinExec,
    UnnestExec,
    WindowJoinExec,
)
from cql.planner.nodes.show import labels, show_of


def join_line(node: OopJoinExec) -> Line:
    parts = _conditions(node.left.schema, node.right.schema, node.keys, node.rest)
    if node.band is None:
        held = "all rows, until the other input has ended"
    else:
        held = "rows that later ones of the other side can join"
    if node.kind in ("left", "right", "full", "semi", "anti"):
        held += ", and whether each has a partner"
        parts = [f"{node.kind} {' AND '.join(parts)}".strip()]
    notes = [f"why: {node.why}", f"state: {held}"]
    if node.leaves_alone:
        how = "two for each that comes" if node.smooth else "at once"
        flush = "slow" if node.smooth else "at_once"
        notes.append(f"rows without a partner leave {how} (SET join_flush = '{flush}')")
    return Line("OopJoin", " AND ".join(parts), tuple(notes))


def table_join_line(node: TableJoinExec) -> Line:
    parts = _conditions(node.input.schema, node.table.schema, node.keys, node.rest)
    names = ", ".join(s.name for s in ph.sources(node.table))
    kind = "" if node.kind == "inner" else node.kind
    state = f"state: the rows of {names or 'the table'}{', by key' if node.keys else ''}"
    notes = (f"why: {node.why}", state, f"append-only{progress_text(node)}")
    return Line("TableJoin", f"{kind} {' AND '.join(parts)}".strip(), notes)


def unnest_line(node: UnnestExec) -> Line:
    shown = dict(zip(node.columns, node.names, strict=True)).get(node.width)
    called = "" if shown is None else f" AS {shown}"
    kind = "" if node.kind == "inner" else f"{node.kind} "
    notes = (f"why: {node.why}", "state: none", f"append-only{progress_text(node)}")
    return Line("Unnest", f"{kind}{node.input.schema[node.array].name}{called}", notes)


def relation_join_line(node: RelationJoinExec) -> Line:
    left, right = (Schema(side.schema.fields[:-2]) for side in (node.left, node.right))
    parts = _conditions(left, right, node.keys, node.rest)
    on = " on " + " AND ".join(parts) if parts else ""
    state = "state: the rows of both sides, by key"
    if node.kind != "inner":
        state += ", and how many partners each has"
    return Line("RelationJoin", f"{node.kind}{on}", (f"why: {node.why}", state))


def asof_line(node: AsofJoinExec) -> Line:
    left, right = node.left.schema, node.right.schema
    a = left[node.times[0]]
    parts = _conditions(left, right, node.keys, ())
    earlier, later = (names[k] for names, k in zip(labels(left, right), node.times, strict=True))
    shift = f" {'+' if node.shift > 0 else '-'} {duration(abs(node.shift), a.type)}"
    sign, word = (">=", "latest") if node.backward else ("<=", "earliest")
    parts.append(f"{earlier}{shift if node.shift else ''} {sign} {later}")
    state = "state: rows that the watermark has not passed"
    if node.backward:
        latest = f"the {word} row" if node.rows == 1 else f"the {node.rows} {word} rows"
        state += f"; of each key {latest} of the right"
        if node.tolerance is None and node.rows == 1:
            state += ", which grows with the number of keys: a tolerance forgets them"
    within = f", within {duration(node.tolerance, a.type)}" if node.tolerance is not None else ""
    notes = (f"why: {node.why}{within}", state, f"append-only{progress_text(node)}, in its order")
    if node.rows > 1:
        parts.append(f"the {node.rows} {word} rows")
    return Line("AsofJoin", f"{'left ' if node.pads else ''}{' AND '.join(parts)}", notes)


def window_join_line(node: WindowJoinExec) -> Line:
    names = labels(*(child.schema for child in node.inputs))
    parts = [" = ".join(names[i][c] for i, c in columns) for columns in node.keys]
    parts += [show_of(e, [n for side in names for n in side]) for e in node.rest]
    times = ", ".join(s[t] for s, t in zip(names, node.times, strict=True))
    order = f"order: the latest of {times}"
    state = "state: rows that later ones of the other inputs can join, those that wait for the "
    state += "other inputs, and results that do"
    return Line("WindowJoin", " AND ".join(parts), (f"why: {node.why}", order, state))


def _conditions(
    left: Schema, right: Schema, keys: Iterable[tuple[int, int]], rest: Iterable[Expr]
) -> list[str]:
    """The conditions of a join, as text."""
    lefts, rights = labels(left, right)
    parts = [f"{lefts[a]} = {rights[b]}" for a, b in keys]
    return parts + [show_of(e, [*lefts, *rights]) for e in rest]
