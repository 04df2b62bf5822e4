"""OOP-Join as a running operator: room for rows and keys of both sides, taken and given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.executor import codegen
from cql.executor.expressions import ErrorSite
from cql.executor.kernels.join import NONE, index_keys, relink
from cql.executor.operators.join_code import SIDES, JoinWriter, Side
from cql.executor.operators.native import CodeColumn, State, Workspace, constant_bits
from cql.executor.operators.rowscope import NEED_KIND, NEED_ROOM
from cql.executor.unit import DETAIL, NEVER, Unit, Words, stored_dtype
from cql.planner.expr import Literal
from cql.planner.join_condition import NO_BOUND
from cql.planner.physical import (
    inputs,
    sources,
)
from cql.planner.physical_joins import OopJoinExec

_ROWS, _KEYS = 1 << 10, 1 << 10
#: Of the places of a hash index for each key that it has room for.
_PLACES = 2


class OopJoinOperator:
    """State, per side: its columns, their times and the lists of their keys, ``…room`` rows; the
    words of keys, ``room`` of them, where their lists begin and end, and the index over these."""

    def __init__(self, name: str, node: OopJoinExec, workspace: Workspace) -> None:
        self.name = name
        self.node = node
        self.workspace = workspace
        self.state: State = {}
        self.purged = 0
        writer = JoinWriter(node)
        text = writer.write()
        self.sides, self._words, self._parts = writer.sides, writer.words, writer.parts
        self._kernel = writer.kernel
        self._slots = writer.kernel.layout.slots
        self.descriptor: Words = np.zeros(len(self._slots), np.int64)
        self._module = codegen.load(text, workspace.folder)
        self.address = int(self._module.op.address)
        for side in self.sides:
            self._take(side, _ROWS)
            for word in ("bound", "promised", "latest"):
                self._set(side.name + word, NEVER)
        self._take_keys(_KEYS)
        if not node.keys:  # all rows have the same
            self._set("count", 1)
        if node.band is not None:
            self._set("lreach", min(node.band.high, NO_BOUND))
            self._set("rreach", min(-node.band.low, NO_BOUND))
        self._set("ones", workspace.ones.ctypes.data)
        for slot, value in writer.kernel.constants:
            bits = value if isinstance(value, int) else constant_bits(value, workspace.dictionary)
            self.descriptor[slot] = bits
        self._bind()

    # -- room --------------------------------------------------------------------------------------

    def _columns(self, side: Side) -> dict[str, np.dtype[Any]]:
        """What is stored of each row of a side."""
        s = side.name
        found: dict[str, np.dtype[Any]] = {f"{s}next": np.dtype(np.int32)}
        if side.time is not None:
            found[f"{s}t"] = np.dtype(np.int64)
        for c in side.kept:
            found[f"{s}c{c}"] = stored_dtype(side.schema[c].type.storage)
            if side.schema[c].nullable:
                found[f"{s}m{c}"] = np.dtype(np.uint8)
        return found

    def _of_keys(self) -> dict[str, np.dtype[Any]]:
        words = {f"key{w}": np.dtype(np.int64) for w in range(self._words)}
        return words | {f"{s}{end}": np.dtype(np.int32) for s in SIDES for end in ("head", "tail")}

    def _take(self, side: Side, room: int) -> None:
        for name, dtype in self._columns(side).items():
            self._resize(name, room, dtype)
        self._set(f"{side.name}room", room)

    def _take_keys(self, room: int) -> None:
        for name, dtype in self._of_keys().items():
            self._resize(name, room, dtype)
            if name[0] in SIDES and not self.node.keys:
                self.state[name][:] = NONE
        self._set("room", room)
        self.state.pop("index", None)
        if self.node.keys:
            self._resize("index", _PLACES * room, np.dtype(np.int32))
            self._set("index mask", _PLACES * room - 1)
            self._index()

    def _resize(self, name: str, size: int, dtype: np.dtype[Any]) -> None:
        old = self.state.get(name, np.zeros(0, dtype))
        self.workspace.resize(old.nbytes, size * dtype.itemsize, self.name)
        new = np.zeros(size, dtype)
        kept = min(old.size, size)
        new[:kept] = old[:kept]
        self.state[name] = new

    def _index(self) -> None:
        self.state["index"][:] = 0
        index_keys(self._key_table(), self._get("count"), self.state["index"])

    def _key_table(self) -> npt.NDArray[np.int64]:
        return np.ascontiguousarray([self.state[f"key{w}"] for w in range(self._words)])

    def _bind(self) -> None:
        for name, array in self.state.items():
            self._set(name, array.ctypes.data)

    def _set(self, name: str, value: int) -> None:
        if name in self._slots:
            self.descriptor[self._slots[name]] = value

    def _get(self, name: str) -> int:
        return int(self.descriptor[self._slots[name]])

    # -- what leaves -------------------------------------------------------------------------------

    def live(self, side: Side) -> npt.NDArray[np.bool_]:
        """Which rows of a side later ones of the other can still join (figure 4: what is not
        purged)."""
        top = self._get(f"{side.name}top")
        if side.time is None:
            return np.full(top, not self._get(f"{side.other}ended"))
        bound = max(self._get(f"{side.other}bound"), -NO_BOUND) - self._get(f"{side.name}reach")
        live: npt.NDArray[np.bool_] = self.state[f"{side.name}t"][:top] >= bound
        return live

    def _purge(self, side: Side) -> int:
        """Moves the rows that stay together; returns how many."""
        s, live = side.name, self.live(side)
        stay = np.flatnonzero(live)
        place = np.full(live.size, NONE, np.int32)
        place[stay] = np.arange(stay.size, dtype=np.int32)
        relink(
            place,
            self.state[f"{s}next"],
            self.state[f"{s}head"],
            self.state[f"{s}tail"],
            np.empty(live.size, np.int32),
            self._get("count"),
        )
        for name in self._columns(side):
            if name != f"{s}next":
                self.state[name][: stay.size] = self.state[name][stay]
        self._set(f"{s}top", stay.size)
        self.purged += live.size - stay.size
        if side.time is not None:
            times = self.state[f"{s}t"][: stay.size]
            highest = np.maximum.accumulate(times) if stay.size else times
            self._set(f"{s}latest", int(highest[-1]) if stay.size else NEVER)
            apart = int((highest - times).max()) if stay.size else 0
            self._set(f"{s}disorder", apart)
        return int(stay.size)

    def _forget_keys(self) -> int:
        """Leaves out the keys without rows; returns how many stay."""
        count = self._get("count")
        heads = (self.state[f"{s}head"][:count] for s in SIDES)
        stay = np.flatnonzero(np.logical_or(*(head != NONE for head in heads)))
        for name in self._of_keys():
            self.state[name][: stay.size] = self.state[name][stay]
        self._set("count", stay.size)
        return int(stay.size)

    # -- what a runtime asks -----------------------------------------------------------------------

    def provide(self, unit: Unit) -> None:
        detail = int(unit.words[DETAIL])
        assert detail & NEED_KIND == NEED_ROOM, detail
        number = detail & ~NEED_KIND
        if number < len(self.sides):
            side = self.sides[number]
            self._take(side, _fitting(self._purge(side), self._get(f"{side.name}room"), _ROWS))
        else:
            for side in self.sides:
                self._purge(side)
            self._take_keys(_fitting(self._forget_keys(), self._get("room"), _KEYS))
        self._bind()

    def call(self, unit: Unit, out: Unit) -> int:
        raise AssertionError("a compiled operator is called by address")

    def error(self, unit: Unit) -> ErrorSite:
        raise AssertionError(f"{self.name} fails no row")

    def is_fatal(self, unit: Unit) -> bool:
        return True

    def counters(self) -> dict[str, int]:
        held = {word: self._get(f"{s}top") for s, word in zip(SIDES, _HELD, strict=True)}
        return {n: self._get(n) for n in self._kernel.counters} | held | {"purged": self.purged}

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, its rows that came below what was promised while it was idle."""
        counted = self.counters()
        names = (", ".join(s.name for s in sources(child)) for child in inputs(self.node))
        return [(n, counted.get(f"too_late_{s}", 0)) for n, s in zip(names, SIDES, strict=True)]

    @property
    def state_bytes(self) -> int:
        return sum(a.nbytes for a in list(self.state.values()))

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        for slot, value in self._kernel.constants:
            if isinstance(value, Literal) and value.type.is_text:
                self.descriptor[slot] = change(self.descriptor[slot : slot + 1].astype(np.int32))[0]
        for side in self.sides:
            top = self._get(f"{side.name}top")
            for c in side.kept:
                if side.schema[c].type.is_coded:
                    column = self.state[f"{side.name}c{c}"]
                    column[:top] = change(column[:top])
        count, changed = self._get("count"), False
        for (c, _), part in zip(self.node.keys, self._parts, strict=True):
            if self.node.left.schema[c].type.is_coded:
                column = self.state[f"key{part.word}"][:count]
                old = (column >> part.shift).astype(np.int32)
                column += (change(old).astype(np.int64) - old) << part.shift
                changed = True
        if changed:
            self._index()


_HELD = ("held_left", "held_right")


def _fitting(stay: int, room: int, least: int) -> int:
    """Room of which what stays takes half at the most, and an eighth at the least."""
    while 2 * stay > room:
        room *= 2
    while 8 * stay < room and room > least:
        room //= 2
    return room
