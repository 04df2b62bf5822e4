"""EXPLAIN: the plan of a query as text; EXPLAIN ANALYZE: the plan with a run's measurements."""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cql.base.settings import Settings
from cql.base.uninterruptible import load_module
from cql.functions import notes
from cql.planner.explain import tree as explain
from cql.planner.nodes import statements as st
from cql.planner.nodes.logical import Logical
from cql.planner.nodes.physical import PhysicalPlan, with_queries
from cql.planner.optimize import rules
from cql.query.run import Run
from cql.show import render

if TYPE_CHECKING:
    from cql.executor.run.run_report import Timing

#: The line width, in characters, of the wrapped text.
_WIDTH = 100


def explanation(
    mode: str,
    logical: Logical,
    plan: PhysicalPlan,
    latest: Run | None,
    new: Callable[[], Run],
) -> str:
    if mode in ("physical", "analyze"):
        describe = load_module("cql.executor.texts.describe")
        found = list(plan.notes)
        for each in with_queries(plan):
            found += notes.notes(each.root)
            found += describe.text_notes(each.root, each.runtime.text_threads)
        plan = replace(plan, notes=tuple(dict.fromkeys(found)))
    match mode:
        case "logical":
            return explain.tree(logical, mode)
        case "kernel":
            return _kernel_text(latest or new())
        case "analyze":
            assert latest is not None
            return f"{explain.tree(plan, 'physical')}\n\n{measured(latest)}"
        case _:
            return explain.tree(plan, mode)


def _kernel_text(run: Run) -> str:
    if not run.kernel_sources():
        # A run with an early request to stop writes the sources, but compiles and reads nothing.
        run.request_stop()
        deque(run.batches(), maxlen=0)
    parts = run.kernel_sources().items()
    return "\n\n".join(f"# {name}\n{source}" for name, source in parts)


def logical_text(bound: st.Query, settings: Settings) -> str:
    plan = rules.optimize(bound.plan, join_order=settings.join_order)
    return explain.tree(plan, "logical")


def measured(run: Run) -> str:
    """The counts and times of a run: a table of the operators, then each operator's further counts,
    then the totals of the run."""
    metrics, timing, progress = run.metrics(), run.timing(), run.progress()
    lines = _table(metrics)
    for entry in metrics:
        counts = [f"{name} {value:,}" for name, value in _further(entry).items() if value]
        if counts:
            text = f"{entry['operator']}: {', '.join(counts)}"
            lines += textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False)
        if why := entry.get("why_partitions"):
            lines.append(f"{entry['operator']}: {why}")
    rate = render.rate_text(progress.rows_in, progress.elapsed)
    lines.append(
        f"{render.count_text(progress.rows_in)} in, {progress.rows_out:,} out in"
        f" {render.duration_text(progress.elapsed)} ({rate}); {progress.late:,} late,"
        f" {progress.bad:,} bad"
    )
    if timing is not None:
        lines += _time_lines(timing)
    lines += [line for line in (run.held_back(), run.sharing()) if line is not None]
    return "\n".join(lines)


