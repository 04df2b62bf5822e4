"""The running order-preserving union and the sort that punctuation releases: rows wait in a slab
until the watermark passes their times, and leave in order (``kernels.order.merge``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from cql.base.model import Schema
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, NEVER
from cql.executor.kernels.order import merge as kernel
from cql.executor.kernels.order.row_slab import HELD, OWN, SLOTS
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.order.row_slab import STEP, SlabOperator
from cql.executor.operators.workspace import Workspace
from cql.planner.nodes.logical import SortKey

INITIAL_RUNS = 16


class MergeOperator(SlabOperator):
    """``order``: the time column, on which the operator emits punctuation. ``keys``: columns that
    order rows of equal time. ``names``: the name of each port's input. State: the slab, ``times``
    (an int64 copy of the time column, where that column has another type), and the tables of the
    runs."""

    addresses: ClassVar = {
        "heap": kernel.HEAP,
        "heads": kernel.HEADS,
        "tails": kernel.TAILS,
        "ages": kernel.AGES,
        "spares": kernel.SPARES,
        "lists": kernel.LISTS,
    }

    def __init__(
        self,
        name: str,
        schema: Schema,
        ports: int,
        order: int,
        workspace: Workspace,
        *,
        keys: Sequence[SortKey] = (),
        refuses_null: bool = False,
        names: tuple[str, ...] = (),
    ) -> None:
        own = kernel.FIRST - OWN + kernel.PORT_WORDS * ports
        super().__init__(name, schema, keys, own, workspace)
        self.names = names
        self._order = order
        self._ports = ports
        d = self.descriptor
        d[[kernel.PORTS, kernel.ORDER, kernel.REFUSES_NULL]] = ports, order, refuses_null
        d[kernel.PUNCTUATED] = NEVER
        for port in range(ports):
            d[kernel.FIRST + kernel.PORT_WORDS * port + kernel.MARK] = NEVER
        self.address = int(kernel.merge.address)
        self._more_runs(INITIAL_RUNS)
        self.more_slots(STEP)

    def more_slots(self, wanted: int) -> None:
        super().more_slots(wanted)
        if self.schema[self._order].type.storage != "int64":
            self.resize("times", int(self.descriptor[SLOTS]), np.int64)
            self.bind()

    def _more_runs(self, room: int) -> None:
        """Makes room for ``room`` runs per port; called when every run has rows."""
        d, before = self.descriptor, int(self.descriptor[kernel.RUNS])
        lists = self.state.get("lists", np.zeros(0, np.int64)).reshape(self._ports, before)
        for name in ("heap", "heads", "tails", "ages", "spares"):
            self.resize(name, room, np.int64)
        self.resize("lists", self._ports * room, np.int64)
        self.state["lists"].reshape(self._ports, room)[:, :before] = lists
        self.state["spares"][: room - before] = np.arange(before, room)
        d[kernel.RUNS] = room
        self.bind()

    def bind(self) -> None:
        super().bind()
        times = self.state.get("times", self.state.get(f"c{self._order}"))
        self.point(kernel.TIMES, times)

    # -- called by the runtime -------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        match int(morsel.words[DETAIL]):
            case kernel.NEED_SLOTS:
                self.more_slots(int(self.descriptor[HELD] + morsel.words[DETAIL_ROW]))
            case kernel.NEED_RUNS:
                self._more_runs(2 * int(self.descriptor[kernel.RUNS]))
            case _:
                self.refresh()

    def error(self, morsel: Morsel) -> ErrorSite:
        what = f"the event time {self.schema[self._order].name} is NULL"
        return ErrorSite("null event time", what, None)

    @property
    def counts_bad_rows(self) -> bool:
        return True

    def is_fatal(self, morsel: Morsel) -> bool:
        return False

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, the number of its rows that arrived below the times already emitted
        because the port was idle."""
        first = kernel.FIRST + kernel.TOO_LATE
        counts = self.descriptor[first :: kernel.PORT_WORDS][: len(self.names)]
        return list(zip(self.names, counts.tolist(), strict=True))

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "late_rows": int(d[kernel.LATE]),
            "held": int(d[HELD]),
        }
