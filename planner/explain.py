"""Prints plans: as a tree with the reason for each choice, or as a Mermaid flowchart.

For each operator, the physical tree shows its parameters, the reason for its choice, the properties
of its output (progressing columns, boundedness, append-only) and the bound of its state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, assert_never

from cql.base.model import Schema
from cql.base.recursion import deep_stack
from cql.base.window import Window, WindowKind
from cql.planner.lower.choose import duration
from cql.planner.lower.watermark_demand import awaited_text
from cql.planner.nodes import logical as lg
from cql.planner.nodes import physical as ph
from cql.planner.nodes.expr import Column, Expr, substitute
from cql.planner.nodes.logical import AggregateCall, SortKey
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
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.nodes.show import labels, show, show_of
from cql.planner.placement import partitioning

#: A node of a logical or physical plan; the functions of one tree take nodes of one kind only.
Node: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Line:
    """The text of one operator: its name, its parameters, and the notes below."""

    name: str
    text: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.text}".rstrip()


@deep_stack()
def tree(plan: lg.Logical | ph.PhysicalPlan, mode: str = "physical") -> str:
    """The plan as text. ``mode`` is logical (for a logical plan), physical (for a physical plan) or
    mermaid (for either)."""
    if isinstance(plan, ph.PhysicalPlan):
        if mode == "mermaid":
            return _mermaid([plan.root], _line_under(plan.runtime), _inputs)
        lines = _tree(plan.root, _line_under(plan.runtime), _inputs)
        policy = "kept and counted" if plan.keep_bad_rows else "fail the query"
        lines += _runtime_lines(plan.runtime)
        lines.append(f"bad rows: {policy}")
        return "\n".join([*lines, *plan.notes])
    if mode == "mermaid":
        return _mermaid([plan], _logical_line, _inputs)
    return "\n".join(_tree(plan, _logical_line, _inputs))


@deep_stack()
def trees(queries: ph.QuerySetPlan, names: Sequence[str], mode: str = "physical") -> str:
    """The physical plans of a query set. An operator that several plans share is shown in full in
    the first of these plans, with a number; the other plans refer to the number."""
    runtime = queries.plans[0].runtime
    line = _line_under(runtime)
    if mode == "mermaid":
        return _mermaid([p.root for p in queries.plans], line, _inputs)
    common = _Common([p.root for p in queries.plans], line)
    lines = []
    for name, plan in zip(names, queries.plans, strict=True):
        policy = "kept and counted" if plan.keep_bad_rows else "fail the queries"
        lines += [f"{name}: bad rows: {policy}"]
        lines += [*_tree(plan.root, common.line, common.inputs), *plan.notes]
    return "\n".join([*lines, *_runtime_lines(runtime), *queries.notes])


def _runtime_lines(runtime: ph.RuntimeChoice) -> list[str]:
    lines = [f"runtime: {runtime.name} ({runtime.why})"]
    return [*lines, f"scheduler: {runtime.how}"] if runtime.how else lines


def _inputs(node: Node) -> tuple[Node, ...]:
    found: tuple[Node, ...] = node.inputs
    return found


class _Common:
    """Numbers the operators that several plans share, and shows each in full only once."""

    def __init__(self, roots: Sequence[ph.Physical], line: Callable[[Node], Line]) -> None:
        self._line = line
        self._nodes = NodeNumbers(*roots)
        holders = Counter(self._nodes[n] for root in roots for n in NodeNumbers(root))
        self._common = {node for node, queries in holders.items() if queries > 1}
        self._shown: dict[int, int] = {}  # by the number of a node, its number in the text
        self._again: set[int] = set()  # numbers of operators that were shown as a reference

    def line(self, node: Node) -> Line:
        shown, number = self._line(node), self._nodes[node]
        # Filters and projections are not shared: they run in the kernel of each reader.
        if number not in self._common or isinstance(node, ph.FilterExec | ph.ProjectExec):
            return shown
        known = self._shown.get(number)
        if known is not None:
            self._again.add(number)
            return Line(f"#{known}", str(shown))
        known = self._shown[number] = len(self._shown) + 1
        return Line(f"#{known} {shown.name}", shown.text, shown.notes)

    def inputs(self, node: Node) -> tuple[Node, ...]:
        return () if self._nodes[node] in self._again else _inputs(node)


def _tree(
    node: Node,
    line: Callable[[Node], Line],
    inputs: Callable[[Node], tuple[Node, ...]],
    lead: str = "",
    below: str = "",
) -> list[str]:
    shown = line(node)
    children = inputs(node)
    bar = "│  " if children else "   "
    lines = [f"{lead}{shown}"]
    lines += [f"{below}{bar}· {note}" for note in shown.notes if note]
    for k, child in enumerate(children):
        last = k == len(children) - 1
        branch, rest = ("└─ ", "   ") if last else ("├─ ", "│  ")
        lines += _tree(child, line, inputs, below + branch, below + rest)
    return lines


def _mermaid(
    roots: Sequence[Node],
    line: Callable[[Node], Line],
    inputs: Callable[[Node], tuple[Node, ...]],
) -> str:
    lines, nodes = ["flowchart BT"], NodeNumbers(*roots)
    names: dict[int, str] = {}

    def visit(node: Node) -> str:
        number = nodes[node]
        if number in names:
            return names[number]
        shown = line(node)
        label = "<br/>".join([str(shown), *(n for n in shown.notes if n)])
        escaped = label.replace("&", "&amp;").replace('"', "&quot;")
        escaped = escaped.replace("<", "&lt;").replace(">", "&gt;").replace("&lt;br/&gt;", "<br/>")
        name = names[number] = f"n{len(lines)}"
        lines.append(f'    {name}["{escaped}"]')
        lines.extend([f"    {visit(child)} --> {name}" for child in inputs(node)])
        return name

    for root in roots:
        visit(root)
    return "\n".join(lines)


# -- logical -------------------------------------------------------------------------------------


def _logical_line(node: lg.Logical) -> Line:
    match node:
        case lg.Scan():
            names = ", ".join(f.name for f in node.schema)
            return Line("Scan", f"{'.'.join(node.relation.name)} [{names}]")
        case lg.Values():
            return Line("Values", _values_text(node))
        case lg.Filter():
            return Line("Filter", show(node.condition))
        case lg.Project():
            return Line("Project", _named(node.exprs, node.names))
        case lg.Union():
            return Line("Union", "all")
        case lg.Aggregate():
            return Line("Aggregate", _aggregate_text(node.keys, node.calls), (_over(node),))
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
            return Line("Sort", _sort_text(node.keys, node.limit, node.offset))
        case lg.Limit():
            return Line("Limit", _sort_text((), node.limit, node.offset).removeprefix("limit "))
        case lg.RowNumber():
            by = ", ".join(node.input.schema[c].name for c in node.partition)
            return Line("RowNumber", f"by {by} {_sort_text(node.keys, None, 0)}")
        case lg.Windowed():
            return Line("Windowed", window_text(node.window, node.input.schema))
        case lg.Join():
            on = f" on {show(node.condition)}" if node.condition is not None else ""
            return Line("Join", f"{node.kind}{on}")
        case lg.SubqueryJoin():
            text = _subquery_text(node.kind, node.keys)
            condition = f" on {show(node.condition)}" if node.condition is not None else ""
            return Line("SubqueryJoin", text + condition)
        case lg.SetOperation():
            return Line(node.kind.capitalize(), "" if node.distinct else "all")
        case lg.RelationToStream():
            return Line(node.kind.capitalize(), "")
        case lg.Unsupported():
            return Line("Unsupported", node.clause)
        case _:
            assert_never(node)


def _subquery_text(kind: str, keys: Sequence[Expr]) -> str:
    return f"{kind} {', '.join(map(show, keys))}".strip()


def _values_text(node: lg.Values | ph.ValuesExec) -> str:
    return f"{len(node.rows)} row{'' if len(node.rows) == 1 else 's'}"


def _over(node: lg.Aggregate) -> str:
    if node.window is None:
        return "over the whole input"
    return window_text(node.window, node.input.schema)


def window_text(window: Window, schema: Schema) -> str:
    """``[RANGE 1 hour SLIDE 10 minutes WA sched]``."""
    wa = schema[window.wa] if window.wa is not None else None
    parts = []
    if window.partition_by:
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


# -- physical ------------------------------------------------------------------------------------


def _line_under(runtime: ph.RuntimeChoice) -> Callable[[Node], Line]:
    """The function that prints a node under ``runtime``."""

    def line(node: Node) -> Line:
        shown = _physical_line(node)
        if not isinstance(node, ph.WidAggregateExec | OopJoinExec):
            return shown
        return replace(shown, notes=(*shown.notes, partitioning.text(node, runtime.name) or ""))

    return line


def _physical_line(node: ph.Physical) -> Line:
    match node:
        case ph.SourceExec():
            names = ", ".join(f.name for f in node.schema)
            shape = "bounded" if node.relation.bounded else "unbounded"
            notes = (node.why, awaited_text(node), f"{shape}, append-only{_progress_text(node)}")
            return Line("Source", f"{node.name} [{names}]", notes)
        case ph.ValuesExec():
            return Line("Values", _values_text(node))
        case ph.FilterExec():
            return Line("Filter", show(node.condition))
        case ph.ProjectExec():
            return Line("Project", _named(node.exprs, node.names), (node.why,))
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
            more = _sort_text(node.keys, None, 0).removeprefix("by ")
            text = ", ".join(t for t in (f"by {time}", more) if t)
            state = "state: the rows that the watermark has not passed"
            return Line("PunctuatedSort", text, (node.why, state, _left_out(node)))
        case ph.LimitExec():
            text = _sort_text((), node.limit, node.offset)
            return Line("Limit", text.removeprefix("limit "), (node.why, "state: one number"))
        case ph.SlackExec():
            state = "none" if node.rows is None else f"{node.rows + 1:,} times"
            return Line(
                "Slack", f"on {node.schema[node.attribute].name}", (node.why, f"state: {state}")
            )
        case ph.WidAggregateExec():
            return _wid_line(node)
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
            return _join_line(node)
        case WindowJoinExec():
            return _window_join_line(node)
        case RelationJoinExec():
            return _relation_join_line(node)
        case TableJoinExec():
            return _table_join_line(node)
        case UnnestExec():
            return _unnest_line(node)
        case AsofJoinExec():
            return _asof_line(node)
        case ph.SetOperationExec():
            kind = node.kind.capitalize() + ("" if node.distinct else "All")
            return Line(kind, "", (node.why, "state: the rows of both sides, with their weights"))
        case ph.TopExec():
            text = _sort_text(node.keys, node.limit, node.offset)
            return Line("Top", text, (node.why, "state: the rows of the relation, in order"))
        case ph.RowNumberExec():
            by = ", ".join(node.input.schema[c].name for c in node.partition)
            text = _sort_text(node.keys, None, 0) + (f", to {node.limit}" if node.limit else "")
            state = "state: the rows of the relation, in order"
            if node.forgets:
                state = f"state: the first {node.limit} rows of each partition"
            return Line("RowNumber", f"by {by} {text}" if by else text, (node.why, state))
        case ph.StreamExec():
            state = "the rows of the relation" if node.kind == "rstream" else "none"
            return Line(node.kind.capitalize(), "", (node.why, f"state: {state}"))
        case ph.SortExec():
            state = "state: the rows of open windows" if node.window_end is not None else ""
            text = _sort_text(node.keys, node.limit, node.offset)
            if node.number is not None and node.window_end is not None:
                within = (node.window_end, *node.partition)
                by = ", ".join(node.input.schema[c].name for c in within)
                return Line("RowNumber", f"by {by} {text}", (node.why, state))
            return Line("Sort", text, (node.why, state or "state: the whole input"))
        case _:
            assert_never(node)


def _left_out(node: ph.MergeUnionExec | ph.PunctuatedSortExec) -> str:
    return f"leaves out late rows, append-only{_progress_text(node)}, in its order"


def _wid_line(node: ph.WidAggregateExec) -> Line:
    text = _aggregate_text(node.keys, node.calls)
    if node.window is None:
        return Line("WidAggregate", text, (f"why: {node.why}", "state: one entry per group"))
    if node.window.kind is WindowKind.SESSION:
        notes = (
            f"over {window_text(node.window, node.input.schema)}",
            f"why: {node.why}",
            "state: open sessions (those that punctuation has not passed by more than the gap)",
            f"append-only{_progress_text(node)}",
        )
        return Line("SessionAggregate", text, notes)
    low = ""
    if node.flush is not None:
        name, parts, many = "TwoLevelAggregate", "windows", node.window.overlap
        low = f"{node.flush.entries:,} partial aggregates, "
        if node.flush.windows and node.flush.policy is not ph.FlushPolicy.AT_ONCE:
            many += node.flush.windows
    elif node.pane is None:
        name, parts, many = "WidAggregate", "windows", node.window.overlap
    else:
        name = {
            ph.WindowOperator.TWO_STACKS: "TwoStacksAggregate",
            ph.WindowOperator.SUBTRACT: "SubtractAggregate",
            ph.WindowOperator.BUFFERED: "BufferedAggregate",
            ph.WindowOperator.WID: "WidAggregate",
        }.get(node.operator, "PaneAggregate")
        parts, many = "panes", (node.window.range or 0) // node.pane
    windows: tuple[Window, ...] = (node.window,)
    if isinstance(node, ph.SharedPanesExec):
        name, windows = "SharedPaneAggregate", node.windows
        many = max(w.range or 0 for w in windows) // (node.pane or 1)
    state = f"{low}groups x open {parts} (at most {many} per instant, and"
    if node.operator is ph.WindowOperator.BUFFERED:
        low = "or groups x open panes; " if node.adaptive else "and the groups of one; "
        state = f"the rows of open windows, {low}(at most {many} panes per instant, and"
    notes = (
        "over " + ", ".join(window_text(w, node.input.schema) for w in windows),
        f"why: {node.why}",
        f"state: {state} those that punctuation has not passed)",
        f"append-only{_progress_text(node)}",
    )
    return Line(name, text, notes)


def _dupelim_line(node: ph.DupelimExec) -> Line:
    name = node.schema[node.by].name
    kept = f"of one {name}" if node.in_order else f"that punctuation on {name} has not passed"
    notes = (
        f"why: {node.why}",
        f"state: the different rows {kept}",
        f"append-only{_progress_text(node)}",
    )
    return Line("Dupelim", ", ".join(node.schema.names), notes)


def _relation_state(window: Window) -> str:
    if window.kind is WindowKind.UNBOUNDED:
        return "state: rows that wait for their instant to be over"
    return "state: the rows of the window, and those that wait for their instant to be over"


def _change_aggregate_line(node: ph.ChangeAggregateExec) -> Line:
    columns = node.input.schema
    keys = tuple(Column(k, f.name, f.type, f.nullable) for k, f in enumerate(columns))[: node.keys]
    below = node.input
    if isinstance(below, ph.ProjectExec):
        text = _aggregate_text(
            below.exprs[: node.keys], tuple(_written(c, below.exprs) for c in node.calls)
        )
    else:
        text = _aggregate_text(keys, node.calls)
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


def _progress_text(node: ph.Physical) -> str:
    live = node.progressing
    if not live:
        return ""
    return ", watermark on " + ", ".join(node.schema[c].name for c in live)


# -- shared --------------------------------------------------------------------------------------


def _named(exprs: tuple[Expr, ...], names: tuple[str, ...]) -> str:
    pairs = zip(exprs, names, strict=True)
    return ", ".join(t if (t := show(e)) == n else f"{t} AS {n}" for e, n in pairs)


def _aggregate_text(keys: tuple[Expr, ...], calls: tuple[AggregateCall, ...]) -> str:
    by = f" by {', '.join(show(k) for k in keys)}" if keys else ""
    return (", ".join(call_text(c) for c in calls) or "distinct") + by


def call_text(call: AggregateCall) -> str:
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


def _sort_text(keys: tuple[SortKey, ...], limit: int | None, offset: int) -> str:
    order = ", ".join(f"{show(k.expr)}{' DESC' if k.descending else ''}" for k in keys)
    parts = [f"by {order}" if order else ""]
    parts += [f"limit {limit}"] if limit is not None else []
    parts += [f"offset {offset}"] if offset else []
    return " ".join(p for p in parts if p)


def _conditions(
    left: Schema, right: Schema, keys: Iterable[tuple[int, int]], rest: Iterable[Expr]
) -> list[str]:
    """The conditions of a join, as text."""
    lefts, rights = labels(left, right)
    parts = [f"{lefts[a]} = {rights[b]}" for a, b in keys]
    return parts + [show_of(e, [*lefts, *rights]) for e in rest]


def _join_line(node: OopJoinExec) -> Line:
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


def _table_join_line(node: TableJoinExec) -> Line:
    parts = _conditions(node.input.schema, node.table.schema, node.keys, node.rest)
    names = ", ".join(s.name for s in ph.sources(node.table))
    kind = "" if node.kind == "inner" else node.kind
    state = f"state: the rows of {names or 'the table'}{', by key' if node.keys else ''}"
    notes = (f"why: {node.why}", state, f"append-only{_progress_text(node)}")
    return Line("TableJoin", f"{kind} {' AND '.join(parts)}".strip(), notes)


def _unnest_line(node: UnnestExec) -> Line:
    shown = dict(zip(node.columns, node.names, strict=True)).get(node.width)
    called = "" if shown is None else f" AS {shown}"
    kind = "" if node.kind == "inner" else f"{node.kind} "
    notes = (f"why: {node.why}", "state: none", f"append-only{_progress_text(node)}")
    return Line("Unnest", f"{kind}{node.input.schema[node.array].name}{called}", notes)


def _relation_join_line(node: RelationJoinExec) -> Line:
    left, right = (Schema(side.schema.fields[:-2]) for side in (node.left, node.right))
    parts = _conditions(left, right, node.keys, node.rest)
    on = " on " + " AND ".join(parts) if parts else ""
    state = "state: the rows of both sides, by key"
    if node.kind != "inner":
        state += ", and how many partners each has"
    return Line("RelationJoin", f"{node.kind}{on}", (f"why: {node.why}", state))


def _asof_line(node: AsofJoinExec) -> Line:
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
    notes = (f"why: {node.why}{within}", state, f"append-only{_progress_text(node)}, in its order")
    if node.rows > 1:
        parts.append(f"the {node.rows} {word} rows")
    return Line("AsofJoin", f"{'left ' if node.pads else ''}{' AND '.join(parts)}", notes)


def _window_join_line(node: WindowJoinExec) -> Line:
    names = labels(*(child.schema for child in node.inputs))
    parts = [" = ".join(names[i][c] for i, c in columns) for columns in node.keys]
    parts += [show_of(e, [n for side in names for n in side]) for e in node.rest]
    times = ", ".join(s[t] for s, t in zip(names, node.times, strict=True))
    order = f"order: the latest of {times}"
    state = "state: rows that later ones of the other inputs can join, those that wait for the "
    state += "other inputs, and results that do"
    return Line("WindowJoin", " AND ".join(parts), (f"why: {node.why}", order, state))
