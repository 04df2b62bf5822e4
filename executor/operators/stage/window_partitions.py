"""The groups of open windows (``kernels.windows.region_table``), divided among another number of
partitions.

In each window, the groups that a new partition takes of all old ones stay in the order in which
they began. Partitions know this order by a column of the groups; without partitions, the groups
stand in it. The values that DISTINCT calls and value logs keep beside the groups follow them. A
window without groups of a partition is not open there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cql.executor.codegen.key_packing import pack_keys
from cql.executor.kernels.windows import region_table
from cql.executor.operators.flow.ownership import key_values
from cql.executor.operators.stage.spec import Table
from cql.executor.state.repartition import KeyColumns, Owners
from cql.executor.state.store import Array, Snapshot, State
from cql.planner.nodes.expr import Expr

Words = npt.NDArray[np.int64]
#: The column behind the keys that says when a group began.
BORN = "born"


@dataclass(frozen=True)
class Entries:
    """The entries that open windows have in a table, of several old partitions. ``windows``: the id
    of the window of each. ``records``: shape (entries, words of a record). ``born``: when each
    began, as a number that rises. ``nulls``: bits of their NULL keys. ``begins``: by old partition
    and slot, the number of the first entry."""

    windows: Words
    records: Words
    born: Words
    nulls: Words | None
    begins: list[Words]
    slots: list[Words]  # of each old partition: the slot of each of its entries


def entries_of(saved: Sequence[Snapshot], table: Table, spare: int) -> Entries:
    """The entries of all open windows in one table. ``spare``: the word with the number of unused
    slots."""
    windows, records, births, nulls, begins, slots = [], [], [], [], [], []
    before = 0
    for one in saved:
        ids, free = one.arrays["window_ids"], one.arrays["spares"][: int(one.words[spare])]
        open_slots = np.setdiff1d(np.arange(ids.size), free)
        open_slots = open_slots[np.argsort(ids[open_slots])]
        bases, counts = (
            one.arrays[name + table.suffix][open_slots] for name in ("bases", "counts")
        )
        first = np.cumsum(counts) - counts
        places = np.repeat(bases - first, counts) + np.arange(counts.sum())
        own_slots = np.repeat(open_slots, counts)
        begin = np.zeros(ids.size, np.int64)
        begin[open_slots] = before + first
        windows.append(ids[own_slots])
        lines, born = _records(one, table)
        records.append(lines[places])
        # The place in its window comes before the stream position of every later row.
        births.append(places - np.repeat(bases, counts) if born is None else born[places])
        if not table.suffix and "nulls" in one.arrays:
            nulls.append(one.arrays["nulls"][places])
        begins.append(begin)
        slots.append(own_slots)
        before += len(places)
    return Entries(
        np.concatenate(windows),
        np.concatenate(records),
        np.concatenate(births),
        np.concatenate(nulls) if nulls else None,
        begins,
        slots,
    )


def _records(saved: Snapshot, table: Table) -> tuple[Words, Words | None]:
    """The records of a table, without a column for when each began if ``table`` has none, with room
    for it if only ``table`` has it; and this column, None if it was not saved."""
    words, top = saved.arrays["records" + table.suffix], int(saved.arrays["top" + table.suffix][0])
    own = len(table.columns)
    width = len(words) // top if top else own
    lines, at = words.reshape(-1, width), table.hashed
    known = width > own or (width == own and any(name == BORN for name, _ in table.columns))
    born = lines[:, at] if known else None
    if width > own:
        lines = np.delete(lines, at, 1)
    elif width < own:
        lines = np.insert(lines, at, 0, 1)
    return lines, born


def owners_of(records: Words, nulls: Words | None, keys: Sequence[Expr], owners: Owners) -> Words:
    """The new partition of each group. ``records``: a line of words per group, the words of its key
    first. ``nulls``: bits of its NULL keys."""
    nullable = [k for k, key in enumerate(keys) if key.nullable]
    columns: list[tuple[Array, Array | None]] = []
    for k, (key, part) in enumerate(zip(keys, pack_keys([e.type for e in keys])[0], strict=True)):
        words = np.ascontiguousarray(records[:, part.word])
        valid = None
        if nulls is not None and key.nullable:
            valid = (nulls >> nullable.index(k)) & 1 == 0
        columns.append((key_values(words, key.type, part), valid))
    found: KeyColumns = columns
    return owners.of(found, len(records))


class Divided:
    """The arrays of new partitions. ``tables``: the groups, then the values beside them. ``saved``:
    the old partitions; ``spare``: as in ``entries_of``."""

    def __init__(
        self,
        saved: Sequence[Snapshot],
        tables: Sequence[Table],
        spare: int,
        keys: Sequence[Expr],
        owners: Owners,
    ) -> None:
        self._tables = tables
        self._entries = [entries_of(saved, table, spare) for table in tables]
        groups = self._entries[0]
        self._owners = owners_of(groups.records, groups.nulls, keys, owners)
        #: Of each value beside the groups, the number of its group.
        self._groups = [
            self._groups_of(table, entries)
            for table, entries in zip(tables[1:], self._entries[1:], strict=True)
        ]

    def _groups_of(self, table: Table, entries: Entries) -> Words:
        owner = owner_column(table)
        begins = [
            begin[slots]
            for begin, slots in zip(self._entries[0].begins, entries.slots, strict=True)
        ]
        found: Words = np.concatenate(begins) + entries.records[:, owner]
        return found

    def part(self, number: int, smallest: int) -> tuple[State, dict[str, int]]:
        """The arrays of a new partition, and the words that describe them. ``smallest``: the least
        capacity of a table, in entries."""
        groups = self._entries[0]
        mine = np.flatnonzero(self._owners == number)
        mine = mine[np.lexsort((groups.born[mine], groups.windows[mine]))]
        ids, counts = np.unique(groups.windows[mine], return_counts=True)
        first = np.cumsum(counts) - counts
        places = np.full(len(groups.windows), -1, np.int64)  # of the groups, in their windows
        places[mine] = np.arange(len(mine)) - np.repeat(first, counts)
        arrays, words = directory(ids)
        nulls = None if groups.nulls is None else groups.nulls[mine]
        records = groups.records[mine]
        if any(name == BORN for name, _ in self._tables[0].columns):
            records[:, self._tables[0].hashed] = groups.born[mine]
        self._put(arrays, words, 0, records, counts, smallest, nulls)
        for at, of in enumerate(self._groups, 1):
            table, entries = self._tables[at], self._entries[at]
            taken = np.flatnonzero(self._owners[of] == number)
            taken = taken[np.argsort(entries.windows[taken], kind="stable")]
            records = entries.records[taken]
            records[:, owner_column(table)] = places[of[taken]]
            found = np.searchsorted(ids, entries.windows[taken])
            self._put(arrays, words, at, records, np.bincount(found, minlength=len(ids)), smallest)
        return arrays, words

    def _put(
        self,
        arrays: State,
        words: dict[str, int],
        number: int,
        records: Words,
        counts: Words,
        smallest: int,
        nulls: Words | None = None,
    ) -> None:
        """Adds the arrays of a table: a region for each window, with ``counts`` of ``records``."""
        suffix, width = self._tables[number].suffix, len(self._tables[number].columns)
        classes = np.array([region_table.class_for(int(n)) for n in counts], np.int64)
        sizes = 1 << classes
        bases = np.cumsum(sizes) - sizes
        top, entries = int(sizes.sum()), smallest
        while entries < top:
            entries *= 2
        before = np.cumsum(counts) - counts
        at = np.repeat(bases - before, counts) + np.arange(len(records))
        table = np.zeros((top, width), np.int64)
        table[at] = records
        arrays["records" + suffix] = table.reshape(-1)
        if nulls is not None:
            arrays["nulls"] = np.zeros(top, np.int64)
            arrays["nulls"][at] = nulls
        arrays["heads" + suffix] = np.zeros(region_table.CLASSES, np.int64)
        arrays["top" + suffix] = np.array([top], np.int64)
        for name, values in (("bases", bases), ("classes", classes), ("counts", counts)):
            arrays[name + suffix] = np.zeros(len(arrays["window_ids"]), np.int64)
            arrays[name + suffix][: len(values)] = values
        words["entries" + suffix] = entries


def owner_column(table: Table) -> int:
    """The column with the number, in its window, of the group that a value belongs to."""
    return next(k for k, (name, _) in enumerate(table.columns) if name.startswith("owner"))


def directory(ids: Words) -> tuple[State, dict[str, int]]:
    """The directory of open windows with ``ids``, ascending: window k has slot k."""
    n, slots = len(ids), 16
    while slots < n:
        slots *= 2
    arrays: State = {name: np.zeros(slots, np.int64) for name in ("window_ids", "heap", "spares")}
    arrays["places"] = np.zeros(2 * slots, np.int64)
    for slot, window in enumerate(ids.tolist()):
        region_table.insert_slot(
            arrays["places"], arrays["window_ids"], 2 * slots - 1, window, slot
        )
    arrays["heap"][:n] = ids
    arrays["spares"][: slots - n] = np.arange(slots - 1, n - 1, -1)
    return arrays, {"slots": slots, "open": n, "spare": slots - n}


def shared(
    saved: Sequence[Snapshot],
    slots: Mapping[str, int],
    counters: Sequence[str],
    part: int,
) -> Words:
    """The words of new partition number ``part``: those of the first old one. The first one has the
    sums of the counters. ``next_window`` and the like are the highest of all: the watermark has
    closed the windows before."""
    words = saved[0].words.copy()
    for name, slot in slots.items():
        values = [int(one.words[slot]) for one in saved]
        if name in counters or name == "emitted":
            words[slot] = sum(values) if part == 0 else 0
        elif name.startswith(("next_window", "usual")):
            words[slot] = max(values)
        elif name.startswith("direct"):
            words[slot] = min(values)
        elif name.startswith("strays"):
            words[slot] = 0
    return words
