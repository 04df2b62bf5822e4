"""The state of OOP-Join, divided among another number of partitions.

The rows of a key are in one partition, in the order of arrival. The order of rows of different keys
matters for speed only: rows leave a ring in its order. So the rings of several partitions are
merged by the highest time before each row, which keeps the disorder of a ring low.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.types import DataType
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.operators.flow.ownership import key_values
from cql.executor.operators.joins.key_index import KeyLayout
from cql.executor.operators.joins.oop_join_side import Side
from cql.executor.state.repartition import KeyColumns, Owners
from cql.executor.state.store import Snapshot


def rows_of(saved: Snapshot, side: Side, slots: Mapping[str, int]) -> npt.NDArray[Any]:
    """The rows of a side in a snapshot, in the order of arrival."""
    head, top, base, room = (
        int(saved.words[slots[side.name + word]]) for word in ("head", "top", "base", "room")
    )
    rows: npt.NDArray[Any] = saved.arrays[f"{side.name}rows"]
    return rows[(np.arange(head, top) - base) % max(room, 1)]


def keys_of(rows: npt.NDArray[Any], layout: KeyLayout, types: Sequence[DataType]) -> KeyColumns:
    """The key columns of rows; no key is NULL."""
    found = []
    for kind, part in zip(types, layout.parts, strict=True):
        found.append((key_values(np.ascontiguousarray(rows[f"k{part.word}"]), kind, part), None))
    return found


def divided(
    found: Sequence[npt.NDArray[Any]],
    side: Side,
    layout: KeyLayout,
    types: Sequence[DataType],
    owners: Owners,
) -> list[npt.NDArray[Any]]:
    """The rows of a side in each new partition; ``found`` has those in each old one."""
    own = [owners.of(keys_of(rows, layout, types), len(rows)) for rows in found]
    made = []
    for part in range(owners.parts):
        taken = [rows[of == part] for rows, of in zip(found, own, strict=True)]
        rows = np.concatenate(taken, dtype=found[0].dtype)  # the places in a record stay
        if side.time is not None:
            highest = [np.maximum.accumulate(one["t"]) for one in taken]
            rows = rows[np.argsort(np.concatenate(highest), kind="stable")]
        made.append(rows)
    return made


def disorder_of(times: npt.NDArray[np.int64]) -> tuple[int, int]:
    """The highest of the times, and how far at most one is below the highest one before it."""
    highest = np.maximum.accumulate(times)
    latest = int(highest[-1]) if times.size else NEVER
    return latest, int((highest - times).max(initial=0))
