"""OOP-Join as a running operator: room for the rows and the keys of both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.executor import codegen
from cql.executor.expressions import ErrorSite
from cql.executor.kernels.join import NONE, keep_keys, relink, renumber
from cql.executor.operators.join_code import LINKS, JoinWriter, Side
from cql.executor.operators.join_keys import SIDES
from cql.executor.operators.native import CodeColumn, State, Workspace, constant_bits
from cql.executor.operators.rowscope import NEED_KIND, NEED_ROOM
from cql.executor.unit import DETAIL, NEVER, Unit, Words
from cql.planner.expr import Literal
from cql.planner.join_condition import NO_BOUND
from cql.planner.physical import inputs, sources
from cql.planner.physical_joins import OopJoinExec

_ROWS, _KEYS = 1 << 10, 1 << 10


class OopJoinOperator:
    """State: ``lrows`` and ``rrows``, rings of records; ``keys``, records of keys, and the
    ``index`` over these."""

    def __init__(self, name: str, node: OopJoinExec, workspace: Workspace) -> None:
        self.name = name
        self.node = node
        self.workspace = workspace
        self.state: State = {}
        writer = JoinWriter(node)
        text = writer.write()
        self.sides, self._keys = writer.sides, writer.keys
        self._kernel = writer.kernel
        self._slots = writer.kernel.layout.slots
        self.descriptor: Words = np.zeros(len(self._slots), np.int64)
        self._module = codegen.load(text, workspace.folder)
        self.address = int(self._module.op.address)
        self._take_keys(_KEYS if self._keys.hashed else 1)
        for side in self.sides:
            self._take(side, _ROWS)
            for word in ("bound", "latest", "latest2"):
                self._set(side.name + word, NEVER)
        for time in ("left", "right", "later", "earlier"):
            self._set(f"{time} promised", NEVER)
        if node.band is not None:
            self._set("lreach", min(node.band.high, NO_BOUND))
            self._set("rreach", min(-node.band.low, NO_BOUND))
            self._set("shift", (node.band.high - node.band.low).bit_length())
        self._set("ones", workspace.ones.ctypes.data)
        for slot, value in writer.kernel.constants:
            bits = value if isinstance(value, int) else constant_bits(value, workspace.dictionary)
            self.descriptor[slot] = bits

    # -- room --------------------------------------------------------------------------------------

    def _take(self, side: Side, room: int) -> None:
        """Room for so many rows, in a ring that begins at its first place."""
        s = side.name
        old, top = self.state.get(f"{s}rows"), self._get(f"{s}top")
        new = self._new(f"{s}rows", room, side.record.dtype)
        if old is not None:
            new[:top] = old[:top]
        self._set(f"{s}mask", room - 1)

    def _purge(self, side: Side) -> int:
        """Rows that no later one of the other side can join leave, wherever they stand: the ring
        begins at its first place again. Returns how many stay."""
        s = side.name
        rows, held = self.state[f"{s}rows"], self._held(side)
        live, place = self._live(side, held), np.empty(held.size, np.int64)
        links = [
            rows[link][held] if link in side.record.places else np.empty(held.size, np.int32)
            for link in LINKS
        ]
        stay = relink(live, *links, place)
        column = self._keys.count + SIDES.index(s)
        renumber(self.state["keys"], self._records, column, self._get(f"{s}head"), place)
        rows[:stay] = rows[held[live]]
        for link, values in zip(LINKS, links, strict=True):
            if link in side.record.places:
                rows[link][:stay] = values[:stay]
        self._set("purged", self._get("purged") + held.size - stay)
        self._set(f"{s}head", 0)
        self._set(f"{s}top", stay)
        self._measure(side)
        return int(stay)

    def _measure(self, side: Side) -> None:
        """The disorder of the rows that stay."""
        s = side.name
        if side.time is None:
            return
        times = self.state[f"{s}rows"]["t"][: self._get(f"{s}top")]
        highest = np.maximum.accumulate(times)
        self._set(f"{s}latest", int(highest[-1]) if times.size else NEVER)
        self._set(f"{s}disorder", int((highest - times).max(initial=0)))
        self._set(f"{s}latest2", NEVER)
        self._set(f"{s}disorder2", 0)
        self._set(f"{s}since", times.size)

    def _held(self, side: Side) -> npt.NDArray[np.int64]:
        """The places of the rows of a side, in the order of arrival."""
        head, top, mask = (self._get(side.name + word) for word in ("head", "top", "mask"))
        return np.arange(head, top) & mask

    def _live(self, side: Side, held: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of the rows later ones of the other can still join (figure 4: what is not
        purged)."""
        if side.time is None or self._get(f"{side.other}ended"):
            return np.full(held.size, not self._get(f"{side.other}ended"))
        bound = max(self._get(f"{side.other}bound"), -NO_BOUND) - self._get(f"{side.name}reach")
        live: npt.NDArray[np.bool_] = self.state[f"{side.name}rows"]["t"][held] >= bound
        return live

    @property
    def _records(self) -> int:
        """Records of keys."""
        return self._get("count") if self._keys.hashed else 1

    def _take_keys(self, room: int) -> None:
        """Room for so many keys, those that are there among them."""
        old, count = self.state.get("keys"), self._records
        new = self._new("keys", room, np.dtype((np.int64, self._keys.width)))
        new[:] = NONE
        if old is not None:
            new[:count] = old[:count]
        self._set("room", room)
        if self._keys.hashed:
            places = 1 << (room + room // 3).bit_length()  # at least a quarter is free
            self._new("index", places, np.dtype(np.int64))
            self._set("index mask", places - 1)
            self._forget_keys()

    def _forget_keys(self) -> int:
        """Keys without rows are forgotten; returns how many stay."""
        index = self.state["index"]
        index[:] = 0
        heads = (self._get(f"{s}head") for s in SIDES)
        stay = int(keep_keys(self.state["keys"], self._records, *heads, index))
        self._set("count", stay)
        return stay

    def _new(self, name: str, size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An empty array in the place of an old one."""
        before = self.state[name].nbytes if name in self.state else 0
        self.workspace.resize(before, size * dtype.itemsize, self.name)
        new = self.state[name] = np.zeros(size, dtype)
        self._set(name, new.ctypes.data)
        return new

    def _set(self, name: str, value: int) -> None:
        if name in self._slots:
            self.descriptor[self._slots[name]] = value

    def _get(self, name: str) -> int:
        return int(self.descriptor[self._slots[name]])

    # -- what a runtime asks -----------------------------------------------------------------------

    def provide(self, unit: Unit) -> None:
        detail = int(unit.words[DETAIL])
        assert detail & NEED_KIND == NEED_ROOM, detail
        number = detail & ~NEED_KIND
        if number < len(self.sides):
            side = self.sides[number]
            self._take(side, _fitting(self._purge(side), self._get(f"{side.name}mask") + 1, _ROWS))
        else:
            stay, room = self._forget_keys(), self._get("room")
            if 3 * stay > 2 * room or (8 * stay < room and room > _KEYS):
                self._take_keys(max(2 * stay, _KEYS))

    def call(self, unit: Unit, out: Unit) -> int:
        raise AssertionError("a compiled operator is called by address")

    def error(self, unit: Unit) -> ErrorSite:
        raise AssertionError(f"{self.name} fails no row")

    def is_fatal(self, unit: Unit) -> bool:
        return True

    def counters(self) -> dict[str, int]:
        counted = {name: self._get(name) for name in self._kernel.counters}
        for side, word in zip(self.sides, ("left", "right"), strict=True):
            counted[f"held_{word}"] = self._held(side).size
            counted[f"peak_{word}"] = self._get(f"{side.name}peak")
        return counted

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
            rows, held = self.state[f"{side.name}rows"], self._held(side)
            for c, f in enumerate(side.schema):
                name = side.holds(c)
                if name is not None and f.type.is_coded:
                    rows[name][held] = change(rows[name][held])
        coded = [
            part
            for (c, _), part in zip(self.node.keys, self._keys.parts, strict=True)
            if self.node.left.schema[c].type.is_coded
        ]
        if coded:
            self._forget_keys()  # so that none is left whose text is forgotten
            keys = self.state["keys"][: self._get("count")]
            for part in coded:
                old = (keys[:, part.word] >> part.shift).astype(np.int32)
                keys[:, part.word] += (change(old).astype(np.int64) - old) << part.shift
            self._forget_keys()


def _fitting(stay: int, room: int, least: int) -> int:
    """Room of which what stays takes half at the most, and an eighth at the least."""
    while 2 * stay > room:
        room *= 2
    while 8 * stay < room and room > least:
        room //= 2
    return room
