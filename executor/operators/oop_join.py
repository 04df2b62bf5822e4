"""OOP-Join as a running operator: room for the rows and the keys of both sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cql.executor.kernels.join import NONE, keep_keys, relink, renumber
from cql.executor.operators.generated import GeneratedOperator, fitting, map_key
from cql.executor.operators.join_code import JoinWriter
from cql.executor.operators.join_side import LINKS, SIDES, Side
from cql.executor.operators.native import CodeColumn, Workspace
from cql.executor.operators.rowscope import NEED_KIND, NEED_ROOM
from cql.executor.unit import DETAIL, NEVER, Unit
from cql.planner.join_condition import NO_BOUND
from cql.planner.physical import inputs, sources
from cql.planner.physical_joins import OopJoinExec

_ROWS, _KEYS = 1 << 10, 1 << 10
#: Bytes of keys up to which there may be more free places than taken ones: a miss costs little
#: there, and keys are forgotten less often.
_NEAR = 1 << 21
#: Half of the rows without a partner that leave with a unit to which no more have come.
_PADS = 1 << 11


class OopJoinOperator(GeneratedOperator):
    """State: ``lrows`` and ``rrows``, rings of records; ``keys``, records of keys, and the
    ``index`` over these."""

    def __init__(self, name: str, node: OopJoinExec, workspace: Workspace) -> None:
        writer = JoinWriter(node)
        super().__init__(name, workspace, writer.kernel, writer.write())
        self.node = node
        self.sides, self._keys = writer.sides, writer.keys
        self._take_keys(_KEYS if self._keys.hashed else 1)
        for side in self.sides:
            self._take(side, _ROWS)
            for word in ("bound", "latest", "latest2", "padded" if side.time is not None else ""):
                self.set(side.name + word, NEVER)
            self.set(f"{side.name}pass", -1)
        for time in ("left", "right", "later", "earlier"):
            self.set(f"{time} promised", NEVER)
        if node.band is not None:
            self.set("lreach", min(node.band.high, NO_BOUND))
            self.set("rreach", min(-node.band.low, NO_BOUND))
            self.set("pads a unit", _PADS)
            self.set("shift", (node.band.high - node.band.low).bit_length())

    # -- room --------------------------------------------------------------------------------------

    def _take(self, side: Side, room: int) -> None:
        """Room for so many rows, in a ring that begins at its first place."""
        self.resize(f"{side.name}rows", room, side.record.dtype)
        self.set(f"{side.name}mask", room - 1)

    def _purge(self, side: Side) -> int:
        """Rows that no later one of the other side can join leave, wherever they stand: the ring
        begins at its first place again. Returns how many stay."""
        s = side.name
        rows, held = self.state[f"{s}rows"], self._held(side)
        live, place = self._live(side, held), np.empty(held.size, np.int64)
        if self.get(f"{s}head") == 0 and live.all():
            return held.size
        links = [
            rows[link][held] if link in side.record.places else np.empty(held.size, np.int32)
            for link in LINKS
        ]
        stay = relink(live, *links, place)
        column = self._keys.count + SIDES.index(s)
        renumber(self.state["keys"], self._records, column, self.get(f"{s}head"), place)
        rows[:stay] = rows[held[live]]
        for link, values in zip(LINKS, links, strict=True):
            if link in side.record.places:
                rows[link][:stay] = values[:stay]
        self.set("purged", self.get("purged") + held.size - stay)
        self.set(f"{s}head", 0)
        self.set(f"{s}top", stay)
        self._measure(side)
        return int(stay)

    def _measure(self, side: Side) -> None:
        """The disorder of the rows that stay."""
        s = side.name
        if side.time is None:
            return
        times = self.state[f"{s}rows"]["t"][: self.get(f"{s}top")]
        highest = np.maximum.accumulate(times)
        self.set(f"{s}latest", int(highest[-1]) if times.size else NEVER)
        self.set(f"{s}disorder", int((highest - times).max(initial=0)))
        self.set(f"{s}latest2", NEVER)
        self.set(f"{s}disorder2", 0)
        self.set(f"{s}since", times.size)

    def _held(self, side: Side) -> npt.NDArray[np.int64]:
        """The places of the rows of a side, in the order of arrival."""
        head, top, mask = (self.get(side.name + word) for word in ("head", "top", "mask"))
        return np.arange(head, top) & mask

    def _live(self, side: Side, held: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of the rows later ones of the other can still join (figure 4: what is not
        purged)."""
        ended = self.get(f"{side.other}ended")
        if side.time is None or (ended and not side.pads):
            return np.full(held.size, not ended)
        bound = max(self.get(f"{side.other}bound"), -NO_BOUND) - self.get(f"{side.name}reach")
        if side.pads:
            bound = self.get(f"{side.name}padded")
            self.set(f"{side.name}pass", -1)
        live: npt.NDArray[np.bool_] = self.state[f"{side.name}rows"]["t"][held] >= bound
        return live

    @property
    def _records(self) -> int:
        """Records of keys."""
        return self.get("count") if self._keys.hashed else 1

    def _take_keys(self, room: int) -> None:
        """Room for so many keys, those that are there among them."""
        self.resize("keys", room, np.dtype((np.int64, self._keys.width)))
        self.set("room", room)
        if not self._keys.hashed:
            self.state["keys"][:] = NONE
        else:
            places = 1 << (room + room // 3).bit_length()  # at least a quarter is free
            self.fresh("index", places, np.dtype(np.int64))
            self.set("index mask", places - 1)
            self._forget_keys()

    def _forget_keys(self) -> int:
        """Keys without rows are forgotten; returns how many stay."""
        index = self.state["index"]
        index[:] = 0
        heads = (self.get(f"{s}head") for s in SIDES)
        stay = int(keep_keys(self.state["keys"], self._records, *heads, index))
        self.set("count", stay)
        return stay

    # -- what a runtime asks -----------------------------------------------------------------------

    def provide(self, unit: Unit) -> None:
        detail = int(unit.words[DETAIL])
        assert detail & NEED_KIND == NEED_ROOM, detail
        number = detail & ~NEED_KIND
        if number < len(self.sides):
            side = self.sides[number]
            self._take(
                side, fitting(2 * self._purge(side), self.get(f"{side.name}mask") + 1, _ROWS)
            )
        else:
            stay, room = self._forget_keys(), self.get("room")
            if 2 * stay > room or (8 * stay < room and room > _KEYS):
                sparse = 24 * stay * self._keys.width <= _NEAR
                self._take_keys(max((3 if sparse else 2) * stay, _KEYS))

    def counters(self) -> dict[str, int]:
        counted = self.counted()
        for side, word in zip(self.sides, ("left", "right"), strict=True):
            counted[f"held_{word}"] = self._held(side).size
            counted[f"peak_{word}"] = self.get(f"{side.name}peak")
        return counted

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, its rows that came below what was promised while it was idle."""
        counted = self.counters()
        names = (", ".join(s.name for s in sources(child)) for child in inputs(self.node))
        return [(n, counted.get(f"too_late_{s}", 0)) for n, s in zip(names, SIDES, strict=True)]

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        self.map_constants(change)
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
            keys = self.state["keys"][: self.get("count")]
            for part in coded:
                map_key(keys[:, part.word], part, change)
            self._forget_keys()
