"""The text of one operator of a plan, and the parts of such texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cql.base.model import Schema
from cql.base.window import Window, WindowKind
from cql.planner.lower.choose import duration
from cql.planner.nodes import logical as lg
from cql.planner.nodes import physical as ph
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical import AggregateCall, SortKey
from cql.planner.nodes.show import show


@dataclass(frozen=True, slots=True)
class Line:
    """The text of one operator: its name, its parameters, and the notes below."""

    name: str
    text: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.text}".rstrip()


def window_text(window: Window, schema: Schema) -> str:
    """``[RANGE 1 hour SLIDE 10 minutes WA sched]``."""
    wa = schema[window.wa] if window.wa is not None else None
    parts = []
    if window.change is not None and window.rows is None:
        parts.append("CHANGES")
    elif window.partition_by:
        parts.append("PARTITION BY " + ", ".join(schema[c].name for c in window.partition_by))
    if window.kind in (WindowKind.NOW, WindowKind.UNBOUNDED, WindowKind.SESSION):
        parts.append(window.kind.name)
    if wa is not None and wa.name == lg.SEQUENCE:
        return f"[ROWS {window.range} SLIDE {window.slide}]"
    if wa is not None and wa.name == lg.KEY_WINDOW:
        return "each of these windows"
    if window.rows is not None:
        parts.append(f"ROWS {window.rows}")
    if window.gap is not None:
        parts.append(duration(window.gap, wa.type) if wa else str(window.gap))
    step = "CUMULATE" if window.kind is WindowKind.CUMULATE else "SLIDE"
    for word, value in (("RANGE", window.range), (step, window.slide)):
        if value is not None:
            in_time = wa is not None and window.rows is None
            parts.append(f"{word} {duration(value, wa.type) if wa and in_time else value}")
    if window.zone is not None:
        parts.append(f"TIME ZONE '{window.zone}'")
    if window.offset and wa is not None:
        parts.append(f"OFFSET {duration(window.offset, wa.type)}")
    if wa is not None:
        parts.append(f"WA {wa.name}")
    return f"[{' '.join(parts)}]"


def named(exprs: tuple[Expr, ...], names: tuple[str, ...]) -> str:
    """Expressions with their names, as text."""
    pairs = zip(exprs, names, strict=True)
    return ", ".join(t if (t := show(e)) == n else f"{t} AS {n}" for e, n in pairs)


def process_text(node: lg.Process | ph.ProcessExec) -> str:
    """``leak_detect(pipe0, pipe1; 3.0) by place``: the columns that an operator of the user sees,
    its constants, and the columns of PARTITION BY."""
    behind = f"; {', '.join(map(show, node.arguments))}" if node.arguments else ""
    keys = ", ".join(node.input.schema[c].name for c in node.partition)
    by = f" by {keys}" if keys else ""
    return f"{node.function.name}({', '.join(node.names)}{behind}){by}"


def aggregate_text(keys: tuple[Expr, ...], calls: tuple[AggregateCall, ...]) -> str:
    """Aggregates and keys, as text."""
    by = f" by {', '.join(show(k) for k in keys)}" if keys else ""
    return (", ".join(call_text(c) for c in calls) or "distinct") + by


def call_text(call: AggregateCall) -> str:
    """The call of an aggregate, as text."""
    values, keys = call.args, ""
    if call.order:
        first = len(call.args) - len(call.order)
        pairs = zip(call.args[first:], call.order, strict=True)
        by = ", ".join(f"{show(e)}{' DESC' if descending else ''}" for e, (descending, _) in pairs)
        own = first == 0  # ordered by its own argument: only a descending order is shown
        keys = f" ORDER BY {by}" if not own or call.order[0][0] else ""
        values = call.args if own else call.args[:first]
    inner = ", ".join(show(a) for a in (*values, *call.constants)) or "*"
    text = f"{call.fn}({'DISTINCT ' if call.distinct else ''}{inner}{keys})"
    return text if call.where is None else f"{text} FILTER (WHERE {show(call.where)})"


def sort_text(keys: tuple[SortKey, ...], limit: int | None, offset: int) -> str:
    """An order with LIMIT and OFFSET, as text."""
    order = ", ".join(f"{show(k.expr)}{' DESC' if k.descending else ''}" for k in keys)
    parts = [f"by {order}" if order else ""]
    parts += [f"limit {limit}"] if limit is not None else []
    parts += [f"offset {offset}"] if offset else []
    return " ".join(p for p in parts if p)


def values_text(node: lg.Values | ph.ValuesExec) -> str:
    """The number of rows of constants."""
    return f"{len(node.rows)} row{'' if len(node.rows) == 1 else 's'}"


def subquery_text(kind: str, keys: Sequence[Expr]) -> str:
    """The kind and keys of a subquery."""
    return f"{kind} {', '.join(map(show, keys))}".strip()


def progress_text(node: ph.Physical) -> str:
    """``, watermark on ts``; empty if no column progresses."""
    live = node.progressing
    if not live:
        return ""
    return ", watermark on " + ", ".join(node.schema[c].name for c in live)
