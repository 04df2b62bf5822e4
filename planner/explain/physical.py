"""Prints the operators of a physical plan."""

from __future__ import annotations

from dataclasses import replace

from cql.base.window import Window, WindowKind, WindowOperator
from cql.planner.explain.joins import (
    asof_line,
    join_line,
    relation_join_line,
    table_join_line,
    unnest_line,
    window_join_line,
)
from cql.planner.explain.line import (
    Line,
    aggregate_text,
    named,
    process_text,
    progress_text,
    sort_text,
    values_text,
    window_text,
)
from cql.planner.lower.watermark_demand import awaited_text
from cql.planner.nodes import physical as ph
from cql.planner.nodes.expr import Column, Expr, substitute
from cql.planner.nodes.logical import AggregateCall
from cql.planner.nodes.physical import (
    AsofJoinExec,
    LookupExec,
    OopJoinExec,
    RelationJoinExec,
    SubqueryJoinExec,
    TableJoinExec,
    UnnestExec,
    WindowJoinExec,
)
from cql.planner.nodes.show import show


def physical_line(node: ph.Physical) -> Line:
    """A node of a physical plan."""
    match node:
        case ph.SourceExec():
            names = ", ".join(f.name for f in node.schema)
            shape = "bounded" if node.relation.bounded else "unbounded"
            notes = [node.why, awaited_text(node), f"{shape}, append-only{progress_text(node)}"]
            if node.query is not None:
                chosen = node.query.runtime
                notes.append(f"the runtime of its query: {chosen.name} ({chosen.why})")
            return Line("Source", f"{node.name} [{names}]", tuple(notes))
        case ph.ValuesExec():
            return Line("Values", values_text(node))
        case ph.FilterExec():
            return Line("Filter", show(node.condition))
        case ph.ProjectExec():
            return Line("Project", named(node.exprs, node.names), (node.why,))
        case ph.BucketExec():
            window = window_text(node.window, node.input.schema)
            return Line("Bucket", window, (node.why, "state: none"))
        case ph.UnionExec():
            state = "state: one punctuation per input"
            if node.keyed_watermark is not None:
                state += (
                    f", and per {node.schema[node.keyed_watermark[1]].name} that is ahead of those"
                )
            return Line("Union", "", (node.why, state))
        case ph.MergeUnionExec():
            by = f"by {node.schema[node.order].name}"
            state = "state: the rows of each input that another one is behind, and its disorder"
            return Line("MergeUnion", by, (node.why, state, _left_out(node)))
        case ph.PunctuatedSortExec():
            time = node.schema[node.order].name
            more = sort_text(node.keys, None, 0).removeprefix("by ")
            text = ", ".join(t for t in (f"by {time}", more) if t)
            state = "state: the rows that the watermark has not passed"
            return Line("PunctuatedSort", text, (node.why, state, _left_out(node)))
        case ph.LimitExec():
            text = sort_text((), node.limit, node.offset)
            return Line("Limit", text.removeprefix("limit "), (node.why, "state: one number"))
        case ph.SlackExec():
            state = "none" if node.rows is None else f"{node.rows + 1:,} times"
            return Line(
                "Slack", f"on {node.schema[node.attribute].name}", (node.why, f"state: {state}")
            )
        case ph.WidAggregateExec():
            return _wid_line(node)
        case ph.RunningExec():
            return Line("Running", ", ".join(node.names), (node.why, f"state: {node.state}"))
        case ph.ProcessExec():
            state = f"state: {node.state}"
            return Line(
                "Process",
                process_text(node),
                (node.why, state, f"append-only{progress_text(node)}"),
            )
        case ph.KeyWindowsExec():
            state = f"state: the last {node.windows.rows:,} rows of each key"
            return Line("KeyWindows", node.windows.text(node.input.schema), (node.why, state))
        case ph.NumberExec():
            return Line("Number", "", (node.why, "state: one number"))
        case ph.ArrivalExec():
            wa, end = node.schema[node.wa], node.schema[node.end]
            return Line("Arrival", f"by {wa.name}, before {end.name}", (node.why, "state: none"))
        case ph.LateRowsExec():
            return Line("LateRows", "", (node.why, "state: none"))
        case ph.OnTimeExec():
            return Line("OnTime", f"by {node.schema[node.wa].name}", (node.why, "state: none"))
        case ph.DupelimExec():
            return _dupelim_line(node)
        case ph.NewestExec():
            return _newest_line(node)
        case ph.RelationExec():
            window = window_text(node.window, node.input.schema)
            return Line("Relation", window, (node.why, _relation_state(node.window)))
        case ph.ChangeAggregateExec():
            return _change_aggregate_line(node)
        case SubqueryJoinExec():
            state = "state: the keys of the subquery, or its value"
            if not node.constant:
                state += ", and the rows of the left with what was said of each"
            keys = node.input.schema.names[len(node.fields) - 1 :][: node.keys]
            text = f"{node.kind} {', '.join(keys)}".strip()
            return Line("SubqueryJoin", text, (node.why, state))
        case LookupExec():
            columns = ", ".join(node.input.schema.names[node.width :][: node.keys])
            state = "state: the keys of the subquery, or its value"
            return Line("Lookup", f"{node.kind} {columns}".strip(), (node.why, state))
        case OopJoinExec():
            return join_line(node)
        case WindowJoinExec():
            return window_join_line(node)
        case RelationJoinExec():
            return relation_join_line(node)
        case TableJoinExec():
            return table_join_line(node)
        case UnnestExec():
            return unnest_line(node)
        case AsofJoinExec():
            return asof_line(node)
        case ph.SetOperationExec():
            kind = node.kind.capitalize() + ("" if node.distinct else "All")
            return Line(kind, "", (node.why, "state: the rows of both sides, with their weights"))
        case ph.TopExec():
            text = sort_text(node.keys, node.limit, node.offset)
            return Line("Top", text, (node.why, "state: the rows of the relation, in order"))
        case ph.RowNumberExec():
            by = ", ".join(node.input.schema[c].name for c in node.partition)
            text = sort_text(node.keys, None, 0) + (f", to {node.limit}" if node.limit else "")
            state = "state: the rows of the relation, in order"
            if node.forgets:
                state = f"state: the first {node.limit} rows of each partition"
            return Line("RowNumber", f"by {by} {text}" if by else text, (node.why, state))
        case ph.StreamExec():
            state = "the rows of the relation" if node.kind == "rstream" else "none"
            return Line(node.kind.capitalize(), "", (node.why, f"state: {state}"))
        case ph.SortExec():
            state = "state: the rows of open windows" if node.window_end is not None else ""
            if node.number is not None and node.window_end is not None:
                within = (node.window_end, *node.partition)
                by = ", ".join(node.input.schema[c].name for c in within)
                text = sort_text(node.keys, None, 0)
                if node.limit is not None:
                    text += f", to {node.limit}"
                    state = "state: of open windows, about twice the rows that leave"
                return Line("RowNumber", f"by {by} {text}", (node.why, state))
            text = sort_text(node.keys, node.limit, node.offset)
            if node.limit is not None:
                most = f"about twice the {node.offset + node.limit:,} first rows"
                state = f"state: {most} of each open window" if state else f"state: {most}"
            return Line("Sort", text, (node.why, state or "state: the whole input"))
    return Line(node.title, "", (f"why: {node.why}", f"state: {node.state}"))


