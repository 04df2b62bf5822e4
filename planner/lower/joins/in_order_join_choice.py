"""Chooses the in-order window join by cost (``in_order_join_cost``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cql.planner.lower.joins.in_order_join_condition import JoinRequest
from cql.planner.lower.joins.in_order_join_cost import improvement, load
from cql.planner.nodes.physical import (
    FilterExec,
    JoinOperator,
    OnTimeExec,
    Physical,
    ProjectExec,
    SourceExec,
)

#: Seconds of work per row (look up, store, purge), assumed until the cost is measured.
SERVICE = 1e-7
_NAMES = {
    JoinOperator.SYNC_FILTER: "Sync-Filter",
    JoinOperator.FILTER_ORDER: "Filter-Order",
    JoinOperator.ADAPTIVE: "Adaptive",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """``cost``: seconds to join two rows; None if the operator measures it."""

    operator: JoinOperator
    alpha: float
    cost: float | None
    why: str


def choice_of(request: JoinRequest, settings: Mapping[str, Any]) -> Choice:
    """The operator that the settings force, else Filter-Order or Sync-Filter by c·w·λ1·λ2, or
    Adaptive where a rate is unknown."""
    forced, alpha = str(settings["join_operator"]), float(settings["join_alpha"])
    nanoseconds = int(settings["join_cost"])
    cost = nanoseconds / 1e9 if nanoseconds else None
    rates = [rate_of(child) for child in request.inputs]
    known = [rate for rate in rates if rate is not None]
    expected = _expected_load(request, known, cost) if len(known) == len(rates) else None
    if forced != "auto":
        operator = JoinOperator(forced)
        why = f"SET join_operator = '{forced}'"
    elif expected is None:
        operator, why = JoinOperator.ADAPTIVE, "the rates of its inputs are measured"
    elif expected >= alpha:
        operator = JoinOperator.FILTER_ORDER
        why = f"it spares {improvement(expected):.0%} of the response time (in-order paper, 7)"
    else:
        operator, why = JoinOperator.SYNC_FILTER, "it holds no results"
    compared = ""
    if operator is JoinOperator.ADAPTIVE:
        given = f", c = {nanoseconds:,} ns" if nanoseconds else ""
        compared = f"Filter-Order while c·w·λ1·λ2 ≥ α = {alpha:g}{given}, else Sync-Filter; "
    elif expected is not None:
        sign = "≥" if expected >= alpha else "<"
        compared = f"c·w·λ1·λ2 = {expected:.2g} {sign} α = {alpha:g}; "
    return Choice(operator, alpha, cost, f"{_NAMES[operator]}: {compared}{why}")


def _expected_load(request: JoinRequest, rates: list[float], cost: float | None) -> float:
    """c·w·λ1·λ2, summed over all pairs of inputs. Without a ``cost`` each row takes ``SERVICE``,
    because a hash join takes the same time for any window."""
    if cost is None:
        return SERVICE * sum(sorted(rates)[1:])
    total = 0.0
    for j, fast in enumerate(rates):
        for i, slow in enumerate(rates[:j]):
            stays = max(0, request.reaches[i][j]) + max(0, request.reaches[j][i])
            total += load(cost, stays / 2 / request.second, slow, fast)
    return total


def rate_of(node: Physical) -> float | None:
    """Rows per second of event time, None if unknown. Filters are assumed to pass all rows."""
    while isinstance(node, FilterExec | ProjectExec | OnTimeExec):
        node = node.input
    return node.relation.statistics.rate if isinstance(node, SourceExec) else None
