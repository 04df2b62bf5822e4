"""How large morsels are: what is admitted at once, and what the last operators collect before it
leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cql.executor.graph.graph import Graph
from cql.executor.operators.flow.dupelim import DupelimOperator
from cql.executor.operators.flow.replicas import first_of
from cql.executor.operators.joins.oop_join import OopJoinOperator
from cql.executor.operators.stage.operator import Operator, StageOperator
from cql.executor.protocols import BLOCK_ROWS
from cql.planner.nodes.physical import PhysicalPlan
from cql.planner.placement.cost import asks_python
from cql.planner.placement.morsel_sensitivity import depends_on_morsels

#: Rows of a morsel of the ordered runtime at most; and where Python goes through each, which then
#: costs little beside (TPCx-BB 2 on two workers: 1.0 times one with 4,096, 1.3 with 16,384, 1.1
#: with 65,536).
ORDERED_ROWS, PYTHON_ROWS = 4096, 16_384
#: And of any runtime, where what leaves depends on it, and how long a morsel takes cannot be looked
#: at (TPCx-BB 1 on two workers: 1.4 times one with 4,096, 1.7 with 2,048 and with 1,024).
FIXED_ROWS = 2048
#: Microseconds that the operator with the most to do takes for a morsel of the ordered runtime.
_MORSEL_US = 60


def sizes(
    plans: Sequence[PhysicalPlan], settings: Mapping[str, Any], driver: str
) -> tuple[int, int]:
    """Rows of a morsel at most; and how long the operator with the most to do takes for a morsel of
    the ordered runtime, in microseconds: long enough for what it costs to hand it on, and short
    enough for it to leave soon; 0 if its rows are told, or what leaves depends on them."""
    told, most = int(settings["morsel_rows"]), BLOCK_ROWS
    fixed = any(map(depends_on_morsels, plans))
    if fixed or driver == "ordered":
        small = FIXED_ROWS if fixed else ORDERED_ROWS
        most = PYTHON_ROWS if any(asks_python(plan.root) for plan in plans) else small
    return min(told, most), 0 if told < ORDERED_ROWS or fixed else _MORSEL_US


def gathered(
    graph: Graph, carrying: Collection[int], settings: Mapping[str, Any], driver: str, *, live: bool
) -> dict[int, int]:
    """By operator: rows that the results of the last ones are collected to before they become a
    batch. A bounded query is asked for its whole answer, so small batches only cost. Where results
    are waited for (``live``), morsels of the ordered runtime, which are small, are collected, but
    do not wait for those of another block. Columns that are read from the source's block leave with
    it: those of the operators ``carrying`` them."""
    if live and driver != "ordered":
        return {}
    rows = min(int(settings["morsel_rows"]), BLOCK_ROWS) // 2
    return {sink: rows for sink in graph.sinks if sink not in carrying}


def fills(operator: Operator) -> bool:
    """Whether each call writes behind the rows that are in the output, so that the morsel itself
    collects them. Other operators write from the first row on, or pass columns by reference: their
    small results are copied."""
    last = first_of(operator)
    if isinstance(last, StageOperator):
        return not (last.code.by_ref or last.code.passes)
    return isinstance(last, OopJoinOperator | DupelimOperator)
