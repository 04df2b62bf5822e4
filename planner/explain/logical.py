"""Prints the nodes of a logical plan."""

from __future__ import annotations

from cql.planner.explain.line import (
    Line,
    aggregate_text,
    named,
    process_text,
    sort_text,
    subquery_text,
    values_text,
    window_text,
)
from cql.planner.nodes import logical as lg
from cql.planner.nodes.show import show


def logical_line(node: lg.Logical) -> Line:
    """A node of a logical plan."""
    match node:
        case lg.Scan():
            names = ", ".join(f.name for f in node.schema)
            return Line("Scan", f"{'.'.join(node.relation.name)} [{names}]")
        case lg.Values():
            return Line("Values", values_text(node))
        case lg.Filter():
            return Line("Filter", show(node.condition))
        case lg.Project():
            return Line("Project", named(node.exprs, node.names))
        case lg.Union():
            return Line("Union", "all")
        case lg.Newest():
            by, time = _names(node, node.key), node.schema[node.time].name
            return Line("Newest", f"of {by or 'all rows'} by {time}")
        case lg.Aggregate():
            return Line("Aggregate", aggregate_text(node.keys, node.calls), (_over(node),))
        case lg.Bucket():
            return Line("Bucket", window_text(node.window, node.input.schema))
        case lg.Unnest():
            kind = "left " if node.outer else ""
            return Line("Unnest", f"{kind}{show(node.array)} AS {node.name}")
        case lg.Number():
            windows = node.windows
            return Line("Number", "" if windows is None else windows.text(node.input.schema))
        case lg.Watermark():
            return Line("Watermark", node.progress.declared)
        case lg.Sort():
            return Line("Sort", sort_text(node.keys, node.limit, node.offset))
        case lg.Limit():
            return Line("Limit", sort_text((), node.limit, node.offset).removeprefix("limit "))
        case lg.Running():
            return Line("Running", ", ".join(node.names))
        case lg.Process():
            return Line("Process", process_text(node))
        case lg.RowNumber():
            by = ", ".join(node.input.schema[c].name for c in node.partition)
            return Line("RowNumber", f"by {by} {sort_text(node.keys, None, 0)}")
        case lg.Windowed():
            return Line("Windowed", window_text(node.window, node.input.schema))
        case lg.Join():
            on = f" on {show(node.condition)}" if node.condition is not None else ""
            return Line("Join", f"{node.kind}{on}")
        case lg.SubqueryJoin():
            text = subquery_text(node.kind, node.keys)
            condition = f" on {show(node.condition)}" if node.condition is not None else ""
            return Line("SubqueryJoin", text + condition)
        case lg.SetOperation():
            return Line(node.kind.capitalize(), "" if node.distinct else "all")
        case lg.RelationToStream():
            return Line(node.kind.capitalize(), "")
        case lg.Unsupported():
            return Line("Unsupported", node.clause)
    return Line(type(node).__name__, ", ".join(map(show, node.expressions)))


def _names(node: lg.Logical, columns: tuple[int, ...]) -> str:
    return ", ".join(node.schema[c].name for c in columns)


def _over(node: lg.Aggregate) -> str:
    if node.window is None:
        return "over the whole input"
    return window_text(node.window, node.input.schema)
