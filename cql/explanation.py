"""EXPLAIN: the plan of a query as text, with what a run of it has measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cql import function_notes, render
from cql.planner import explain, rules
from cql.planner import statements as st
from cql.planner.logical import Logical
from cql.planner.physical import PhysicalPlan
from cql.query import Run


def explanation(
    mode: str,
    logical: Logical,
    plan: PhysicalPlan,
    latest: Run | None,
    new: Callable[[], Run],
) -> str:
    if mode in ("physical", "analyze"):
        plan = replace(plan, notes=(*plan.notes, *function_notes.notes(plan.root)))
    match mode:
        case "logical":
            return explain.tree(logical, mode)
        case "kernel":
            return _kernel_text(latest or new())
        case "analyze":
            assert latest is not None
            return f"{explain.tree(plan, 'physical')}\n\n{_measured(latest)}"
        case _:
            return explain.tree(plan, mode)


def _kernel_text(run: Run) -> str:
    if not run.kernel_sources():
        # Asked to stop before it begins, a run compiles and reads nothing.
        run.request_stop()
        deque(run.batches(), maxlen=0)
    parts = run.kernel_sources().items()
    return "\n\n".join(f"# {name}\n{source}" for name, source in parts)


def logical_text(bound: st.Query) -> str:
    return explain.tree(rules.optimize(bound.plan), "logical")


def _measured(run: Run) -> str:
    """What a run has counted: a line for each operator, then the whole."""
    metrics = run.metrics()
    names = dict.fromkeys(key for entry in metrics for key in entry)
    cells = [list(names)]
    cells += [[_cell(entry.get(name)) for name in names] for entry in metrics]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    lines = []
    for row in cells:
        first, *rest = zip(row, widths, strict=True)
        lines.append("  ".join([first[0].ljust(first[1]), *(c.rjust(w) for c, w in rest)]))
    progress = run.progress()
    rate = render.rate_text(progress.rows_in, progress.elapsed)
    lines.append(
        f"{render.count_text(progress.rows_in)} in, {progress.rows_out:,} out in"
        f" {render.duration_text(progress.elapsed)} ({rate}); {progress.late:,} late,"
        f" {progress.bad:,} bad"
    )
    if (held := run.held_back()) is not None:
        lines.append(held)
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:,}"
    return "" if value is None else str(value)
