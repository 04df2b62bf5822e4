"""Where rows and (row, window) pairs went, per operator: the terms of the conservation laws.

Stateless: in = out + filtered + bad + late. Sort and merging union: in = out + over_limit + held,
plus late_rows + bad where the watermark releases rows. Dupelim: in = out + duplicates, out = held +
purged (rows still remembered, and rows already forgotten). Rows repeated for each of their windows:
pairs = out + filtered_pairs + bad_pairs. Aggregate: rows that are neither filtered nor bad make
(row, window) pairs, some of them late; groups_out (of windows_closed) = out + filtered_after +
bad_results + over_limit (results that a LIMIT above would leave out). Windows over the rows of each
key: in = held + purged + between_windows. A relation: in = entered + waiting, entered = left +
held, out = entered + left. A join of streams in order: in = held (in windows) + queued (not yet
joined) + purged + rows with a NULL key + late rows. Terms that would cost time per row are derived
on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cql.base.window import WindowKind
from cql.executor.kernels.morsel_layout import PHASE, SUB
from cql.executor.operators.flow.replicas import PartitionedOperator, first_of
from cql.executor.operators.order.merge import MergeOperator
from cql.executor.operators.stage.operator import Operator, StageOperator
from cql.executor.runtimes.protocol import Failure
from cql.executor.runtimes.times import OperatorTime
from cql.planner.nodes.physical import BucketExec, SharedPanesExec


def kind_of(operator: StageOperator, failure: Failure) -> str:
    """The kind of refused item: a row, a (row, window) pair, or a result of an aggregate."""
    words = failure.morsel.words
    if words[PHASE] > len(operator.code.kernel.hosts):
        return "bad_results"
    return "bad_pairs" if words[SUB] > 0 else "bad"


def entry(operator: Operator, refused: Mapping[str, int], peak: int) -> dict[str, Any]:
    """The operator's line in the metrics. ``refused`` counts its bad rows by kind; ``peak`` is the
    peak of its state in bytes."""
    counters = operator.counters()
    found: dict[str, Any] = {"operator": operator.name}
    for name in ("rows_in", "rows_out"):
        found[name] = counters.pop(name)
    found |= counters
    one = first_of(operator)
    if isinstance(one, StageOperator):
        found |= {"bad": 0, **refused}
        found |= _pairs(one, found)
    elif isinstance(one, MergeOperator):
        found |= {"bad": 0, **refused}
    found["state_bytes"] = getattr(operator, "state_bytes", 0)
    found["peak_bytes"] = peak
    if isinstance(operator, PartitionedOperator):
        rows = [instance.counters()["rows_in"] for instance in operator.instances]
        found |= {"partitions": len(rows), "largest": max(rows) / max(sum(rows), 1)}
        if operator.why:
            found["why_partitions"] = operator.why
    return found


def timed(taken: OperatorTime) -> dict[str, Any]:
    """The measurements of an operator, without those not taken."""
    return {name: value for name, value in asdict(taken).items() if value is not None}


def _pairs(operator: StageOperator, counters: Mapping[str, Any]) -> dict[str, int]:
    """The number of (row, window) pairs; empty if the rows' numbers of windows differ."""
    spec = operator.spec
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
