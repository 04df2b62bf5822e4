"""Prints plans: as a tree with the reason for each choice, or as a Mermaid flowchart.

For each operator, the physical tree shows its parameters, the reason for its choice, the properties
of its output (progressing columns, boundedness, append-only) and the bound of its state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from cql.base.recursion import deep_stack
from cql.planner.explain.line import Line
from cql.planner.explain.logical import logical_line
from cql.planner.explain.physical import physical_line
from cql.planner.nodes import logical as lg
from cql.planner.nodes import physical as ph
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.placement import partitioning

#: A node of a logical or physical plan; the functions of one tree take nodes of one kind only.
Node: TypeAlias = Any


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
        return _mermaid([plan], logical_line, _inputs)
    return "\n".join(_tree(plan, logical_line, _inputs))


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


def _line_under(runtime: ph.RuntimeChoice) -> Callable[[Node], Line]:
    """The function that prints a node under ``runtime``."""

    def line(node: Node) -> Line:
        shown = physical_line(node)
        if not isinstance(node, partitioning.Split):
            return shown
        return replace(shown, notes=(*shown.notes, partitioning.text(node, runtime.name) or ""))

    return line


def _inputs(node: Node) -> tuple[Node, ...]:
    """The nodes below ``node``; of a stream that is a query, the plan of the query."""
    if isinstance(node, ph.SourceExec) and node.query is not None:
        return (node.query.root,)
    if isinstance(node, lg.Scan) and isinstance(node.relation, lg.DerivedStream):
        return (node.relation.query,)
    found: tuple[Node, ...] = node.inputs
    return found


def _roots(roots: Iterable[Node]) -> list[Node]:
    """``roots``, and those of the queries that are streams in their plans."""
    found, waiting = list[Node](), [*roots]
    while waiting:
        found.append(waiting.pop(0))
        nodes = list(NodeNumbers(found[-1]))
        waiting += (child for node in nodes if not node.inputs for child in _inputs(node))
    return found


class _Common:
    """Numbers the operators that several plans share, and shows each in full only once."""

    def __init__(self, roots: Sequence[ph.Physical], line: Callable[[Node], Line]) -> None:
        self._line = line
        self._nodes = NodeNumbers(*_roots(roots))
        holders = Counter(self._nodes[n] for root in roots for n in NodeNumbers(*_roots([root])))
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
    lines, nodes = ["flowchart BT"], NodeNumbers(*_roots(roots))
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