def _left_out(node: ph.MergeUnionExec | ph.PunctuatedSortExec) -> str:
    return f"leaves out late rows, append-only{progress_text(node)}, in its order"


def _wid_line(node: ph.WidAggregateExec) -> Line:
    text = aggregate_text(node.keys, node.calls)
    if node.window is None:
        return Line("WidAggregate", text, (f"why: {node.why}", "state: one entry per group"))
    if node.window.kind is WindowKind.SESSION:
        notes = (
            f"over {window_text(node.window, node.input.schema)}",
            f"why: {node.why}",
            "state: open sessions (those that punctuation has not passed by more than the gap)",
            f"append-only{progress_text(node)}",
        )
        return Line("SessionAggregate", text, notes)
    name, low = node.operator.shown, ""
    if node.flush is not None:
        parts, many = "windows", node.window.overlap
        low = f"{node.flush.entries:,} partial aggregates, "
        if node.flush.windows and node.flush.policy is not ph.FlushPolicy.AT_ONCE:
            many += node.flush.windows
    elif node.pane is None:
        parts, many = "windows", node.window.overlap
    else:
        parts, many = "panes", (node.window.range or 0) // node.pane
    windows: tuple[Window, ...] = (node.window,)
    if isinstance(node, ph.SharedPanesExec):
        name, windows = "SharedPaneAggregate", node.windows
        many = max(w.range or 0 for w in windows) // (node.pane or 1)
    state = f"{low}groups x open {parts} (at most {many} per instant, and"
    if node.operator is WindowOperator.BUFFERED:
        low = "or groups x open panes; " if node.adaptive else "and the groups of one; "
        state = f"the rows of open windows, {low}(at most {many} panes per instant, and"
    notes = (
        "over " + ", ".join(window_text(w, node.input.schema) for w in windows),
        f"why: {node.why}",
        f"state: {state} those that punctuation has not passed)",
        f"append-only{progress_text(node)}",
    )
    return Line(name, text, notes)


