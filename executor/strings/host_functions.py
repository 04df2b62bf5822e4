"""Functions over texts, arrays and structs for the kernels: entries of dictionary tables, and host
columns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.types import DataType, Kind
from cql.executor.codegen.expressions.scope import DictionaryTable, HostSite
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.strings import nested
from cql.executor.strings.dictionary import ARRAYS, FURTHEST, Codes, Dictionary
from cql.executor.texts.column import NULL, VALID, Column, Status, Texts, repaired, to_arrow
from cql.executor.texts.evaluate import evaluate_block

UNKNOWN = 255
#: Texts that are computed at once.
_BLOCK = 1 << 14
Values = npt.NDArray[Any]


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
            for k, table in enumerate(self._tables):
                self._compute_all(k, ARRAYS if table.leaf.is_nested else 0)
            self._resize()

    def fill(self, table: int, code: int) -> None:
        """Computes the entry that a kernel requested, and the other entries of its depth."""
        with self.lock:
            depth = int(self._dictionary.depths[code])
            self._compute_all(table, depth)
            if self._status[table][code] == UNKNOWN:  # a compaction dropped its text
                self._compute(table, np.array([code]), depth)
            self._resize()

    def _compute_all(self, k: int, depth: int) -> None:
        first, size = self._done[k].get(depth, 0), len(self._dictionary)
        self._resize()  # covers at least these codes: other threads may add more meanwhile
        self._done[k][depth] = size
        of_depth = self._dictionary.depths[first:size] == depth
        fresh = first + np.flatnonzero(of_depth & (self._status[k][first:size] == UNKNOWN))
        for at in range(0, fresh.size, _BLOCK):
            self._compute(k, fresh[at : at + _BLOCK], depth)

    def arrays(self) -> list[tuple[Values, Status]]:
        return list(zip(self._values, self._status, strict=True))

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for pair in self.arrays() for a in pair)

    def results(self, held: npt.NDArray[np.bool_]) -> Codes:
        """The codes of the texts that the tables keep for the codes ``held``."""
        self._resize()
        found = [np.zeros(0, np.int32)]
        for table, (values, status) in zip(self._tables, self.arrays(), strict=True):
            if table.type.is_coded:
                found.append(values[: held.size][held & (status[: held.size] == VALID)])
        return np.concatenate(found)

    def renumber(self, live: npt.NDArray[np.bool_], renumbered: Codes) -> None:
        """Keeps the entries of the codes that a compaction of the dictionary has left."""
        before = self.nbytes
        self.version += 1
        for k, table in enumerate(self._tables):
            values = self._values[k][: live.size][live]
            status = self._status[k][: live.size][live]
            if table.type.is_coded:
                values = renumbered[values]
                status[values < 0] = UNKNOWN  # the compaction dropped the text
            self._values[k], self._status[k] = values, status
            self._done[k] = {d: int(live[:n].sum()) for d, n in self._done[k].items()}
        self._dictionary.account(before, self.nbytes)

    def _compute(self, k: int, codes: npt.NDArray[np.int64], depth: int) -> None:
        """Computes the entries of some codes, which have this depth."""
        table = self._tables[k]
        column = text_column(codes, table.leaf, self._dictionary)
        if table.leaf.is_nested and isinstance(column.values, Texts):
            # A code may stand for a value of another type, which no row of this one has.
            fits = nested.well_formed(column.values, table.leaf).view(np.uint8)
            column = Column(column.values, np.where(fits, VALID, NULL).astype(np.uint8))
        made = evaluate_block(table.expr, [column])
        values = stored(made, self._dictionary, min(depth + 1, FURTHEST))
        self._values[k][codes], self._status[k][codes] = values, made.status
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
    site: HostSite, arguments: Sequence[tuple[Values, Status]], dictionary: Dictionary
) -> tuple[Values, Status]:
    """The values and status of a host column. ``arguments`` are (values, status) in storage form;
    status 2 marks an argument that failed."""
    columns = [
        text_column(values, arg.type, dictionary, status)
        if arg.type.is_coded
        else Column(values, status)
        for (values, status), arg in zip(arguments, site.args, strict=True)
    ]
    made = evaluate_block(site.call, columns)
    return stored(made, dictionary), made.status


def text_column(
    codes: Values, kind: DataType, dictionary: Dictionary, status: Status | None = None
) -> Column:
    """The texts of ``codes``; without a ``status``, each code has one."""
    if status is None:
        status = np.full(codes.size, VALID, np.uint8)
    else:
        codes = np.where(status == VALID, codes, 0)
    starts = dictionary.starts  # before the arena: a later arena covers at least these texts
    texts = Texts(dictionary.arena, starts[codes], starts[codes + 1])
    return Column(repaired(texts) if kind.kind is Kind.STRING else texts, status)


def stored(made: Column, dictionary: Dictionary, depth: int = 0) -> Values:
    """The values of a computed column in storage form; new texts get the given ``depth``."""
    if not isinstance(made.values, Texts):
        return made.values
    array = to_arrow(made.values, made.status, pa.binary())
    return dictionary.encode_results(array, depth)
