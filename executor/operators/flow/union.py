"""The running pass-through union. Its state is its descriptor and, with per-key watermarks, a table
of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cql.base.model import Schema
from cql.executor.kernels.flow import union as kernel
from cql.executor.kernels.flow import union_values
from cql.executor.kernels.morsel_layout import DETAIL_ROW, LATE_ROW_WORDS, NEVER
from cql.executor.morsel.morsel import Morsel, Words, stored_dtype, value_bytes
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, StateStore, plain_words, take_plain_words

#: Addresses in the descriptor, and in the words of the values.
_BOUND = (kernel.RECORDS, kernel.VALUES)
_BOUND_OF_VALUES = (union_values.ENTRIES, union_values.INDEX)
#: Initial capacity of the table, in values.
_FEWEST = 256


class UnionOperator(Operator):
    """``attributes``: output columns with punctuation (the same index in every input). ``names``:
    the name of each port's input. ``keyed_watermark``: (attribute, key column) of per-key
    watermarks, one watermark on the attribute for each value of the key column (out-of-order paper,
    A.2.1). State: ``entries``, one per value (``kernels.flow.union_values`` defines the words), and
    their ``index``."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        names: tuple[str, ...],
        attributes: tuple[int, ...],
        workspace: Workspace,
        keyed_watermark: tuple[int, int] | None = None,
    ) -> None:
        self.name = name
        self._store = StateStore(name, workspace)
        self.names = names
        n, ports = len(attributes), len(names)
        self._of_ports = kernel.FIRST + kernel.OF_ATTRIBUTE * n
        watermarks = self._of_ports + kernel.OF_PORT * ports
        self.descriptor: Words = np.zeros(watermarks + ports * n, np.int64)
        self.descriptor[:3] = len(schema), ports, n
        for k, column in enumerate(attributes):
            at = kernel.FIRST + kernel.OF_ATTRIBUTE * k
            size = value_bytes(schema[column].type)
            self.descriptor[at : at + kernel.OF_ATTRIBUTE] = column, size, NEVER, NEVER
        self.descriptor[watermarks:] = NEVER
        rows = workspace.morsel_rows
        self._records = np.empty(LATE_ROW_WORDS * rows * max(1, n), np.int64)
        self.descriptor[kernel.RECORDS] = self._records.ctypes.data
        self.address = int(kernel.union.address)
        self._is_text = False
        self._values: Words = np.zeros(0, np.int64)
        if keyed_watermark is not None:
            self._know_values(schema, attributes, *keyed_watermark)

    def _know_values(
        self, schema: Schema, attributes: tuple[int, ...], attribute: int, by: int
    ) -> None:
        ports, dtype = len(self.names), stored_dtype(schema[by].type.storage)
        self._is_text = schema[by].type.is_text
        size = union_values.HEADER_WORDS + union_values.OF_PORT * ports
        b = self._values = np.zeros(size, np.int64)
        b[union_values.BY], b[union_values.COLUMN], b[union_values.PORTS] = by, attribute, ports
        b[union_values.SIZE] = 0 if dtype == np.uint8 else dtype.itemsize
        b[union_values.SENT] = NEVER
        for known in (union_values.MARK, union_values.HOLDS):
            b[union_values.HEADER_WORDS + known :: union_values.OF_PORT] = NEVER
        d = self.descriptor
        d[kernel.VALUES], d[kernel.VALUES_ON] = b.ctypes.data, attributes.index(attribute)
        self._more_values(_FEWEST)

    def _more_values(self, room: int) -> None:
        b, state = self._values, self._store.arrays
        self._store.resize("entries", self._width * room, np.int64)
        self._store.resize("index", 2 * room, np.int32, Role.DERIVED, keeps=False)
        b[union_values.ROOM] = room
        b[union_values.ENTRIES] = state["entries"].ctypes.data
        b[union_values.INDEX] = state["index"].ctypes.data
        union_values.renumber(b.ctypes.data)

    @property
    def knows_values(self) -> bool:
        """Whether the union keeps per-key watermarks; their punctuation may fill several
        morsels."""
        return self._values.size > 0

    @property
    def gives_one_at_most(self) -> bool:
        return not self.knows_values

    @property
    def passes_rows(self) -> bool:
        return True

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self._store,)

    @property
    def _width(self) -> int:
        """Words of a value's entry."""
        return union_values.OWN + len(self.names)

    @property
    def _used(self) -> Words:
        """The entries in use."""
        return self._store.arrays["entries"][: self._width * int(self._values[union_values.COUNT])]

    def snapshot(self) -> Snapshot:
        """The descriptor and the values; the runtime has no morsel inside."""
        made = Snapshot({}, plain_words(self.descriptor, _BOUND))
        if not self.knows_values:
            return made
        entries = {"entries": self._used.copy()}
        values = Snapshot(entries, plain_words(self._values, _BOUND_OF_VALUES))
        return replace(made, parts={"values": values})

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. The codes are those of the
        snapshot: ``map_codes`` follows."""
        take_plain_words(saved.words, self.descriptor, _BOUND, self.name)
        if self.knows_values:
            values = saved.parts["values"]
            entries = values.arrays["entries"]
            take_plain_words(values.words, self._values, _BOUND_OF_VALUES, self.name)
            self._values[union_values.COUNT] = 0  # until the entries have come
            self._more_values(int(values.words[union_values.ROOM]))
            self._store.arrays["entries"][: entries.size] = entries
            self._values[union_values.COUNT] = values.words[union_values.COUNT]
            union_values.renumber(self._values.ctypes.data)

    def provide(self, morsel: Morsel) -> None:
        room = 2 * int(self._values[union_values.ROOM])
        self._more_values(max(room, int(morsel.words[DETAIL_ROW])))

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        if self._is_text:
            yield Codes(self._used[union_values.KEY :: self._width])

    def recoded(self) -> None:
        super().recoded()
        if self._is_text:
            union_values.renumber(self._values.ctypes.data)

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, the number of its rows that arrived below the output watermark because the
        port was idle while the watermark advanced."""
        first = self._of_ports + kernel.TOO_LATE
        counts = self.descriptor[first :: kernel.OF_PORT][: len(self.names)]
        return list(zip(self.names, counts.tolist(), strict=True))

    def counters(self) -> dict[str, int]:
        rows = int(self.descriptor[kernel.ROWS_SEEN])
        found = {"rows_in": rows, "rows_out": rows}
        if self.knows_values:
            found["values"] = int(self._values[union_values.COUNT])
            found["values_purged"] = int(self._values[union_values.PURGED])
        return found
