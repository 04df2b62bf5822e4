"""Compaction of a query's dictionary: over an endless stream most texts die with their windows.

At a moment when no morsel is inside the plan, the codes that matter are those in the operators'
state, constants included; each operator declares its places once (``Operator.map_codes``). Results
that a table keeps for such a text stay too, so that nothing is computed twice. All other texts are
forgotten and the rest is renumbered, in the same order. The cost is that of the texts added since
the last time and of those that stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.executor.morsel.partitioned_watermark import Values
from cql.executor.operators.stage.operator import CodeColumn, Operator, StageOperator, Workspace
from cql.executor.run.input_scheduler import InputScheduler

#: The dictionary grows by as much as it kept the last time; by at least this many bytes, and at
#: most this part of max_state.
LEAST = 8 << 20
PART = 8


def is_due(workspace: Workspace) -> bool:
    """Whether the dictionary has grown enough since it was last compacted."""
    kept = workspace.dictionary.kept
    return workspace.dictionary.content > kept + min(max(kept, LEAST), workspace.limit // PART)


def compact(
    workspace: Workspace,
    operators: Sequence[Operator],
    others: Sequence[Values | InputScheduler] = (),
) -> None:
    """Forgets every text to which no operator refers, nor one of ``others``; ``operators`` are all
    that run, instances each by itself. Only while no morsel is inside."""
    dictionary = workspace.dictionary
    live = np.zeros(len(dictionary), bool)
    live[0] = True

    def keep(codes: CodeColumn) -> CodeColumn:
        live[codes[codes >= 0]] = True
        return codes

    states: list[Operator | Values | InputScheduler] = [*operators, *others]
    for state in states:
        state.map_codes(keep)
    held = live.copy()
    stages = [op for op in operators if isinstance(op, StageOperator)]
    tables = list(dict.fromkeys(op.tables for op in stages))  # instances may share them
    for table in tables:
        live[table.results(held)] = True
    renumbered = dictionary.compact(live)
    for state in states:
        state.map_codes(renumbered.__getitem__)
    for table in tables:
        table.renumber(live, renumbered)
