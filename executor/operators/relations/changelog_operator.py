"""Operators that process a relation instant by instant.

All changes of one instant leave together, once the watermark has passed the instant (CQL's
semantics: a relation has one state per instant, and none in between).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import (
    END_OF_INPUT,
    IDLE,
    INFINITY,
    NEVER,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
)
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.relations.row_batch import (
    RowsOperator,
    append_part,
    count,
    joined,
    map_texts,
    nbytes,
    no_rows,
    rest,
    rows_of,
    take,
)
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Snapshot, State

Times = npt.NDArray[np.int64]


def punctuations_of(morsel: Morsel) -> Iterator[tuple[int, int]]:
    """(attribute, value) of each punctuation on one attribute."""
    for p in range(int(morsel.words[PUNCTUATIONS])):
        at = PUNCTUATION_WORDS * p
        attribute, value, joint = (int(v) for v in morsel.punctuations[at : at + 3])
        if joint < 0:
            yield attribute, value


class Waiting:
    """Rows of instants that are not over, in parts; column ``time`` orders the rows of a part."""

    def __init__(self, schema: Schema, time: int) -> None:
        self.schema = schema
        self.time = time
        self.parts: list[State] = []

    @property
    def rows(self) -> int:
        return sum(map(count, list(self.parts)))

    def add(self, rows: State) -> None:
        times = self.times(rows)
        if (times[1:] < times[:-1]).any():
            rows = take(rows, np.argsort(times, kind="stable"))
        append_part(self.parts, rows, self._in_order)

    def times(self, rows: State) -> Times:
        return rows[f"c{self.time}"].astype(np.int64, copy=False)

    def before(self, watermark: int) -> State:
        """Removes and returns the rows of instants before the ``watermark``, ordered by
        time, ties by arrival."""
        due: list[State] = []
        kept: list[State] = []
        for part in self.parts:
            at = int(np.searchsorted(self.times(part), watermark))
            if watermark == INFINITY:
                at = count(part)
            if at:
                due.append(take(part, slice(0, at)))
            if at < count(part):
                kept.append(rest(part, at))
        self.parts = kept
        return self._in_order(due) if due else no_rows(self.schema)

    def snapshot(self) -> Snapshot:
        """All rows as one part."""
        rows = self._in_order(self.parts) if self.parts else no_rows(self.schema)
        return Snapshot({n: a.copy() for n, a in rows.items()}, np.zeros(0, np.int64))

    def restore(self, saved: Snapshot) -> None:
        """Takes the rows of a snapshot."""
        rows = {n: a.copy() for n, a in saved.arrays.items()}
        self.parts = [rows] if count(rows) else []

    def _in_order(self, parts: Sequence[State]) -> State:
        """The rows of ``parts``, ordered by time, ties by arrival."""
        rows = joined(parts)
        times = self.times(rows)
        if len(parts) == 1 or not (times[1:] < times[:-1]).any():
            return rows
        return take(rows, np.argsort(times, kind="stable"))

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        map_texts(self.parts, self.schema, change)


class ChangelogOperator(RowsOperator):
    """State: rows of instants that are not over. ``time``: the input column with the instants.
    ``time_out``: the output column on which the operator emits punctuation."""

    saved_numbers: ClassVar[tuple[str, ...]] = (*RowsOperator.saved_numbers, "watermark")
    saved_parts: ClassVar[tuple[str, ...]] = ("_waiting",)

    def __init__(
        self, name: str, schema: Schema, time: int, output: Schema, time_out: int,
        workspace: Workspace,
    ) -> None:  # fmt: skip
        super().__init__(name, output, workspace)
        self.schema = schema
        self.time = time
        self.time_out = time_out
        self.watermark = NEVER  # the watermark: instants before it are over
        self._waiting = Waiting(schema, time)

    @abstractmethod
    def advance(self, rows: State, times: Times) -> State:
        """The output for ``rows``, all changes of the instants that ended since the last call, in
        the order of ``times``. Instants before the ``watermark`` are over."""

    @property
    def waiting_rows(self) -> int:
        return self._waiting.rows

    @property
    def held_bytes(self) -> int:
        """Bytes of state other than the waiting and the ready rows."""
        return 0

    @property
    def state_bytes(self) -> int:
        return nbytes([*self._waiting.parts, self.ready]) + self.held_bytes

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        self._waiting.map_codes(change)
        map_texts([self.ready], self.output, change)

    def take_in(self, morsel: Morsel) -> int | None:
        if morsel.words[ROWS] > 0:
            self._waiting.add(rows_of(morsel, self.schema))
        watermark, ended = self.watermark, False
        for attribute, value in punctuations_of(morsel):
            if attribute == END_OF_INPUT:
                ended = True
            elif attribute == IDLE:
                self.punctuations.append((IDLE, value))
            elif attribute == self.time:
                watermark = max(watermark, value)
        self.ready = no_rows(self.output)
        if watermark > self.watermark:
            self.watermark = watermark
            self.ready = self._advance()
            self._punctuate()
        if ended:
            self.watermark = INFINITY
            self.ready = joined([self.ready, self._advance()])
            self.punctuations = [(END_OF_INPUT, INFINITY)]
        return None

    def so_far(self, last: int) -> list[tuple[int, int]]:
        """The ready rows are in the order of their instants."""
        return [(self.time_out, int(self.ready[f"c{self.time_out}"][last]))]

    def _punctuate(self) -> None:
        """Emits punctuation with the input's watermark: all later output belongs to instants that
        are not over."""
        self.punctuations.append((self.time_out, self.watermark))

    def _times(self, rows: State) -> Times:
        return self._waiting.times(rows)

    def _advance(self) -> State:
        rows = self._waiting.before(self.watermark)
        return self.advance(rows, self._times(rows))
