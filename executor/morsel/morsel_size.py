"""Morsel sizes: rows admitted at once, and rows collected before a result leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cql.executor.graph.graph import Graph
from cql.executor.protocols import BLOCK_ROWS
from cql.planner.nodes.physical import Physical, PhysicalPlan, ProjectExec, walk
from cql.planner.placement.cost import calls_python
from cql.planner.placement.morsel_sensitivity import depends_on_morsels

#: The largest morsels of the ordered runtime, in rows: in general, and if Python has work to do for
#: each morsel (speedup of TPCx-BB 2 on two workers: 1.0 with 4,096 rows, 1.3 with 16,384, 1.1 with
#: 65,536).
ORDERED_ROWS, PYTHON_ROWS = 4096, 16_384
#: The largest morsels of any runtime, in rows, if results depend on the morsel size and the time
#: per morsel cannot be measured (speedup of TPCx-BB 1 on two workers: 1.4 with 4,096 rows, 1.7 with
#: 2,048 and with 1,024).
FIXED_ROWS = 2048
#: Target time of the slowest operator per morsel of the ordered runtime, in microseconds.
_MORSEL_US = 60


def sizes(
    plans: Sequence[PhysicalPlan], settings: Mapping[str, Any], driver: str
) -> tuple[int, int]:
    """The largest morsel in rows, and the target time of the slowest operator per morsel of the
    ordered runtime in microseconds. The target is long enough to amortize a handover and short
    enough for low latency; it is 0 if the setting fixes the rows or if results depend on the morsel
    size."""
    requested, most = int(settings["morsel_rows"]), BLOCK_ROWS
    fixed = any(map(depends_on_morsels, plans))
    if fixed or driver == "ordered":
        small = FIXED_ROWS if fixed else ORDERED_ROWS
        most = PYTHON_ROWS if any(_gives_to_python(plan.root) for plan in plans) else small
    return min(requested, most), 0 if requested < ORDERED_ROWS or fixed else _MORSEL_US


def _gives_to_python(plan: Physical) -> bool:
    """Whether Python has work to do for each morsel: operators in Python, or texts that leave with
    the block for which they were computed."""
    blocks = (isinstance(node, ProjectExec) and node.in_blocks for node in walk(plan))
    return calls_python(plan) or any(blocks)


def gathered(
    graph: Graph, carrying: Collection[int], settings: Mapping[str, Any], driver: str, *, live: bool
) -> dict[int, int]:
    """By operator: the number of result rows that a sink's operator collects into one batch. A
    bounded query delivers its whole answer, so small batches only cost. If a consumer waits for
    results (``live``), the ordered runtime still collects its small morsels, but only within one
    block. Operators in ``carrying`` do not collect: their carried columns are read from the source
    block and leave with it."""
    if live and driver != "ordered":
        return {}
    rows = min(int(settings["morsel_rows"]), BLOCK_ROWS) // 2
    return {sink: rows for sink in graph.sinks if sink not in carrying}
