"""Rows that an operator holds, as flat arrays: ``c<i>`` and ``m<i>``, data and mask of column i."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    CURSOR,
    DONE,
    OUTPUT_FULL,
    PHASE,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    data_word,
    mask_word,
)
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel, stored_dtype
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.stage.operator import PythonOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.declared import Declared
from cql.executor.state.store import Snapshot, State

Array = npt.NDArray[Any]
Join: TypeAlias = Callable[[Sequence[State]], State]


def columns_of(schema: Schema) -> list[tuple[str, int, np.dtype[Any]]]:
    """For each array of rows of ``schema``: its name, its word in a morsel, its dtype."""
    found = []
    for i, f in enumerate(schema):
        dtype = stored_dtype(f.type.storage)
        found.append((f"c{i}", data_word(i), dtype))
        found.append((f"m{i}", mask_word(i), np.dtype(np.uint8)))
    return found


def no_rows(schema: Schema) -> State:
    return {name: np.zeros(0, dtype) for name, _, dtype in columns_of(schema)}


def rows_of(morsel: Morsel, schema: Schema) -> State:
    """A morsel's rows, copied."""
    words = morsel.words
    n = int(words[ROWS])
    return {name: view_address(int(words[w]), t, n).copy() for name, w, t in columns_of(schema)}


def count(rows: State) -> int:
    """The number of rows; rows have at least one column."""
    return int(rows["c0"].size)


def take(rows: State, which: Array | slice) -> State:
    return {name: column[which] for name, column in rows.items()}


def rest(rows: State, first: int) -> State:
    """The rows from ``first`` on, as views. Copies them if the views would keep alive more than
    twice their bytes."""
    if first == 0:
        return rows
    left = take(rows, slice(first, None))
    base = left["c0"].base
    whole = base.size if isinstance(base, np.ndarray) else count(rows)
    return left if 2 * count(left) >= whole else {name: c.copy() for name, c in left.items()}


def joined(parts: Sequence[State]) -> State:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def append_part(parts: MutableSequence[State], rows: State, join: Join = joined) -> None:
    """Appends a part, and joins it with the part before while that part has at most twice its rows.
    This keeps the number of parts and the copies per row logarithmic in the number of rows."""
    parts.append(rows)
    while len(parts) > 1 and count(parts[-2]) <= 2 * count(parts[-1]):
        last = parts.pop()
        parts[-1] = join([parts[-1], last])


def nbytes(parts: Sequence[State]) -> int:
    return sum(a.nbytes for part in parts for a in list(part.values()))


def map_texts(
    parts: Sequence[State], schema: Schema, change: Callable[[CodeColumn], CodeColumn]
) -> None:
    """Replaces the text codes of rows; a NULL's code has no meaning."""
    for i, f in enumerate(schema):
        if f.type.is_coded:
            for part in parts:
                codes = np.where(part[f"m{i}"] != 0, part[f"c{i}"], 0)
                part[f"c{i}"] = change(codes)


class RowsOperator(Declared, PythonOperator):
    """Takes in a morsel, then sends the ``ready`` rows, one output morsel at a time, and behind
    them the ``punctuations`` as (attribute, value)."""

    saved_numbers: ClassVar[tuple[str, ...]] = ("rows_in", "rows_out")

    def __init__(self, name: str, output: Schema, workspace: Workspace) -> None:
        super().__init__(name)
        self.output = output
        self.workspace = workspace
        self.rows_in = self.rows_out = 0
        self.ready: State = no_rows(output)
        self.punctuations: list[tuple[int, int]] = []

    def call(self, morsel: Morsel, out: Morsel) -> int:
        words = morsel.words
        if words[PHASE] == 0:
            before = self.state_bytes
            self.rows_in += int(words[ROWS])
            self.punctuations = []
            failed = self.take_in(morsel)
            self.workspace.resize(before, self.state_bytes, self.name)
            if failed is not None:
                return failed
            words[PHASE] = 1
        return self._send(words, out)

    @abstractmethod
    def take_in(self, morsel: Morsel) -> int | None:
        """Takes a morsel's rows and punctuation; sets ``ready`` and ``punctuations``. Returns ERROR
        if a row fails."""

    def so_far(self, last: int) -> list[tuple[int, int]]:
        """Punctuation (attribute, value) behind ready row ``last`` that holds although other ready
        rows follow."""
        return []

    def restore(self, saved: Snapshot) -> None:
        before = self.state_bytes
        super().restore(saved)
        self.workspace.resize(before, self.state_bytes, self.name)

    @property
    def state_bytes(self) -> int:
        return nbytes([self.ready])

    def counters(self) -> dict[str, int]:
        return {"rows_in": self.rows_in, "rows_out": self.rows_out}

    def _send(self, words: npt.NDArray[np.int64], out: Morsel) -> int:
        first = int(words[CURSOR])
        total = count(self.ready)
        n = min(int(out.words[CAPACITY]), total - first)
        for i in range(len(self.output)):
            data, mask = out.data[i], out.masks[i]
            assert data is not None
            data[:n] = self.ready[f"c{i}"][first : first + n]
            if mask is not None:
                mask[:n] = self.ready[f"m{i}"][first : first + n]
        out.words[ROWS] = n
        out.words[SERIAL] = words[SERIAL]
        out.words[SEQUENCE] = self.rows_out
        self.rows_out += n
        words[CURSOR] = first + n
        if first + n < total:
            _append_punctuations(out, self.so_far(first + n - 1))
            return OUTPUT_FULL
        _append_punctuations(out, self.punctuations)
        before = self.state_bytes
        self.ready = no_rows(self.output)
        self.workspace.resize(before, self.state_bytes, self.name)
        return DONE


def _append_punctuations(out: Morsel, punctuations: Sequence[tuple[int, int]]) -> None:
    for k, (attribute, value) in enumerate(punctuations):
        at = PUNCTUATION_WORDS * k
        out.punctuations[at : at + 3] = attribute, value, -1
    out.words[PUNCTUATIONS] = len(punctuations)
