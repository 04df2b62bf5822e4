"""EXISTS, IN and scalar subqueries over tables, evaluated for each row of a stream
(``kernels.joins.subquery_lookup``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.base.types import DataType
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.joins import subquery_lookup as kernel
from cql.executor.kernels.morsel_layout import DETAIL_ROW
from cql.executor.kernels.relations import groups
from cql.executor.morsel.morsel import Morsel, Words, value_bytes
from cql.executor.operators.contract import Operator
from cql.executor.operators.relations.grouped import piece_rows
from cql.executor.operators.relations.key_finder import KeyFinder
from cql.executor.operators.workspace import Workspace
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, StateStore, plain_words, take_plain_words
from cql.planner.nodes.physical import LookupExec

_KINDS = {"exists": kernel.EXISTS, "in": kernel.IN, "scalar": kernel.SCALAR}
_ARRAYS = {
    "counts": kernel.COUNTS,
    "values": kernel.VALUES,
    "value_masks": kernel.VALUE_MASKS,
    "seen": kernel.SEEN,
    "numbers": kernel.NUMBERS,
    "once": kernel.ONCE,
    "has_null": kernel.HAS_NULL,
}
#: Addresses in the descriptor, and sizes of this process.
_BOUND = (kernel.IDS, kernel.STREAM, kernel.SUBQUERY, kernel.SHARED, *_ARRAYS.values())


class _Rows(KeyFinder):
    """The index of the distinct rows of the subquery."""

    def __init__(self, owner: str, node: LookupExec, workspace: Workspace) -> None:
        columns = range(node.width, node.width + node.requested)
        inputs = [(node.input.schema, columns), (node.query.schema, columns)]
        value: DataType | None = node.answer.type if node.kind == "scalar" else None
        rows = piece_rows(workspace)
        super().__init__(owner, inputs, workspace, rows, finds_nulls=True, value=value)
        for name, dtype in (("numbers", np.int32), ("once", np.int64), ("has_null", np.uint8)):
            self.store.resize(name, rows, dtype, Role.SCRATCH)

    def grow(self, size: int) -> None:
        super().grow(size)
        self.store.resize("counts", size, np.int64)
        self.store.resize("seen", size, np.uint8, Role.SCRATCH)


class LookupOperator(Operator):
    """State: the distinct rows of the subquery, with their multiplicities."""

    def __init__(self, name: str, node: LookupExec, workspace: Workspace) -> None:
        self.name = name
        self.node = node
        self._workspace = workspace
        self._rows = _Rows(name, node, workspace)
        self.descriptor: Words = np.zeros(kernel.WORDS, np.int64)
        d = self.descriptor
        d[[kernel.KIND, kernel.WIDTH]] = _KINDS[node.kind], node.width
        d[[kernel.NULLABLE, kernel.VALUE]] = node.answer.nullable, -1
        d[kernel.VALUE_BYTES] = value_bytes(node.answer.type)
        self.address = int(kernel.subquery_lookup.address)
        self._bind()

    def _bind(self) -> None:
        """Writes the addresses of the state into the descriptor."""
        d, arrays = self.descriptor, self._rows.store.arrays
        d[[kernel.STREAM, kernel.SUBQUERY]] = [r.ctypes.data for r in self._rows.descriptors]
        d[[kernel.IDS, kernel.SHARED]] = self._rows.index.capacity, d.ctypes.data
        for name, word in _ARRAYS.items():
            d[word] = arrays[name].ctypes.data if name in arrays else 0

    # -- for runtimes ------------------------------------------------------------------------------

    @property
    def passes_rows(self) -> bool:
        return True

    @property
    def gives_one_at_most(self) -> bool:
        return True

    @property
    def port_alone(self) -> int | None:
        return kernel.QUERY

    @property
    def can_replicate(self) -> bool:
        return True

    def replica(self) -> Operator:
        return _Reader(self, self._workspace)

    @property
    def stream(self) -> Words:
        """How native code finds the ids of rows of the stream."""
        return self._rows.descriptors[0]

    @property
    def key_words(self) -> int:
        """The number of words of a key."""
        return self._rows.index.width

    @property
    def added(self) -> list[int]:
        return [kernel.ROWS_SEEN]

    def provide(self, morsel: Morsel) -> None:
        self._rows.make_room(int(morsel.words[DETAIL_ROW]))
        self._bind()

    def error(self, morsel: Morsel) -> ErrorSite:
        return ErrorSite("rows", "the subquery gives more than one row", self.node.pos)

    # -- state -------------------------------------------------------------------------------------

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self._rows,)

    def snapshot(self) -> Snapshot:
        words = plain_words(self.descriptor, _BOUND)
        return Snapshot({}, words, {"rows": self._rows.snapshot()})

    def restore(self, saved: Snapshot) -> None:
        take_plain_words(saved.words, self.descriptor, _BOUND, self.name)
        self._rows.restore(saved.parts["rows"])
        self._bind()

    def recoded(self) -> None:
        super().recoded()
        self._bind()

    # -- reports -----------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        rows = int(self.descriptor[kernel.ROWS_SEEN])
        return {"rows_in": rows, "rows_out": rows, "groups": self._rows.used}


class _Reader(Operator):
    """Looks rows up for another worker, in the rows of the subquery that the operator ``of`` keeps.
    It has scratch and a counter of its own; rows of the subquery that come to it go to ``of``."""

    def __init__(self, of: LookupOperator, workspace: Workspace) -> None:
        self.name, self.address, self._of = of.name, of.address, of
        self._store = StateStore(of.name, workspace)
        self._stream = stream = of.stream.copy()
        rows = int(stream[groups.PIECE])
        for name, size, dtype in (
            ("numbers", rows, np.int32),
            ("has_null", rows, np.uint8),
            ("wanted", of.key_words * rows, np.int64),
            ("ids", rows, np.int64),
        ):
            self._store.resize(name, size, dtype, Role.SCRATCH)
        arrays, d = self._store.arrays, np.zeros(kernel.WORDS, np.int64)
        stream[[groups.WANTED, groups.IDS]] = [arrays[n].ctypes.data for n in ("wanted", "ids")]
        d[[kernel.STREAM, kernel.SHARED]] = stream.ctypes.data, of.descriptor.ctypes.data
        d[kernel.NUMBERS] = arrays["numbers"].ctypes.data
        d[kernel.HAS_NULL] = arrays["has_null"].ctypes.data
        self.descriptor: Words = d

    def provide(self, morsel: Morsel) -> None:
        self._of.provide(morsel)

    def error(self, morsel: Morsel) -> ErrorSite:
        return self._of.error(morsel)

    def snapshot(self) -> Snapshot:
        return Snapshot({}, self.descriptor.copy())

    def restore(self, saved: Snapshot) -> None:
        self.descriptor[kernel.ROWS_SEEN] = saved.words[kernel.ROWS_SEEN]

    def counters(self) -> dict[str, int]:
        rows = int(self.descriptor[kernel.ROWS_SEEN])
        return {"rows_in": rows, "rows_out": rows}
