"""A side of OOP-Join: the record stored per row, and the side's words in the descriptor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.codegen.kernel_builder import KernelText, Lazy
from cql.executor.kernels.lib.views import FIELDS
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.state.store import Snapshot
from cql.planner.nodes.expr import columns_of
from cql.planner.nodes.physical import OopJoinExec

SIDES = ("l", "r")
#: Links of a row in its list. ``back``: the distance in rows to the row before it (0: none).
#: ``skip``: the distance to a row further back. ``depth``: the number of rows before it.
LINKS = ("back", "skip", "depth")
#: Words of a side that the kernel changes. The held rows have the numbers from ``head`` to below
#: ``top``. The ring begins with row ``base``, at most one round of the ring before ``head``.
_CHANGING = (
    "head",
    "top",
    "base",
    "watermark",
    "ended",
    "idle",
    "latest",
    "disorder",
    "latest2",
    "disorder2",
    "since",
    "peak",
)
#: Further words that the kernel changes if the side's rows may leave without a partner.
_PADDING = ("pass", "due", "padded")
#: All words of a side. ``far``: searches took many steps between places far apart in memory.
WORDS = (*_CHANGING, *_PADDING, "rows", "room", "reach", "far")


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one row. ``places``: part → (offset in bytes, storage). ``size``: bytes."""

    places: Mapping[str, tuple[int, str]]
    size: int

    @property
    def dtype(self) -> np.dtype[np.void]:
        return np.dtype(
            {
                "names": list(self.places),
                "formats": [stored_dtype(kind) for _, kind in self.places.values()],
                "offsets": [offset for offset, _ in self.places.values()],
                "itemsize": self.size,
            }
        )


@dataclass(frozen=True, slots=True)
class Side:
    """An input of the kernel. ``record``: the record stored per row. ``time``: the input's time
    column in the band (None: there is no band)."""

    name: str
    other: str
    port: int
    schema: Schema
    keys: tuple[int, ...]
    time: int | None
    record: Record
    pads: bool  # rows without a partner are output, too
    marks: bool  # each row records whether it has a partner

    @property
    def changing(self) -> tuple[str, ...]:
        """The words that the kernel changes."""
        return (*_CHANGING, *_PADDING) if self.pads else _CHANGING

    def holds(self, c: int) -> str | None:
        """The part of the record that holds column ``c``; None if the record lacks the column."""
        if c == self.time and self.schema[c].type.storage == "int64":
            return "t"
        return f"c{c}" if f"c{c}" in self.record.places else None

    def view(self, kernel: KernelText, part: str) -> str:
        """The expression of a view of one part of all records."""
        offset, storage = self.record.places[part]
        address = f"{kernel.word(self.name + 'rows')} + {offset}"
        return f"{FIELDS[storage]}({address}, {self.name}room, {self.record.size})"

    def stored(self, kernel: KernelText) -> list[Lazy]:
        """The columns of row ``at``. The kernel never reads a column that the record lacks."""
        s, found = self.name, []
        for c, f in enumerate(self.schema):
            part, mask = self.holds(c), f"m{c}" if f"m{c}" in self.record.places else None
            found.append(
                Lazy(
                    f"{s}{part}",
                    "" if part is None else self.view(kernel, part),
                    None if mask is None else f"{s}{mask}",
                    "" if mask is None else self.view(kernel, mask),
                    f.type,
                    "at",
                )
            )
        return found


def record_of(parts: Mapping[str, str]) -> Record:
    """The record of ``parts`` (name → storage). The widest parts come first, so that each part is
    aligned. The size is a multiple of 8 bytes."""
    widths = {name: stored_dtype(storage).itemsize for name, storage in parts.items()}
    places, offset = {}, 0
    for name in sorted(parts, key=lambda n: -widths[n]):
        places[name] = offset, parts[name]
        offset += widths[name]
    return Record(places, -(-offset // 8) * 8)


def side_of(node: OopJoinExec, port: int, words: int) -> Side:
    """The side of input ``port``. ``words``: the number of words of a key."""
    schema = (node.left, node.right)[port].schema
    first = len(node.left.schema) if port else 0
    pair = {*node.columns, *columns_of(*node.rest)}
    time = None if node.band is None else (node.band.left, node.band.right)[port]
    parts = {} if time is None else {"t": "int64"}
    parts |= {f"k{w}": "int64" for w in range(words)}
    parts |= dict.fromkeys(LINKS if time is not None and not node.sliced else LINKS[:1], "int32")
    marks = node.shows_of(port)
    if marks:
        parts["met"] = "bool"
    for c, f in enumerate(schema):
        if first + c not in pair or (c == time and f.type.storage == "int64"):
            continue
        parts[f"c{c}"] = f.type.storage
        if f.nullable and c != time:
            parts[f"m{c}"] = "bool"
    keys = tuple(key[port] for key in node.keys)
    name, other = SIDES[port], SIDES[1 - port]
    pads = marks and node.kind != "semi"
    return Side(name, other, port, schema, keys, time, record_of(parts), pads, marks)


def rows_of(saved: Snapshot, side: Side, slots: Mapping[str, int]) -> npt.NDArray[Any]:
    """The rows of a side in a snapshot, in the order of arrival."""
    head, top, base, room = (
        int(saved.words[slots[side.name + word]]) for word in ("head", "top", "base", "room")
    )
    rows: npt.NDArray[Any] = saved.arrays[f"{side.name}rows"]
    return rows[(np.arange(head, top) - base) % max(room, 1)]


def disorder_of(times: npt.NDArray[np.int64]) -> tuple[int, int]:
    """The highest of the times, and how far at most one is below the highest one before it."""
    highest = np.maximum.accumulate(times)
    latest = int(highest[-1]) if times.size else NEVER
    return latest, int((highest - times).max(initial=0))
