"""The watermark before each row of an input, without a run of a query: for the parts of an input
that tasks read apart from each other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cql.executor.kernels.ingest import cutter
from cql.executor.kernels.morsel_layout import INFINITY, NEVER
from cql.executor.morsel.arrow_columns import address_of
from cql.executor.morsel.morsel import Words
from cql.executor.morsel.watermark import Attribute
from cql.planner.nodes.catalog import Progress, Relation
from cql.planner.nodes.physical import SourceExec

#: The words of an attribute on which the watermarks of later rows depend: its clock, and the
#: furthest row that waits.
STATE = (*range(cutter.HIGHEST, cutter.FLOOR), cutter.FURTHEST)


@dataclass(slots=True)
class WatermarkPass:
    """Takes the times of an input's rows in their order. Counts late rows as a run does."""

    relation: Relation
    progress: Progress
    attribute: Attribute = field(init=False)
    rows: int = 0

    def __post_init__(self) -> None:
        column = self.relation.schema.find(self.progress.column)
        assert column is not None
        node = SourceExec(self.relation, (column,))
        words = np.zeros(cutter.ATTRIBUTE, np.int64)
        self.attribute = Attribute.of(node, 0, self.progress, words)

    @property
    def state(self) -> list[int]:
        """What the watermarks of later rows depend on."""
        return [int(word) for word in self._words[list(STATE)]]

    @state.setter
    def state(self, words: list[int]) -> None:
        self._words[list(STATE)] = words

    @property
    def watermark(self) -> int:
        """The watermark behind the rows so far (NEVER: there is none yet), in units of the
        column."""
        return self.attribute.watermark()

    @property
    def _words(self) -> Words:
        return self.attribute.words

    def take(
        self, times: npt.NDArray[np.int64], valid: npt.NDArray[np.uint8] | None
    ) -> npt.NDArray[np.int64]:
        """The watermark before each row (NEVER: none yet), in units of the column."""
        made = np.empty(len(times), np.int64)
        mask = 0 if valid is None else address_of(valid)
        address, data = self._words.ctypes.data, address_of(times)
        cutter.row_watermarks(address, data, mask, len(times), address_of(made))
        self.rows += len(times)
        return made

    def skip(self, highest: int) -> bool:
        """Takes rows of which only the highest time is known. Returns False, and takes none, if the
        state behind them depends on more: while a row waits for confirmation, or if one of them
        could wait."""
        words = self._words
        known, most = int(words[cutter.HIGHEST]), int(words[cutter.ADVANCE])
        if most < INFINITY:
            waits = known == NEVER or int(words[cutter.FURTHEST]) > known
            if waits or highest > known + most:
                return False
        if highest >= known:
            words[[cutter.HIGHEST, cutter.PENDING]] = highest, 0
        return True
