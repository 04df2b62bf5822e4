"""Compaction of a query's dictionary: over an endless stream most texts die with their windows.

Compaction runs while no morsel is inside the plan. Then the live codes are those in the operators'
state, constants included; each operator enumerates them (``Operator.codes``). Results that a
dictionary table keeps for a live text stay live, so that no result is computed twice. All other
texts are forgotten, and the live ones are renumbered in the same order. The cost is linear in the
texts added since the last compaction and the live texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import CodeColumn, HoldsCodes

#: A compaction is due when the dictionary has grown by as many bytes as the last compaction kept,
#: but by at least LEAST bytes, and at most by max_state / PART.
LEAST = 8 << 20
PART = 8


def is_due(workspace: Workspace) -> bool:
    """Whether the dictionary has grown enough since it was last compacted."""
    kept = workspace.dictionary.kept
    return workspace.dictionary.content > kept + min(max(kept, LEAST), workspace.limit // PART)


def compact(
    workspace: Workspace,
    operators: Sequence[Operator],
    others: Sequence[HoldsCodes] = (),
) -> None:
    """Forgets every text that neither ``operators`` nor ``others`` refer to. ``operators`` are all
    running operators, each instance separately. Call it only while no morsel is inside."""
    dictionary = workspace.dictionary
    live = np.zeros(len(dictionary), bool)
    live[0] = True

    def keep(codes: CodeColumn) -> CodeColumn:
        live[codes[codes >= 0]] = True
        return codes

    states: list[HoldsCodes] = [*operators, *others]
    for state in states:
        state.map_codes(keep)
    held = live.copy()
    found = (op.text_tables for op in operators)
    tables = list(dict.fromkeys(t for t in found if t is not None))  # instances may share tables
    for table in tables:
        live[table.results(held)] = True
    renumbered = dictionary.compact(live)
    for state in states:
        state.map_codes(renumbered.__getitem__)
    for table in tables:
        table.renumber(live, renumbered)
