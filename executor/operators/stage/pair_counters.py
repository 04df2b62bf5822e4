"""The number of (row, window) pairs of a stage, which it does not count itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cql.base.window import WindowKind
from cql.executor.operators.stage.spec import StageSpec
from cql.planner.nodes.physical import BucketExec, SharedPanesExec


def pairs(spec: StageSpec, counters: Mapping[str, Any]) -> dict[str, int]:
    """The number of (row, window) pairs; empty if the rows' numbers of windows differ."""
    window = spec.aggregate.window if spec.aggregate is not None else None
    if isinstance(spec.aggregate, SharedPanesExec):
        return {}  # each of its windows counts its own pairs
    buckets = [step.window for step in spec.steps if isinstance(step, BucketExec)]
    window = buckets[0] if buckets else window
    rows = counters["rows_in"] - counters.get("bad", 0) - filtered(counters, "")
    if window is not None and window.kind is WindowKind.SESSION:
        return {"pairs": rows}
    if window is None or not window.range or not window.slide:
        return {}
    cumulates = window.kind is WindowKind.CUMULATE
    if buckets and (cumulates or window.range % window.slide):
        # The number of pairs differs between rows: count the outcomes of the pairs.
        gone = filtered(counters, "pairs") + counters.get("bad_pairs", 0)
        return {"pairs": counters["rows_out"] + gone}
    if cumulates or (window.range % window.slide and window.range > window.slide):
        return {}
    return {"pairs": window.overlap * rows - counters.get("between_windows", 0)}


def filtered(counters: Mapping[str, Any], what: str) -> int:
    """Filtered items over all filters: ``what`` is "" for rows, "pairs", or "after" for results of
    an aggregate."""
    lead = f"filtered_{what}_" if what else "filtered_"
    names = (n for n in counters if n.startswith(lead) and (what or n[len(lead)].isdigit()))
    return sum(counters[n] for n in names)
