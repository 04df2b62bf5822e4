"""Objects that declare what they remember by the names of their attributes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cql.executor.state.store import Snapshot


class Declared:
    """``saved_numbers``: attributes that are whole numbers or truth values. ``saved_arrays``:
    arrays. ``saved_tables``: dictionaries of arrays. ``saved_parts``: objects with snapshots of
    their own. What is in none of these holds nothing between two morsels, or never changes."""

    saved_numbers: ClassVar[tuple[str, ...]] = ()
    saved_arrays: ClassVar[tuple[str, ...]] = ()
    saved_tables: ClassVar[tuple[str, ...]] = ()
    saved_parts: ClassVar[tuple[str, ...]] = ()

    def snapshot(self) -> Snapshot:
        """The state; the runtime has no morsel inside."""
        arrays = {name: getattr(self, name).copy() for name in self.saved_arrays}
        for table in self.saved_tables:
            arrays |= {f"{table} {n}": a.copy() for n, a in getattr(self, table).items()}
        numbers = [int(getattr(self, name)) for name in self.saved_numbers]
        parts = {name: getattr(self, name).snapshot() for name in self.saved_parts}
        return Snapshot(arrays, np.array(numbers, np.int64), parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. The codes are those of the
        snapshot: ``map_codes`` follows."""
        for name in self.saved_arrays:
            setattr(self, name, saved.arrays[name].copy())
        for table in self.saved_tables:
            held: dict[str, Any] = getattr(self, table)
            setattr(self, table, {n: saved.arrays[f"{table} {n}"].copy() for n in held})
        for name, number in zip(self.saved_numbers, saved.words.tolist(), strict=True):
            setattr(self, name, type(getattr(self, name))(number))
        for name in self.saved_parts:
            getattr(self, name).restore(saved.parts[name])
