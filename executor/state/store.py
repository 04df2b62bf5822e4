"""The state of an operator: flat arrays by name, and the words of its descriptor.

A store allocates its arrays, accounts for their bytes, and writes their addresses into the
descriptor. Every array has a role, and every word is either *bound* (an address, or a size or a
constant of this process, which ``bind`` methods write again) or plain state. So a snapshot is the
arrays with the role STATE and the words that are not bound; it holds no address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cql.executor.morsel.buffers import POOL
from cql.executor.state.stateful import Stateful

Array: TypeAlias = npt.NDArray[Any]
State: TypeAlias = dict[str, Array]
#: What ``max_state`` names as the owner of scratch.
BUFFERS = "the rows between its operators"


class Role(Enum):
    """What an array holds between two morsels. STATE: what the operator remembers. DERIVED: what
    follows from the state, such as an index. SCRATCH: nothing."""

    STATE = "state"
    DERIVED = "derived"
    SCRATCH = "scratch"


class Account(Protocol):
    """``max_state`` of a query."""

    def resize(self, before: int, after: int, what: str) -> None:
        """Accounts for state that grows from ``before`` to ``after`` bytes; raises RunError if the
        query's state would exceed its limit."""
        ...


@dataclass(frozen=True)
class Snapshot:
    """What an operator remembers between two morsels, as flat arrays of plain numbers and of codes
    of the dictionary. ``words``: those of the descriptor, 0 where a word is bound. ``parts``: the
    snapshots of the operators inside it. ``names`` of the words, if a kernel was generated for
    them."""

    arrays: Mapping[str, Array]
    words: npt.NDArray[np.int64]
    parts: Mapping[str, Snapshot] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        own = sum(a.nbytes for a in self.arrays.values()) + self.words.nbytes
        return own + sum(part.nbytes for part in self.parts.values())


class Saves(Protocol):
    """What has state between two morsels. ``restore`` continues with the state of an object of the
    same plan; the codes are those of the snapshot: ``map_codes`` follows."""

    def snapshot(self) -> Snapshot: ...

    def restore(self, saved: Snapshot) -> None: ...


def plain_words(words: npt.NDArray[np.int64], bound: Iterable[int]) -> npt.NDArray[np.int64]:
    """A copy of a descriptor in which the ``bound`` words are 0."""
    plain = words.copy()
    plain[list(bound)] = 0
    return plain


def take_plain_words(
    saved: npt.NDArray[np.int64], words: npt.NDArray[np.int64], bound: Iterable[int], owner: str
) -> None:
    """Copies all words but the ``bound`` ones from ``saved`` into the descriptor ``words``.

    Raises ValueError if the descriptor had other words."""
    if saved.size != words.size:
        raise ValueError(f"{owner}: {words.size} words, and {saved.size} saved")
    plain = np.ones(words.size, np.bool_)
    plain[list(bound)] = False
    words[plain] = saved[plain]


class StateStore(Stateful):
    """The arrays of the operator called ``owner``. ``roles``: by name, those that are not STATE.
    ``bound``: the numbers of the descriptor's bound words."""

    def __init__(self, owner: str, account: Account) -> None:
        self.arrays: State = {}
        self.roles: dict[str, Role] = {}
        self.bound: set[int] = set()
        self._owner = owner
        self._account = account

    def resize(
        self,
        name: str,
        size: int,
        dtype: npt.DTypeLike,
        role: Role = Role.STATE,
        *,
        keeps: bool = True,
        clears: bool = True,
    ) -> Array:
        """Gives an array ``size`` entries, and returns the array that it had before (empty if
        none). ``keeps``: the old entries that fit stay. ``clears``: all others are zero; without,
        they hold anything.

        Raises RunError, and changes nothing, if the state would grow over ``max_state``."""
        dtype = np.dtype(dtype)
        old = self.arrays.get(name)
        if old is None:
            old = np.empty(0, dtype)
        what = BUFFERS if role is Role.SCRATCH else self._owner
        self._account.resize(old.nbytes, size * dtype.itemsize, what)
        kept = min(size, len(old)) if keeps else 0
        if clears and kept == 0:
            new = POOL.zeros(dtype, size)
        else:
            new = POOL.empty(dtype, size)
            new[:kept] = old[:kept]
            if clears:
                new[kept:] = 0
        self.arrays[name] = new
        if role is not Role.STATE:
            self.roles[name] = role
        return old

    def put(self, arrays: State) -> None:
        """Replaces all arrays; the caller has accounted for their bytes."""
        self.arrays = arrays

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays but scratch. Other threads may ask."""
        held = [a for n, a in list(self.arrays.items()) if self.roles.get(n) is not Role.SCRATCH]
        return sum(a.nbytes for a in held)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(
        self, words: npt.NDArray[np.int64], used: Mapping[str, int] | None = None
    ) -> Snapshot:
        """Copies of the state. ``used``: the number of entries of an array from which on it holds
        nothing."""
        ends = used or {}
        kept = {n: a for n, a in self.arrays.items() if self.roles.get(n, Role.STATE) is Role.STATE}
        copies = {n: _copied(a[: ends.get(n)]) for n, a in kept.items()}
        return Snapshot(copies, plain_words(words, self.bound))

    def restore(
        self,
        saved: Snapshot,
        words: npt.NDArray[np.int64],
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Replaces the state by a snapshot of an operator with the same plan. ``sizes``: the
        entries of the arrays that get more than the snapshot holds. The caller binds the words and
        rebuilds the derived arrays.

        Raises ValueError if the descriptor had other words."""
        take_plain_words(saved.words, words, self.bound, self._owner)
        for name, array in saved.arrays.items():
            size = (sizes or {}).get(name, len(array))
            inner = np.dtype((array.dtype, array.shape[1:]))
            self.resize(name, size, inner, keeps=False, clears=False)
            self.arrays[name][: len(array)] = array

    def release(self, names: Iterable[str]) -> None:
        """Lets arrays go, after the last morsel."""
        for name in names:
            self.arrays.pop(name, None)


def _copied(array: Array) -> Array:
    """A copy in memory of the pool: to touch fresh memory takes ten times as long."""
    copy = POOL.empty(np.dtype((array.dtype, array.shape[1:])), len(array))
    copy[...] = array
    return copy
