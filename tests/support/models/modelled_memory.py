"""The memory of a model (``interleave``): int64 words, the accesses of threads to them, and the
data races among these accesses.

Words that change are part of a state. A word is *shared* if threads are switched before operations
on it. The exploration learns the kind of each word: it raises ``KindError`` when a word turns out
to be of another kind, and starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: Address of the first word.
_FIRST = 1 << 12

# How a word was touched.
_READ, _WRITE, _LOAD, _CHANGE, _ADD = (1 << k for k in range(5))
#: The kinds of accesses that race with an access of each kind.
_AGAINST = {
    _READ: (_WRITE, _CHANGE),
    _WRITE: (_READ, _WRITE, _LOAD, _CHANGE),
    _LOAD: (_WRITE,),
    _CHANGE: (_READ, _WRITE),
}


class ScheduleError(Exception):
    """A fault of the scenario under one schedule."""


class KindError(Exception):
    """A word was not of the kind that the exploration had assumed."""


def require(condition: Any, text: str) -> None:
    if not condition:
        raise ScheduleError(text)


class View(tuple["Memory", int, int]):
    """The result of ``words`` in a kernel: the memory, an address, and the number of words."""

    __slots__ = ()

    def __getitem__(self, k: Any) -> Any:
        memory, address, n = self
        if k.__class__ is slice:
            first, last = k.start or 0, n if k.stop is None else k.stop
            require(0 <= first <= last <= n, "a part that is not there")
            return View((memory, address + 8 * first, last - first))
        if not 0 <= k < n:
            raise ScheduleError(f"word {k} of {n}")
        return memory.read(address + 8 * k)

    def __setitem__(self, k: int, value: int) -> None:
        memory, address, n = self
        if not 0 <= k < n:
            raise ScheduleError(f"word {k} of {n}")
        memory.write(address + 8 * k, value)

    def reshape(self, shape: tuple[int, int]) -> Rows:
        return Rows((self, *shape))


class Rows(tuple[View, int, int]):
    """A view as a table: the view, the number of rows and the number of columns."""

    __slots__ = ()

    def __getitem__(self, k: Any) -> Any:
        view, _, columns = self
        if k.__class__ is tuple:
            return view[columns * k[0] + k[1]]
        return view[columns * k : columns * (k + 1)]

    def __setitem__(self, k: tuple[int, int], value: int) -> None:
        view, _, columns = self
        view[columns * k[0] + k[1]] = value

    @property
    def shape(self) -> tuple[int, int]:
        _, rows, columns = self
        return rows, columns


class Memory:
    """The memory of ``threads`` threads. ``mode`` is ``races``, ``values`` or ``x86``
    (``interleave``)."""

    def __init__(self, mode: str) -> None:
        assert mode in ("races", "values", "x86"), mode
        self._x86, self._looks = mode == "x86", mode == "races"
        self.threads = 0
        self._top = _FIRST
        self._initial: dict[int, int] = {}
        #: The index in ``_values`` of each word that changes, by address.
        self._place: dict[int, int] = {}
        self._values: list[int] = []
        #: The shared words, with a bit number each (threads have the lower bit numbers), and the
        #: words on which accesses can race.
        self._shared: dict[int, int] = {}
        self._raced: set[int] = set()
        self._touched: dict[int, dict[int, int]] = {}
        #: The threads and shared words that are ordered after an access, as a bit set, by
        #: (word, kind of access, thread).
        self._known: dict[tuple[int, int, int], int] = {}
        self._buffers: list[tuple[tuple[int, int], ...]] = []
        self._thread = -1  # the thread that runs; -1: none
        self._exploring = self._learning = False

    # -- building ----------------------------------------------------------------------------------

    def words(self, n: int) -> int:
        """Allocates ``n`` words of zeros; returns their address."""
        address = self._top
        self._top += 8 * n
        self._initial.update(dict.fromkeys(range(address, self._top, 8), 0))
        return address

    def put(self, address: int, values: Mapping[int, int] | Sequence[int]) -> None:
        pairs = values.items() if isinstance(values, Mapping) else enumerate(values)
        for k, value in pairs:
            self.write(address + 8 * k, value)

    def get(self, address: int, k: int = 0) -> int:
        return self._at(address + 8 * k)

    # -- accesses ----------------------------------------------------------------------------------

    def read(self, address: int) -> int:
        if address in self._place and self._thread >= 0:
            self._touch(address, _READ)
            return self._seen(address)
        return self._at(address)

    def write(self, address: int, value: int) -> None:
        if address in self._place and self._thread >= 0:
            self._touch(address, _WRITE)
            waits = any(a == address for a, _ in self._buffers[self._thread])
            assert not waits, "a plain write behind a store to the same word"
        self._set(address, value)

    def _view(self, address: int, n: int) -> View:
        """Replaces ``words``."""
        return View((self, address, n))

    def _copy(self, source: int, target: int, n: int) -> None:
        """Replaces ``copy_bytes``; copies whole words only."""
        require(n % 8 == 0, f"{n} bytes")
        for k in range(0, n, 8):
            self.write(target + k, self.read(source + k))

    def _at(self, address: int) -> int:
        place = self._place.get(address)
        if place is not None:
            return self._values[place]
        value = self._initial.get(address)
        if value is None:
            raise ScheduleError(f"address {address}")
        return value

    def _set(self, address: int, value: int) -> None:
        require(value != -2, "nothing counts down so far")  # -2 has the same hash as -1
        place = self._place.get(address)
        if place is not None:
            self._values[place] = int(value)
            return
        if address not in self._initial:
            raise ScheduleError(f"address {address}")
        if not self._exploring:
            self._initial[address] = int(value)
            return
        self._place[address] = len(self._place)
        self._values.append(int(value))
        self._learnt()

    def _seen(self, address: int) -> int:
        """The value of a word as the running thread sees it: its own buffered stores come first."""
        for a, value in reversed(self._buffers[self._thread]):
            if a == address:
                return value
        return self._at(address)

    # -- accesses by thread ------------------------------------------------------------------------

    def _touch(self, address: int, how: int) -> bool:
        """Notes an access to a word that changes; returns whether threads may be switched before
        it."""
        touched = self._touched.setdefault(address, {})
        if not touched.get(self._thread, 0) & how:
            touched[self._thread] = touched.get(self._thread, 0) | how
            self._sort(address, touched)
        if how & (_READ | _WRITE):
            self._look_for_race(address, how)
        return address in self._shared

    def _sort(self, address: int, touched: Mapping[int, int]) -> None:
        """Determines the kind of a word from the accesses of each thread (``touched``)."""
        if len(touched) < 2:
            return
        atomic = [ways for ways in touched.values() if ways & (_LOAD | _CHANGE | _ADD)]
        all_ways = 0
        for ways in touched.values():
            all_ways |= ways
        is_shared = len(atomic) > 1 and all_ways & (_CHANGE | _ADD) and all_ways & (_LOAD | _CHANGE)
        races = all_ways & (_READ | _WRITE) and all_ways & (_WRITE | _CHANGE | _ADD)
        if is_shared and address not in self._shared:
            self._shared[address] = self.threads + len(self._shared)
            self._learnt()
        if races and self._looks and address not in self._raced:
            self._raced.add(address)
            self._learnt()

    def _learnt(self) -> None:
        if not self._learning:
            raise KindError

    # -- races -------------------------------------------------------------------------------------

    def _look_for_race(self, address: int, how: int) -> None:
        """Raises ScheduleError if an access of the running thread races with an earlier access."""
        if address not in self._raced or self._thread < 0:
            return
        known, me = self._known, self._thread
        before = [(address, kind, t) for kind in _AGAINST[how] for t in range(self.threads)]
        for key in before:
            mask = known.get(key)
            if mask is not None and not mask >> me & 1:
                raise ScheduleError(f"threads {key[2]} and {me} race for word {address}")
        if how == _WRITE:  # an access that races with an earlier access also races with this one
            for key in before:
                known.pop(key, None)
        known[address, how, me] = 1 << me

    def _acquire(self, address: int) -> None:
        bit = self._shared.get(address)
        if bit is None or not self._looks or self._thread < 0:
            return
        me, everyone = self._thread, (1 << self.threads) - 1
        for key, mask in list(self._known.items()):
            if mask >> bit & 1:
                mask |= 1 << me
                if mask & everyone == everyone:
                    del self._known[key]
                else:
                    self._known[key] = mask

    def _release(self, address: int, *, goes_on: bool, releases: bool = True) -> None:
        """``goes_on``: the releases of other threads to this word stay in effect."""
        bit = self._shared.get(address)
        if bit is None or not self._looks or self._thread < 0:
            return
        for key, mask in self._known.items():
            if releases and mask >> self._thread & 1:
                self._known[key] = mask | 1 << bit
            elif not goes_on:
                self._known[key] = mask & ~(1 << bit)

    # -- operations --------------------------------------------------------------------------------

    def _load(self, address: int, acquires: bool = True) -> int:
        self._look_for_race(address, _LOAD)
        if acquires:
            self._acquire(address)
        return self._seen(address) if self._thread >= 0 else self._at(address)

    def _store(self, address: int, value: int, releases: bool = True, waits: bool = True) -> None:
        self._look_for_race(address, _CHANGE)
        self._release(address, goes_on=False, releases=releases)
        if self._x86 and waits and address in self._shared and self._thread >= 0:
            t = self._thread
            self._buffers[t] = (*self._buffers[t], (address, int(value)))
        else:
            self._set(address, value)

    def _change(self, address: int, change: Callable[[int], int], ordered: bool = True) -> int:
        self._look_for_race(address, _CHANGE)
        old = self._at(address)
        if ordered:
            self._acquire(address)
            self._release(address, goes_on=True)
        self._set(address, change(old))
        return old

    def _swap_if(self, address: int, expected: int, new: int) -> int:
        if self._at(address) == expected:
            return self._change(address, lambda _: new)
        self._look_for_race(address, _LOAD)
        return self._at(address)

    def _leave(self, condition: int, mutex: int) -> int:
        self._change(mutex, lambda _: 0)
        return self._load(condition)

    def _is_point(self, name: str, args: tuple[int, ...], used: bool) -> bool:
        """Whether threads may be switched before an operation."""
        waits = self._buffers[self._thread] != () and name in EMPTIES
        if name in ("pause", "fence"):
            return waits
        how = _CHANGE
        if name.startswith("load") or name == "condition_wait":
            how = _LOAD
        elif name.startswith("fetch_add") and not used:
            how = _ADD
        ways = [(args[0], how)] + ([(args[1], _CHANGE)] if name == "condition_leave" else [])
        touched = [self._touch(a, way) for a, way in ways if a in self._place]
        return any(touched) or waits


DO: dict[str, Callable[..., Any]] = {
    "load": Memory._load,
    "load_acquire": Memory._load,
    "load_relaxed": lambda m, a: m._load(a, acquires=False),
    "store": lambda m, a, v: m._store(a, v, waits=False),
    "store_release": Memory._store,
    "store_relaxed": lambda m, a, v: m._store(a, v, releases=False),
    "fetch_add": lambda m, a, v: m._change(a, lambda old: old + v),
    "fetch_add_relaxed": lambda m, a, v: m._change(a, lambda old: old + v, ordered=False),
    "exchange": lambda m, a, v: m._change(a, lambda _: v),
    "compare_and_swap": Memory._swap_if,
    "fence": lambda m: None,
    "pause": lambda m: None,
    "mutex_lock": lambda m, a: m._change(a, lambda _: 1),
    "mutex_unlock": lambda m, a: m._change(a, lambda _: 0),
    "condition_leave": Memory._leave,
    "condition_wait": Memory._load,
    "broadcast": lambda m, a: m._change(a, lambda old: old + 1),
}
#: Operations that wait until the stores of their thread have reached the memory.
EMPTIES = frozenset(DO) - {
    "load",
    "load_acquire",
    "load_relaxed",
    "store_release",
    "store_relaxed",
    "pause",
    "condition_wait",
}
