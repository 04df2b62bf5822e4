"""Where rows and (row, window) pairs went, per operator: the terms of the conservation laws.

Stateless: in = out + filtered + bad + late. An input with an update queue: in = out + superseded +
shed + held. Sort and merging union: in = out + over_limit + held,
plus late_rows + bad where the watermark releases rows. Dupelim: in = out + duplicates, out = held +
purged (rows still remembered, and rows already forgotten). A union of update streams: in = out +
superseded + late_rows (of keys that are forgotten); some superseded rows are conflicting: another
row has their key and time, and other values. Rows repeated for each of their windows:
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

from cql.executor.operators.contract import Operator
from cql.executor.runtimes.times import OperatorTime


def entry(operator: Operator, refused: Mapping[str, int], peak: int) -> dict[str, Any]:
    """The operator's line in the metrics. ``refused`` counts its bad rows by kind; ``peak`` is the
    peak of its state in bytes."""
    counters = operator.counters()
    found: dict[str, Any] = {"operator": operator.name}
    for name in ("rows_in", "rows_out"):
        found[name] = counters.pop(name)
    found |= counters
    one = operator.any_instance
    if one.counts_bad_rows:
        found |= {"bad": 0, **refused}
    found |= one.derived_counters(found)
    found["state_bytes"] = operator.nbytes
    found["peak_bytes"] = peak
    return found | operator.reported()


def timed(taken: OperatorTime) -> dict[str, Any]:
    """The measurements of an operator, without those not taken."""
    return {name: value for name, value in asdict(taken).items() if value is not None}
