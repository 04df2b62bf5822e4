"""Operators that look at a relation instant by instant.

All changes of one instant leave together, once punctuation says that it is over (CQL's semantics:
a relation has a state at each instant, and none in between).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cql.executor.operators.native import CodeColumn, State, Workspace
from cql.executor.operators.rows import (
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
from cql.executor.unit import (
    END_OF_INPUT,
    INFINITY,
    NEVER,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    Unit,
)
from cql.model import Schema

Times = npt.NDArray[np.int64]


class InstantOperator(RowsOperator):
    """State: rows of instants that are not over, as parts in the order of their times. ``time`` is
    the input column that orders them, ``time_out`` the output column on which the operator
    promises."""

    def __init__(
        self, name: str, schema: Schema, time: int, output: Schema, time_out: int,
        workspace: Workspace,
    ) -> None:  # fmt: skip
        super().__init__(name, output, workspace)
        self.schema = schema
        self.time = time
        self.time_out = time_out
        self.passed = NEVER  # instants before it are over
        self._waiting: list[State] = []

    @abstractmethod
    def advance(self, rows: State, times: Times) -> State:
        """What the rows of instants that are over make, in order; ``passed`` says which are."""

    def at_end(self) -> State:
        """What the end of the input makes, behind all else."""
        return no_rows(self.output)

    @property
    def waiting_rows(self) -> int:
        return sum(map(count, list(self._waiting)))

    @property
    def held_bytes(self) -> int:
        """Bytes of state beside the rows that wait."""
        return 0

    @property
    def state_bytes(self) -> int:
        return nbytes([*self._waiting, self.ready]) + self.held_bytes

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        map_texts(self._waiting, self.schema, change)
        map_texts([self.ready], self.output, change)

    def take_in(self, unit: Unit) -> int | None:
        if unit.words[ROWS] > 0:
            self._wait(rows_of(unit, self.schema))
        passed, ended = self.passed, False
        for p in range(int(unit.words[PUNCTUATIONS])):
            at = PUNCTUATION_WORDS * p
            attribute, value, joint = (int(v) for v in unit.punctuations[at : at + 3])
            if attribute == END_OF_INPUT:
                ended = True
            elif attribute == self.time and joint < 0:
                passed = max(passed, value)
        self.ready = no_rows(self.output)
        if passed > self.passed:
            self.passed = passed
            self.ready = self._advance()
            self._promise()
        if ended:
            self.passed = INFINITY
            self.ready = joined([self.ready, self._advance(), self.at_end()])
            self.promises = [(END_OF_INPUT, INFINITY)]
        return None

    def _promise(self) -> None:
        """All that follows is of instants that are not over."""
        self.promises.append((self.time_out, self.passed))

    def _wait(self, rows: State) -> None:
        times = self._times(rows)
        if (times[1:] < times[:-1]).any():
            rows = take(rows, np.argsort(times, kind="stable"))
        append_part(self._waiting, rows, self._in_order)

    def _times(self, rows: State) -> Times:
        return rows[f"c{self.time}"].astype(np.int64, copy=False)

    def _in_order(self, parts: Sequence[State]) -> State:
        """Rows by time, ties by their arrival."""
        rows = joined(parts)
        times = self._times(rows)
        if len(parts) == 1 or not (times[1:] < times[:-1]).any():
            return rows
        return take(rows, np.argsort(times, kind="stable"))

    def _advance(self) -> State:
        due: list[State] = []
        kept: list[State] = []
        for part in self._waiting:
            at = int(np.searchsorted(self._times(part), self.passed))
            if self.passed == INFINITY:
                at = count(part)
            if at:
                due.append(take(part, slice(0, at)))
            if at < count(part):
                kept.append(rest(part, at))
        self._waiting = kept
        rows = self._in_order(due) if due else no_rows(self.schema)
        return self.advance(rows, self._times(rows))
