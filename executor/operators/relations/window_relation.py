"""Windows without SLIDE: turn a stream into a relation, given by the changes of each instant.

A row with event time t enters at t. Under ``[RANGE r]`` the row leaves at the first instant after
t + r (``[NOW]`` is ``[RANGE 0]``). Under ``[ROWS n]`` it leaves when n later rows have entered, in
the order of event time, ties by arrival (CQL paper §6.2). As in STREAM, a RANGE window outputs the
rows that leave at an instant before the rows that enter; a ROWS window outputs them after.
"""

from __future__ import annotations

from typing import TypeAlias

from cql.base.window import MAX_EVENT_TIME, WindowKind
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.kernels.relations import frontier
from cql.executor.kernels.relations import window_relation as kernel
from cql.executor.morsel.morsel import Words, value_bytes
from cql.executor.operators.relations.frontier import FrontierOperator
from cql.executor.operators.relations.keyed_rows import KeyedRowsOperator
from cql.executor.operators.workspace import Workspace
from cql.planner.nodes.physical import RelationExec


class WindowRelationOperator(FrontierOperator):
    """[RANGE r], [NOW], [RANGE UNBOUNDED] and [ROWS n] (``kernels.relations.window_relation``).
    State: the rows of the window and those that wait."""

    def __init__(self, name: str, node: RelationExec, workspace: Workspace) -> None:
        schema, window = node.input.schema, node.window
        assert window.wa is not None
        super().__init__(name, schema, window.wa, len(schema), kernel.END, workspace)
        d = self.descriptor
        d[kernel.FIRST] = INFINITY
        d[kernel.TIME_BYTES] = value_bytes(node.schema[len(schema)].type)
        if window.kind is WindowKind.ROWS:
            d[[kernel.KIND, kernel.MOST]] = kernel.OF_ROWS, window.rows or 0
        elif window.kind is not WindowKind.UNBOUNDED:
            stay = min(window.range or 0, MAX_EVENT_TIME) + 1
            d[[kernel.KIND, kernel.STAY]] = kernel.OF_RANGE, stay
        self.address = int(kernel.window_relation.address)

    @property
    def has_instants(self) -> bool:
        return True

    @property
    def first(self) -> Words:
        """The word with the instant at which the first row entered; INFINITY: none has."""
        return self.descriptor[kernel.FIRST : kernel.FIRST + 1]

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        changes = {"entered": int(d[kernel.ENTERED]), "left": int(d[kernel.LEFT])}
        waiting = int(d[frontier.TAIL] - d[frontier.READY])
        held = changes["entered"] - changes["left"]
        return {**super().counters(), **changes, "waiting": waiting, "held": held}


#: A running window without SLIDE. It has ``first``, the instant at which the first row entered, and
#: ``last``, the latest watermark of the input before its end.
RelationOperator: TypeAlias = KeyedRowsOperator | WindowRelationOperator


def relation_operator(
    name: str, node: RelationExec, workspace: Workspace, *, numbered: bool = False
) -> RelationOperator:
    """The operator of a window; ``numbered`` as in ``KeyedRowsOperator``."""
    window = node.window
    keyed = window.partition_by or window.change is not None
    if window.kind is WindowKind.ROWS and keyed:
        return KeyedRowsOperator(name, node, workspace, numbered=numbered)
    return WindowRelationOperator(name, node, workspace)
