"""A bounded LRU cache, safe to use from several threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, cast

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")

_MISSING: Any = object()


class LruCache(Generic[Key, Made]):
    """LRU cache, bounded by the total weight of its keys: ``room``, in the unit of ``weigh``.

    Callers share the values and must not change them."""

    def __init__(self, room: int, weigh: Callable[[Key], int]) -> None:
        self._room = room
        self._weigh = weigh
        self._weight = 0
        self._made: OrderedDict[Key, Made] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._made)

    def get(self, key: Key, make: Callable[[], Made]) -> Made:
        """The value of ``key``; a miss calls ``make`` and passes its exceptions on.

        Two threads that miss the same key at once both get the value that was stored first. A key
        heavier than ``room`` is not stored."""
        with self._lock:
            if (found := self._made.get(key, _MISSING)) is not _MISSING:
                self._made.move_to_end(key)
                return cast("Made", found)
        made, weight = make(), self._weigh(key)
        if weight > self._room:
            return made
        with self._lock:
            if key in self._made:
                return self._made[key]
            self._made[key] = made
            self._weight += weight
            while self._weight > self._room:
                oldest, _ = self._made.popitem(last=False)
                self._weight -= self._weigh(oldest)
        return made
