"""OOP-Join as a running operator: manages the memory of the rows and buckets of both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.executor.codegen.kernel_builder import NEED_KIND, NEED_ROOM
from cql.executor.codegen.key_packing import KeyPart
from cql.executor.kernels.joins.oop_join import NONE, keep_rows, link_rows
from cql.executor.kernels.morsel_layout import DETAIL, INFINITY, NEVER
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.joins import oop_join_kernel
from cql.executor.operators.joins.key_index import keys_of
from cql.executor.operators.joins.oop_join_kernel import Rows
from cql.executor.operators.joins.oop_join_side import (
    LINKS,
    SIDES,
    Side,
    disorder_of,
    rows_of,
)
from cql.executor.operators.stage.kernel_operator import GeneratedOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.repartition import Owners
from cql.executor.state.store import Role, Snapshot, State
from cql.planner.nodes.physical import OopJoinExec, sources
from cql.planner.nodes.watermarks import NO_BOUND

_ROWS = 1 << 10
#: What a snapshot has of the kernel: ``Rows``, and whether the output has an order column.
_VARIANT = "variant"
#: Up to this many bytes, most buckets may be empty: a look into one of them costs little.
_NEAR = 1 << 20
#: With a morsel of n rows, up to 2 * max(n, this number) rows without a partner leave.
_PADS = 1 << 11


class OopJoinOperator(GeneratedOperator):
    """``rows``: the rows of a morsel that the operator joins, as partition ``part`` of ``parts``.
    ``with_order_column``: the output has an order column, by which the outputs of all partitions
    are merged.

    State: ``lrows`` and ``rrows``, rings of records; ``buckets``, per side the latest row of each
    list."""

    def __init__(
        self,
        name: str,
        node: OopJoinExec,
        workspace: Workspace,
        rows: Rows = Rows.ALL,
        part: int = 0,
        parts: int = 1,
        *,
        with_order_column: bool = False,
    ) -> None:
        code = oop_join_kernel.write((node, rows, with_order_column))
        self._variant = rows, with_order_column
        super().__init__(name, workspace, code.kernel)
        self.node = node
        self.sides, self._keys = code.sides, code.keys
        self.bind("part", part)
        self.bind("parts", parts)
        if rows is Rows.OWN:
            self.fresh("chosen", workspace.morsel_rows, np.int32, Role.SCRATCH)
            self.fresh("hashes", workspace.morsel_rows, np.int64, Role.SCRATCH)
        for side in self.sides:
            self._take(side, _ROWS)
            for word in (
                "watermark",
                "latest",
                "latest2",
                "padded" if side.time is not None else "",
            ):
                self.set(side.name + word, NEVER)
            self.set(f"{side.name}pass", -1)
        self._take_buckets(self._wanted)
        for slot in self._slots:
            if slot.endswith(" punctuated"):
                self.set(slot, NEVER)
        if node.band is not None:
            self.set("lreach", min(node.band.high, NO_BOUND))
            self.set("rreach", min(-node.band.low, NO_BOUND))
            self.set("pads a morsel", _PADS)
            self.set("shift", (node.band.high - node.band.low).bit_length())

    # -- room --------------------------------------------------------------------------------------

    def _take(self, side: Side, room: int) -> None:
        """Allocates a ring of ``room`` rows and moves the held rows to its beginning."""
        s, held = side.name, self._rows(side)
        first = self.get(f"{s}head") - self.get(f"{s}base")
        old = self.fresh(f"{s}rows", room, side.record.dtype)
        if old.size:
            rows, first = self.state[f"{s}rows"], first % old.size
            to_end = min(held, old.size - first)
            rows[:to_end] = old[first : first + to_end]
            rows[to_end:held] = old[: held - to_end]
        self.set(f"{s}room", room)
        self.set(f"{s}base", self.get(f"{s}head"))

    def _purge(self, side: Side) -> int:
        """Removes all rows of the ring that no later row of the other side can join. Returns the
        number of rows that stay. If rows were removed, the others must be linked anew."""
        s, held = side.name, self._rows(side)
        head, stay = self.get(f"{s}head"), 0
        if side.time is not None:
            stay = keep_rows(
                self.state[f"{s}rows"].view(np.int64).reshape(self.get(f"{s}room"), -1),
                head - self.get(f"{s}base"),
                held,
                side.record.places["t"][0] // 8,
                self._leaves(side),
            )
        elif not self.get(f"{side.other}ended"):
            return held
        if stay < held:
            self.set("purged", self.get("purged") + held - stay)
            self.set(f"{s}top", head + stay)
            self._measure(side)
        return stay

    def _measure(self, side: Side) -> None:
        """Measures the disorder of the rows that stay."""
        s = side.name
        if side.time is None:
            return
        latest, disorder = disorder_of(self.state[f"{s}rows"]["t"][self._held(side)])
        self.set(f"{s}latest", latest)
        self.set(f"{s}disorder", disorder)
        self.set(f"{s}latest2", NEVER)
        self.set(f"{s}disorder2", 0)
        self.set(f"{s}since", self.get(f"{s}top"))

    def _rows(self, side: Side) -> int:
        return self.get(f"{side.name}top") - self.get(f"{side.name}head")

    def _held(self, side: Side) -> npt.NDArray[np.int64]:
        """The places of a side's rows in its ring, in the order of arrival."""
        head, top, base, room = (self.get(side.name + w) for w in ("head", "top", "base", "room"))
        return (np.arange(head, top) - base) % max(room, 1)

    def _leaves(self, side: Side) -> int:
        """The time below which no row of a side can be joined any more (figure 4) and all rows
        without a partner have left. Cancels a running pass over the ring, which begins again
        later."""
        if side.pads:
            self.set(f"{side.name}pass", -1)
            return self.get(f"{side.name}padded")
        if self.get(f"{side.other}ended"):
            return INFINITY
        return max(self.get(f"{side.other}watermark"), -NO_BOUND) - self.get(f"{side.name}reach")

    @property
    def _wanted(self) -> int:
        """The number of buckets, a power of two. Four buckets per row of room, so that a list has
        few rows of other keys: with one bucket per row, a band of 20 s in which few rows have
        partners took 1.5 times as long. With slices of time, which also separate rows, one bucket
        per row: figure 10 of the out-of-order paper then takes 1.1 times the memory of its in-order
        plan; with four buckets per row, 1.6 times."""
        if not self._keys.words:
            return 1
        rows = max(self.get(f"{s}room") for s in SIDES)
        wanted = rows if self._keys.sliced else 4 * rows
        return 1 << (max(wanted, min(8 * rows, _NEAR // 8)) - 1).bit_length()

    def _take_buckets(self, count: int) -> None:
        self.fresh("buckets", count, np.dtype((np.int32, len(SIDES))), Role.DERIVED)
        self.set("bucket mask", count - 1)
        for side in self.sides:
            self._link(side)

    def _link(self, side: Side) -> None:
        """Rebuilds the lists and buckets of a side."""
        s, parts = side.name, side.record.places
        rows, head = self.state[f"{s}rows"], self.get(f"{s}head")
        link_rows(
            rows.view(np.int64).reshape(rows.size, -1),
            rows.view(np.int32).reshape(rows.size, -1),
            np.array(
                [
                    side.port, head, head - self.get(f"{s}base"), self._rows(side),
                    parts["t"][0] // 8 if "t" in parts else NONE,
                    parts["k0"][0] // 8 if "k0" in parts else NONE,
                    self._keys.words,
                    self.get("shift") if self._keys.sliced else NONE,
                    *(parts[link][0] // 4 if link in parts else NONE for link in LINKS),
                ],
                np.int64,
            ),
            self.state["buckets"],
        )  # fmt: skip

    def rebuild(self) -> None:
        self._take_buckets(self._wanted)

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state, and which kernel it is of: kernels for other rows have other words."""
        made, (rows, ordered) = super().snapshot(), self._variant
        variant = np.array([rows.value, ordered], np.int64)
        return replace(made, arrays={**made.arrays, _VARIANT: variant})

    def restore(self, saved: Snapshot) -> None:
        arrays = {name: array for name, array in saved.arrays.items() if name != _VARIANT}
        super().restore(replace(saved, arrays=arrays))

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        """Of an inner join."""
        rows, ordered = saved[0].arrays[_VARIANT].tolist()
        old = oop_join_kernel.write((self.node, Rows(rows), bool(ordered))).kernel.slots
        words = [self._words_from(saved, old, part) for part in range(owners.parts)]
        arrays: list[State] = [{} for _ in words]
        for side in self.sides:
            s = side.name
            held = self._divided([rows_of(one, side, old) for one in saved], side, owners)
            peak = sum(int(one.words[old[f"{s}peak"]]) for one in saved)
            more = max(peak - sum(map(len, held)), 0)
            for part, (own, taken) in enumerate(zip(words, held, strict=True)):
                n = len(taken)
                room = max(n + n // 2 + 1, _ROWS)
                ring = np.zeros(room, taken.dtype)
                ring[:n] = taken
                arrays[part][f"{s}rows"] = ring
                given = {"head": 0, "base": 0, "top": n, "since": n, "room": room}
                given["peak"] = n + (more if part == 0 else 0)
                if side.time is not None:
                    latest, disorder = disorder_of(taken["t"])
                    given |= {"latest": latest, "disorder": disorder}
                    given |= {"latest2": NEVER, "disorder2": 0}
                for word, value in given.items():
                    own[self._slots[s + word]] = value
        variant = np.array([self._variant[0].value, self._variant[1]], np.int64)
        return [
            Snapshot(held | {_VARIANT: variant}, own)
            for held, own in zip(arrays, words, strict=True)
        ]

    def _divided(
        self, found: Sequence[npt.NDArray[Any]], side: Side, owners: Owners
    ) -> list[npt.NDArray[Any]]:
        """The rows of a side in each new partition; ``found`` has those in each old one. The rows
        of a key are in one partition, in the order of arrival. The order of rows of different keys
        matters for speed only, since rows leave a ring in its order. So rings are merged by the
        highest time up to each row, which keeps their disorder low."""
        types = [self.node.left.schema[a].type for a, _ in self.node.keys]
        own = [owners.of(keys_of(rows, self._keys, types), len(rows)) for rows in found]
        made = []
        for part in range(owners.parts):
            taken = [rows[of == part] for rows, of in zip(found, own, strict=True)]
            rows = np.concatenate(taken, dtype=found[0].dtype)  # the places in a record stay
            if side.time is not None:
                highest = [np.maximum.accumulate(one["t"]) for one in taken]
                rows = rows[np.argsort(np.concatenate(highest), kind="stable")]
            made.append(rows)
        return made

    def _words_from(self, saved: Sequence[Snapshot], old: Mapping[str, int], part: int) -> Words:
        """The words of a new partition, from those of a kernel with the words ``old``: all
        partitions share them, and the first one has the sums of the counters."""
        words = np.zeros(len(self._slots), np.int64)
        for name, slot in self._slots.items():
            if name in self._kernel.counters:
                total = sum(int(one.words[old[name]]) for one in saved)
                words[slot] = total if part == 0 else 0
            elif name in old:
                words[slot] = saved[0].words[old[name]]
        return words

    # -- called by the runtime ---------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        detail = int(morsel.words[DETAIL])
        assert detail & NEED_KIND == NEED_ROOM, detail
        side = self.sides[detail & ~NEED_KIND]
        room, held = self.get(f"{side.name}room"), self._rows(side)
        stay = self._purge(side)
        if stay == room:
            self._take(side, 2 * room)
        elif 3 * stay > 2 * room or (8 * stay < room and room > _ROWS):
            self._take(side, max(stay + stay // 2 + 1, _ROWS))
        if self._wanted != len(self.state["buckets"]):
            self._take_buckets(self._wanted)
        elif stay < held:
            self._link(side)

    @property
    def fills(self) -> bool:
        return True

    def counters(self) -> dict[str, int]:
        counted = self.counted()
        for side, word in zip(self.sides, ("left", "right"), strict=True):
            counted[f"held_{word}"] = self._rows(side)
            counted[f"peak_{word}"] = self.get(f"{side.name}peak")
        return counted

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, the number of its rows that arrived below the bound that the port got
        while it was idle."""
        counted = self.counters()
        names = (", ".join(s.name for s in sources(child)) for child in self.node.inputs)
        return [(n, counted.get(f"too_late_{s}", 0)) for n, s in zip(names, SIDES, strict=True)]

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        for side in self.sides:
            rows, held = self.state[f"{side.name}rows"], self._held(side)
            for c, f in enumerate(side.schema):
                name = side.holds(c)
                if name is not None and f.type.is_coded:
                    yield Codes(rows[name], held)
            for part in self._coded_keys():
                yield Codes(rows[f"k{part.word}"], held, part.shift)

    def recoded(self) -> None:
        super().recoded()
        for side in self.sides if self._coded_keys() else ():
            self._link(side)

    def _coded_keys(self) -> list[KeyPart]:
        return [
            part
            for (c, _), part in zip(self.node.keys, self._keys.parts, strict=True)
            if self.node.left.schema[c].type.is_coded
        ]
