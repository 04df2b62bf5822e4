"""Values that Python computes for the kernels: entries of dictionary tables, and host columns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.call_timeout import TimeLimitError
from cql.base.types import DataType, Kind
from cql.executor.codegen.expressions.scope import DictionaryTable, HostSite
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.strings.dictionary import FURTHEST, Codes, Dictionary
from cql.planner.interpret.interpreter import EvaluationError as HostError
from cql.planner.interpret.interpreter import evaluate
from cql.planner.nodes.expr import Expr, Value

__all__ = ["DictionaryTables", "HostError", "compute_host_column", "evaluate"]

NULL, VALID, ERROR, UNKNOWN = 0, 1, 2, 255
Column = npt.NDArray[Any]
Status = npt.NDArray[np.uint8]


def _entry(
    expr: Expr, row: Sequence[Value], dictionary: Dictionary, depth: int = 0
) -> tuple[Any, int]:
    """The stored value of one evaluation and its status; a new text gets the given ``depth``."""
    try:
        value = evaluate(expr, row)
    except HostError:
        return 0, ERROR
    except TimeLimitError as error:
        error.position = error.position or expr.pos
        raise
    if value is None:
        return 0, NULL
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return dictionary.add_result(raw, depth), VALID
    return value, VALID


def text_of(raw: bytes, kind: DataType) -> Value:
    """Converts bytes of the dictionary into a value of the text type ``kind``."""
    return raw.decode(errors="replace") if kind.kind is Kind.STRING else raw


class DictionaryTables:
    """Value and status arrays of the tables of one kernel, indexed by dictionary code.

    ``extend`` fills the entries of codes that came with rows. Entries of computed texts stay
    unknown until a kernel requests one with ``fill``, which computes all entries of that depth. A
    table that eagerly mapped its own results, or those of the next operator's table, would add
    texts without end.

    Instances of an operator may share the tables: ``lock`` is held while entries are computed.
    Kernels that run meanwhile must not read the status of these entries; ``version`` changes with
    new entries."""

    def __init__(self, tables: Sequence[DictionaryTable], dictionary: Dictionary) -> None:
        self._tables = tuple(tables)
        self._dictionary = dictionary
        self._values = [np.zeros(0, stored_dtype(t.type.storage)) for t in self._tables]
        self._status: list[Status] = [np.zeros(0, np.uint8) for _ in self._tables]
        #: Per table, by depth: all entries below this code are computed.
        self._done: list[dict[int, int]] = [{} for _ in self._tables]
        self.lock = threading.RLock()
        self.version = 0
        self._resize()

    def extend(self) -> None:
        """Computes the entries of every code that rows have added since the last call."""
        with self.lock:
            for k in range(len(self._tables)):
                self._compute_all(k, 0)
            self._resize()

    def fill(self, table: int, code: int) -> None:
        """Computes the entry that a kernel requested, and the other entries of its depth."""
        with self.lock:
            self._compute_all(table, int(self._dictionary.depths[code]))
            self._compute(table, code)
            self._resize()

    def _compute_all(self, k: int, depth: int) -> None:
        first, size = self._done[k].get(depth, 0), len(self._dictionary)
        self._resize()  # covers at least these codes: other threads may add more meanwhile
        self._done[k][depth] = size
        fresh = first + np.flatnonzero(self._dictionary.depths[first:size] == depth)
        for code in fresh.tolist():
            self._compute(k, code)

    def arrays(self) -> list[tuple[Column, Status]]:
        return list(zip(self._values, self._status, strict=True))

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for pair in self.arrays() for a in pair)

    def results(self, held: npt.NDArray[np.bool_]) -> Codes:
        """The codes of the texts that the tables keep for the codes ``held``."""
        self._resize()
        found = [np.zeros(0, np.int32)]
        for table, (values, status) in zip(self._tables, self.arrays(), strict=True):
            if table.type.is_text:
                found.append(values[: held.size][held & (status[: held.size] == VALID)])
        return np.concatenate(found)

    def renumber(self, live: npt.NDArray[np.bool_], renumbered: Codes) -> None:
        """Keeps the entries of the codes that a compaction of the dictionary has left."""
        before = self.nbytes
        self.version += 1
        for k, table in enumerate(self._tables):
            values = self._values[k][: live.size][live]
            status = self._status[k][: live.size][live]
            if table.type.is_text:
                values = renumbered[values]
                status[values < 0] = UNKNOWN  # the compaction dropped the text
            self._values[k], self._status[k] = values, status
            self._done[k] = {d: int(live[:n].sum()) for d, n in self._done[k].items()}
        self._dictionary.account(before, self.nbytes)

    def _compute(self, k: int, code: int) -> None:
        table, values, status = self._tables[k], self._values[k], self._status[k]
        if status[code] != UNKNOWN:
            return
        leaf = text_of(self._dictionary.value(code), table.leaf)
        depth = min(int(self._dictionary.depths[code]) + 1, FURTHEST)
        values[code], status[code] = _entry(table.expr, (leaf,), self._dictionary, depth)
        self.version += 1

    def _resize(self) -> None:
        """Makes room for every code of the dictionary; new entries are unknown."""
        size = len(self._dictionary)
        for k, (values, status) in enumerate(self.arrays()):
            if status.size < size:
                room = max(size, 2 * status.size, 64) - status.size
                self._dictionary.account(0, room * (values.itemsize + 1))
                self.version += 1
                self._values[k] = np.concatenate([values, np.zeros(room, values.dtype)])
                self._status[k] = np.concatenate([status, np.full(room, UNKNOWN, np.uint8)])


def compute_host_column(
    site: HostSite, arguments: Sequence[tuple[Column, Column]], dictionary: Dictionary
) -> tuple[Column, Status]:
    """The values and status of a host column. ``arguments`` are (values, status) in storage form;
    status 2 marks an argument that failed. Equal rows are computed once."""
    rows = len(arguments[0][0])
    out, status = np.zeros(rows, stored_dtype(site.type.storage)), np.zeros(rows, np.uint8)
    lists = [(v.tolist(), s.tolist()) for v, s in arguments]
    keys = [(_bits(v).tolist(), s.tolist()) for v, s in arguments]
    known: dict[tuple[object, ...], tuple[Any, int]] = {}
    texts: dict[tuple[int, int], Value] = {}
    for i in range(rows):
        key = tuple((s[i], v[i] if s[i] == VALID else 0) for v, s in keys)
        made = known.get(key)
        if made is None:
            if any(s[i] == ERROR for _, s in lists):
                made = (0, ERROR)
            else:
                row = _row(site, lists, i, dictionary, texts)
                made = _entry(site.call, row, dictionary)
            known[key] = made
        out[i], status[i] = made
    return out, status


def _bits(values: Column) -> Column:
    """The bits of floats, so that values with different texts differ: -0.0 is not 0.0 here."""
    return values.view(f"i{values.itemsize}") if values.dtype.kind == "f" else values


def _row(
    site: HostSite,
    lists: Sequence[tuple[list[Any], list[Any]]],
    i: int,
    dictionary: Dictionary,
    texts: dict[tuple[int, int], Value],
) -> list[Value]:
    row: list[Value] = []
    for k, ((values, status), arg) in enumerate(zip(lists, site.args, strict=True)):
        if status[i] != VALID:
            row.append(None)
        elif arg.type.is_text:
            place = (k, values[i])
            if place not in texts:
                texts[place] = text_of(dictionary.value(values[i]), arg.type)
            row.append(texts[place])
        else:
            row.append(bool(values[i]) if arg.type.storage == "bool" else values[i])
    return row