#: The columns of the table: their names, and the text that each shows of an operator's metrics.
_COLUMNS: dict[str, Callable[[Mapping[str, Any], float], str | None]] = {
    "operator": lambda of, _: str(of["operator"]),
    "rows in": lambda of, _: f"{of['rows_in']:,}",
    "rows out": lambda of, _: f"{of['rows_out']:,}" if "rows_out" in of else None,
    "out/in": lambda of, _: (
        render.figure_text(of["rows_out"] / of["rows_in"]) if _passes(of) else None
    ),
    "a row": lambda of, _: _span(of["nanoseconds"] / of["rows_in"]) if _took(of) else None,
    "share": lambda of, total: f"{of['nanoseconds'] / total:.0%}" if _took(of) else None,
    "response": lambda of, _: _span(of["response"]) if "response" in of else None,
    "queue": lambda of, _: f"{of['queue']:.1f}" if "queue" in of else None,
    "most": lambda of, _: f"{of['longest']:,}" if "longest" in of else None,
    "reorder": lambda of, _: _span(of["reorder"]) if "reorder" in of else None,
    "parts": lambda of, _: f"{of['partitions']}" if "partitions" in of else None,
    "largest": lambda of, _: f"{of['largest']:.0%}" if "largest" in of else None,
    "scheduler": lambda of, _: of["scheduler"].replace("_", "-") if "scheduler" in of else None,
    "in queue": lambda of, _: _stale(of, "queue_staleness"),
    "stale": lambda of, _: _stale(of, "staleness"),
    "stalest": lambda of, _: _stale(of, "worst_staleness"),
    "punct. in": lambda of, _: f"{of['punctuation_in']:,}" if "punctuation_in" in of else None,
    "punct. out": lambda of, _: f"{of['punctuation_out']:,}" if "punctuation_out" in of else None,
    "bad": lambda of, _: f"{of['bad']:,}" if of.get("bad") else None,
    "late": lambda of, _: f"{of['late']:,}" if of.get("late") else None,
    "state": lambda of, _: render.size_text(of["peak_bytes"]) if of.get("peak_bytes") else None,
}
_SHOWN = {"operator", "rows_in", "rows_out", "bad", "late", "peak_bytes", "state_bytes"}
_SHOWN |= {"nanoseconds", "response", "queue", "longest", "reorder", "partitions", "largest"}
_SHOWN |= {"scheduler", "goal", "queue_staleness", "staleness", "worst_staleness"}
_SHOWN |= {"why_partitions", "punctuation_in", "punctuation_out"}


def _further(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of an operator that no column of the table shows."""
    return {name: value for name, value in entry.items() if name not in _SHOWN}


def _stale(entry: Mapping[str, Any], name: str) -> str | None:
    """A staleness, which the metrics have in seconds."""
    return _span(entry[name] * 1e9) if name in entry else None


def _passes(entry: Mapping[str, Any]) -> bool:
    """Whether the operator has counted input rows and output rows."""
    return bool(entry["rows_in"]) and "rows_out" in entry


def _share_text(entry: Mapping[str, Any]) -> str:
    return render.figure_text(entry["rows_out"] / entry["rows_in"])


def _took(entry: Mapping[str, Any]) -> bool:
    return bool(entry["rows_in"]) and "nanoseconds" in entry


def _table(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table: one line per operator. A column without any value is left out."""
    total = sum(entry.get("nanoseconds", 0) for entry in metrics) or 1
    shown = {name: [cell(entry, total) for entry in metrics] for name, cell in _COLUMNS.items()}
    columns = [[name, *(c or "" for c in cells)] for name, cells in shown.items() if any(cells)]
    for k, cells in enumerate(columns):
        width = max(map(len, cells))
        columns[k] = [c.rjust(width) if k else c.ljust(width) for c in cells]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _time_lines(timing: Timing) -> list[str]:
    """The lines that split the time of the whole run by activity."""
    prepared, ran = (render.duration_text(t) for t in (timing.prepared, timing.ran))
    summary = f"prepared in {prepared}, ran for {ran}"
    if not timing.workers:
        return [summary]
    whole = max(timing.ran, 1e-9) * 1e9
    shares = (f"{w.busy / whole:.0%} ({w.asleep / whole:.0%})" for w in timing.workers)
    line = f"time of each worker at operators (and asleep): {', '.join(shares)}"
    lines = [summary, f"{line}; the first also reads, and gives the results"]
    if (marked := timing.markers) is not None:
        mean, p50, p99 = (_span(t) for t in (marked.mean, marked.p50, marked.p99))
        lines.append(
            f"markers: {marked.morsels:,} morsels through all operators in {mean} on average,"
            f" 50% in {p50}, 99% in {p99}"
        )
    return lines


def _span(nanoseconds: float) -> str:
    """A short time in nanoseconds as text, to about three digits."""
    for unit, size in (("ns", 1), ("µs", 1e3), ("ms", 1e6)):
        if nanoseconds < 1000 * size:
            return f"{render.figure_text(nanoseconds / size)} {unit}"
    return f"{render.figure_text(nanoseconds / 1e9)} s"
