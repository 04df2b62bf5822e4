"""The state of the partitions of an operator, divided among another number of partitions.

Each array of state declares, as ``Values``, the *space* whose places its values belong to (the
slots of a slab, the ids of groups, …), and the spaces that its values refer to. So one function
selects the places that a new partition takes of each old snapshot, renumbers what refers to them,
and appends: the places of a new partition are those of the first old snapshot, then those of the
second one, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cql.executor.state.store import Array, Snapshot

Places: TypeAlias = npt.NDArray[np.int64]
#: Key columns: per column its values, and which of them are not NULL (None: all).
KeyColumns: TypeAlias = Sequence[tuple[Array, Array | None]]
#: A word that the operators have which split rows among partitions, and no other operator.
SPLITS = "parts"
_PART = "part "


@dataclass(frozen=True, slots=True)
class Values:
    """An array with ``width`` values per place of ``space``. ``refers``: for each of these values
    that is the number of a place, that place's space. ``empty``: the value at places that hold
    nothing."""

    space: str
    width: int = 1
    refers: Mapping[int, str] = field(default_factory=dict)
    empty: int = 0


class Owners(Protocol):
    """Who gets which keys. ``parts``: the number of new partitions."""

    @property
    def parts(self) -> int: ...

    def of(self, keys: KeyColumns, n: int) -> Places:
        """The new partition of each of ``n`` keys of an old snapshot."""
        ...


class Alone:
    """The owner of all keys: an operator that does not run in partitions."""

    parts = 1

    def of(self, keys: KeyColumns, n: int) -> Places:
        return np.zeros(n, np.int64)


class Taken:
    """The places that one new partition takes of each old snapshot."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, str], Places] = {}
        self._new: dict[tuple[int, str], Places] = {}

    def take(self, k: int, space: str, places: Places, capacity: int) -> None:
        """Takes ``places`` of a space that has ``capacity`` of them in old snapshot ``k``."""
        new = np.full(capacity, -1, np.int64)
        first = self.count(space)
        new[places] = np.arange(first, first + len(places))
        self._places[k, space], self._new[k, space] = places, new

    def count(self, space: str) -> int:
        """The number of places taken of all old snapshots."""
        return sum(len(p) for (_, name), p in self._places.items() if name == space)

    def places(self, k: int, space: str) -> Places:
        return self._places[k, space]

    def numbers(self, k: int, space: str, old: Array) -> Places:
        """The new numbers of the places ``old`` of snapshot ``k``; -1 for those not taken, and for
        what is no place."""
        new = self._new[k, space]
        numbers = np.full(len(old), -1, np.int64)
        known = (old >= 0) & (old < len(new))
        numbers[known] = new[old[known]]
        return numbers

    def also(self, other: Taken, names: Mapping[str, str]) -> None:
        """Knows the spaces of ``other`` by the ``names`` given to them."""
        for (k, space), places in other._places.items():
            if space in names:
                self._places[k, names[space]] = places
                self._new[k, names[space]] = other._new[k, space]


def gather(
    layout: Mapping[str, Values],
    saved: Sequence[Mapping[str, Array]],
    taken: Taken,
    sizes: Mapping[str, int],
) -> dict[str, Array]:
    """The arrays of ``layout`` of a new partition. ``saved``: the arrays of each old snapshot.
    ``sizes``: by space, the number of places that the new partition has room for."""
    made = {}
    for name, values in layout.items():
        dtype: npt.DTypeLike = saved[0][name].dtype
        new = np.full((sizes[values.space], values.width), values.empty, dtype)
        at = 0
        for k, arrays in enumerate(saved):
            places = taken.places(k, values.space)
            lines = arrays[name].reshape(-1, values.width)[places]
            for column, space in values.refers.items():
                lines[:, column] = taken.numbers(k, space, lines[:, column])
            new[at : at + len(places)] = lines
            at += len(places)
        made[name] = new.reshape(-1)
    return made


def taken_by_owner(
    k: int,
    space: str,
    places: Places,
    owners: Places,
    capacity: int,
    takes: Sequence[Taken],
) -> None:
    """Lets each new partition take its own ``places`` of old snapshot ``k``; ``owners``: the
    partition of each."""
    for q, taken in enumerate(takes):
        taken.take(k, space, places[owners == q], capacity)


def shared_words(
    saved: Sequence[Snapshot], part: int, sums: Sequence[int], least: Sequence[int] = ()
) -> npt.NDArray[np.int64]:
    """The words of new partition number ``part``: those of the first old snapshot, but the first
    partition has the sums of the counters ``sums``, the others 0. Of the words ``least``, all have
    the least value."""
    words = saved[0].words.copy()
    for word in sums:
        words[word] = sum(int(one.words[word]) for one in saved) if part == 0 else 0
    for word in least:
        words[word] = min(int(one.words[word]) for one in saved)
    return words


# -- the snapshot of an operator in partitions -----------------------------------------------------


def whole(parts: Sequence[Snapshot]) -> Snapshot:
    """The snapshot of an operator that runs in partitions."""
    return Snapshot(
        {}, np.zeros(0, np.int64), {f"{_PART}{k}": part for k, part in enumerate(parts)}
    )


def is_divided(saved: Snapshot) -> bool:
    """Whether a snapshot is of an operator in partitions."""
    return f"{_PART}0" in saved.parts


def partitions_of(saved: Snapshot) -> list[Snapshot]:
    """The snapshots of an operator's partitions; the snapshot itself if it has none."""
    return list(saved.parts.values()) if is_divided(saved) else [saved]


def each(saved: Sequence[Snapshot], part: str) -> list[Snapshot]:
    """One of the ``parts`` of each snapshot."""
    return [one.parts[part] for one in saved]


def in_new_order(keys: Sequence[Array]) -> npt.NDArray[Any]:
    """The numbers of rows in the order of ``keys``, the first key first; ties stay in order."""
    order: npt.NDArray[Any] = np.lexsort(tuple(reversed(keys)))
    return order