def _dupelim_line(node: ph.DupelimExec) -> Line:
    name = node.schema[node.by].name
    kept = f"of one {name}" if node.in_order else f"that punctuation on {name} has not passed"
    notes = (
        f"why: {node.why}",
        f"state: the different rows {kept}",
        f"append-only{progress_text(node)}",
    )
    return Line("Dupelim", ", ".join(node.schema.names), notes)


def _newest_line(node: ph.NewestExec) -> Line:
    key = ", ".join(node.schema[c].name for c in node.key) or "all rows"
    time = node.schema[node.time].name
    state = "state: one time and hash"
    if node.key:
        state = f"state: a time and a hash of each {key} that punctuation on {time} has not passed"
    return Line("Newest", f"of {key} by {time}", (f"why: {node.why}", state))


def _relation_state(window: Window) -> str:
    if window.kind is WindowKind.UNBOUNDED:
        return "state: rows that wait for their instant to be over"
    return "state: the rows of the window, and those that wait for their instant to be over"


def _change_aggregate_line(node: ph.ChangeAggregateExec) -> Line:
    columns = node.input.schema
    keys = tuple(Column(k, f.name, f.type, f.nullable) for k, f in enumerate(columns))[: node.keys]
    below = node.input
    if isinstance(below, ph.ProjectExec):
        text = aggregate_text(
            below.exprs[: node.keys], tuple(_written(c, below.exprs) for c in node.calls)
        )
    else:
        text = aggregate_text(keys, node.calls)
    held = {
        "append_only": "one entry per group",
        "retract": "one entry per group",
        "weights": "one weight per group",
    }.get(node.method, "one entry per group, and one per row of the relation")
    if node.ends is not None:
        held += " and window that has not ended"
    shown = {
        "istream": ("of each instant the new rows of the groups that change",),
        "dstream": ("of each instant the old rows of the groups that change",),
    }.get(node.shows, ())
    lists = [call.holistic and call.by_time for call in node.calls if call.beside]
    if any(lists):
        held += "; rows' values as they came"
    if not all(lists):
        held += "; different values in order, with how often each is there"
    return Line("ChangeAggregate", text, (f"why: {node.why}", *shown, f"state: {held}"))


def _written(call: AggregateCall, exprs: tuple[Expr, ...]) -> AggregateCall:
    """``call`` with its arguments replaced by the expressions of the projection below."""
    where = None if call.where is None else substitute(call.where, exprs)
    return replace(call, args=tuple(substitute(a, exprs) for a in call.args), where=where)
