"""The running Dupelim: the keys of the rows seen so far, until the watermark passes their times
(``kernels.flow.dupelim``)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cql.base.types import DataType
from cql.executor.kernels.flow import dupelim as kernel
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, INFINITY, NEVER
from cql.executor.kernels.order import sort_keys
from cql.executor.morsel.morsel import Morsel, Words, value_bytes
from cql.executor.operators.contract import CodeColumn, Operator
from cql.executor.operators.relations.group_index import GroupIndex
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import BUFFERS, Snapshot, State, plain_words, take_plain_words
from cql.planner.nodes.physical import DupelimExec

#: The descriptor's addresses, and the sizes of what they lead to.
_BOUND = (
    *(kernel.LINES, kernel.IDS, kernel.FRESH, kernel.CHOSEN, kernel.TARGETS, kernel.MOST),
    *(kernel.TABLE, kernel.KEYS, kernel.FREE_IDS, kernel.CONTROL, kernel.PLACES, kernel.ROOM),
)
#: The smallest number of keys at which a sweep starts.
_LEAST = 256


class DupelimOperator(Operator):
    """State: the index of the keys of the rows seen so far; a key is all columns of a row. A sweep
    removes the keys below the watermark. It starts when the index holds at least ``_LEAST`` keys,
    twice as many as the last sweep left, and a quarter of its capacity."""

    def __init__(self, name: str, node: DupelimExec, workspace: Workspace) -> None:
        self.name = name
        self.node = node
        self.workspace = workspace
        types = [f.type for f in node.schema]
        self._index = GroupIndex(types)
        self._purged = 0
        width, most = self._index.arrays[1].shape[1], workspace.morsel_rows
        self._scratch: State = {
            "lines": np.zeros(width * most, np.int64),
            "ids": np.zeros(most, np.int64),
            "fresh": np.zeros(most, np.uint8),
            "chosen": np.zeros(most, np.int32),
            "targets": np.zeros(most, np.int32),
        }
        workspace.resize(0, sum(a.nbytes for a in self._scratch.values()), BUFFERS)
        columns = [(value_bytes(f.type), _kind(f.type), int(f.nullable)) for f in node.schema]
        d: Words = np.zeros(kernel.FIRST + kernel.COLUMN_WORDS * len(columns), np.int64)
        d[kernel.FIRST :] = np.ravel(columns)
        d[[kernel.COLUMNS, kernel.BY, kernel.IN_ORDER]] = len(columns), node.by, node.in_order
        d[[kernel.WATERMARK, kernel.SWEPT, kernel.SWEEP_AT]] = NEVER, NEVER, _LEAST
        d[[kernel.WIDTH, kernel.MOST]] = width, most
        words = (kernel.LINES, kernel.IDS, kernel.FRESH, kernel.CHOSEN, kernel.TARGETS)
        d[[*words]] = [array.ctypes.data for array in self._scratch.values()]
        self.descriptor = d
        self.address = int(kernel.dupelim.address)
        self._held = 0  # bytes of the index that the workspace accounts for
        self._bind()

    def _bind(self) -> None:
        """Gives the kernel the index's addresses and the workspace its bytes."""
        d, (table, keys, free, control) = self.descriptor, self._index.arrays
        d[[kernel.PLACES, kernel.ROOM]] = table.size, len(keys)
        words = [kernel.TABLE, kernel.KEYS, kernel.FREE_IDS, kernel.CONTROL]
        d[words] = [array.ctypes.data for array in (table, keys, free, control)]
        before, self._held = self._held, self._index.nbytes
        self.workspace.resize(before, self._held, self.name)

    def provide(self, morsel: Morsel) -> None:
        if int(morsel.words[DETAIL]) == kernel.NEED_ROOM:
            self._index.make_room(int(morsel.words[DETAIL_ROW]))
        else:
            self._sweep()
        self._bind()

    def _sweep(self) -> None:
        """Removes the keys whose time is below the watermark."""
        d, live, keys = self.descriptor, self._index.live, self._index.arrays[1]
        watermark = int(d[kernel.WATERMARK])
        gone = live if watermark == INFINITY else live[keys[live, self.node.by] < watermark]
        self._index.give_back(gone)
        self._purged += gone.size
        d[kernel.SWEPT] = watermark
        left = live.size - gone.size
        d[kernel.SWEEP_AT] = max(_LEAST, 2 * left, self._index.capacity // 4)

    @property
    def fills(self) -> bool:
        return True

    @property
    def state_bytes(self) -> int:
        return self._index.nbytes + sum(a.nbytes for a in self._scratch.values())

    def counters(self) -> dict[str, int]:
        d = self.descriptor
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_LEFT]),
            "duplicates": int(d[kernel.DUPLICATES]),
            "held": self._index.capacity - self._index.free,
            "purged": self._purged,
        }

    def snapshot(self) -> Snapshot:
        """The keys and the descriptor; the runtime has no morsel inside."""
        words = np.append(plain_words(self.descriptor, _BOUND), self._purged)
        return Snapshot({}, words, {"keys": self._index.snapshot()})

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. The codes are those of the
        snapshot: ``map_codes`` follows."""
        take_plain_words(saved.words[:-1], self.descriptor, _BOUND, self.name)
        self._purged = int(saved.words[-1])
        self._index.restore(saved.parts["keys"])
        self._bind()

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        self._index.map_codes(change)
        self._bind()


def _kind(kind: DataType) -> int:
    """How the kernel turns a value into a word of the key; a text's word is its code."""
    if not kind.is_fraction:
        return sort_keys.INTEGER
    return sort_keys.DOUBLE if kind.storage == "float64" else sort_keys.FLOAT
