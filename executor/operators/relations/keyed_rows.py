"""Relations that keep some rows of each key (``kernels.relations.keyed_rows``)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.kernels.relations import frontier
from cql.executor.kernels.relations import keyed_rows as kernel
from cql.executor.morsel.morsel import Words, value_bytes
from cql.executor.operators.order.row_slab import SLOT
from cql.executor.operators.relations.grouped import GROUP, GroupedOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.repartition import Values
from cql.planner.nodes.physical import RelationExec, RowNumberExec


class KeyedRowsOperator(GroupedOperator):
    """[PARTITION BY k ROWS n], ROW_NUMBER() = 1 in the order of time, and changelogs. State: the
    rows that wait and those that the keys keep, and per key which these are. ``numbered``: the
    output of this partition has the order columns (``stage.spec.ORDER``): the instant, and the
    stream position of the row that causes the change."""

    addresses: ClassVar = {
        **GroupedOperator.addresses,
        "keys": kernel.OF_KEYS,
    }
    sums: ClassVar = (*GroupedOperator.sums, kernel.ENTERED, kernel.LEFT, kernel.UNMATCHED)
    least: ClassVar = (*GroupedOperator.least, kernel.FIRST)

    def __init__(
        self,
        name: str,
        node: RelationExec | RowNumberExec,
        workspace: Workspace,
        *,
        numbered: bool = False,
    ) -> None:
        self.numbered = numbered
        schema, output = node.input.schema, node.schema
        if isinstance(node, RelationExec):
            assert node.window.wa is not None
            by, time, given = node.window.partition_by, node.window.wa, len(schema)
        else:
            by, time, given = node.partition, len(schema) - 2, len(schema) - 2
        super().__init__(name, schema, by, time, len(output) - 2, kernel.END, workspace)
        d = self.descriptor
        d[[kernel.GIVEN, kernel.LEAVING, kernel.FIRST]] = given, -1, INFINITY
        d[kernel.TIME_BYTES] = value_bytes(output[len(output) - 2].type)
        if isinstance(node, RelationExec):
            change = node.window.change
            d[[kernel.KEPT, kernel.MOST]] = kernel.LAST_ROWS, node.window.rows or 0
            if change is not None:
                bag = node.window.rows is None
                d[kernel.KEPT] = kernel.COPIES if bag else kernel.LAST_CHANGE
                d[kernel.CHANGE] = change
        else:
            latest = node.keys[0].descending
            d[kernel.KEPT] = kernel.LATEST_ROW if latest else kernel.FIRST_ROW
            d[kernel.NUMBER_BYTES] = value_bytes(output[given].type)
        self.address = int(kernel.keyed_rows.address)
        self.open()

    def grow_groups(self, known: int, size: int) -> None:
        self.resize("keys", kernel.OF_KEY * size, np.int64)
        self.state["keys"][kernel.OF_KEY * known :] = 0

    @property
    def layout(self) -> dict[str, Values]:
        slots = {kernel.OLDEST: SLOT, kernel.NEWEST: SLOT}
        return super().layout | {"keys": Values(GROUP, kernel.OF_KEY, slots)}

    @property
    def has_instants(self) -> bool:
        return True

    @property
    def first(self) -> Words:
        """The word with the instant at which the first row entered; INFINITY: none has."""
        return self.descriptor[kernel.FIRST : kernel.FIRST + 1]

    # -- called by the runtime -------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        entered, left = int(d[kernel.ENTERED]), int(d[kernel.LEFT])
        waiting = int(d[frontier.TAIL] - d[frontier.READY])
        if not d[kernel.NUMBER_BYTES]:
            changes = {"entered": entered, "left": left, "waiting": waiting}
            if d[kernel.KEPT] in (kernel.COPIES, kernel.LAST_CHANGE):
                changes["unmatched"] = int(d[kernel.UNMATCHED])
            return {**super().counters(), **changes, "held": entered - left}
        return {**super().counters(), "held_rows": entered - left}
