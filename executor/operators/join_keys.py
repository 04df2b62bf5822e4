"""The keys of a join: one table for both sides, with the latest row of each side.

A record is so many words of a key, then the place of the latest row of the left and of the right,
which may have left since. The index is open addressing by hash: an entry holds 31 bits of the hash
(which choose its place, too) and, below, the number of the record + 1, so that a miss reads nothing
else. Keys without rows are forgotten when room is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cql.executor.operators.packing import KeyPart, key_expression, pack_keys
from cql.executor.operators.rowscope import KernelText, RowScope
from cql.executor.unit import stored_dtype
from cql.model import Schema
from cql.types import DataType

SIDES = ("l", "r")


@dataclass(slots=True)
class Record:
    """Parts of one row: name → (offset, storage). The widest come first, so that none is split."""

    places: dict[str, tuple[int, str]] = field(default_factory=dict)
    _parts: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, storage: str) -> None:
        self._parts.append((name, storage))
        self._parts.sort(key=lambda part: -stored_dtype(part[1]).itemsize)
        offset = 0
        for part, kind in self._parts:
            self.places[part] = offset, kind
            offset += stored_dtype(kind).itemsize

    @property
    def size(self) -> int:
        """Bytes, as many as keep the widest part in line."""
        used = sum(stored_dtype(kind).itemsize for _, kind in self._parts)
        widest = stored_dtype(self._parts[0][1]).itemsize
        return -(-used // widest) * widest

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


@dataclass(slots=True)
class KeyTable:
    """Writes what a kernel does with keys; without any, all rows share the record 0. ``sliced``: a
    slice of time is one more word of a key, after the others."""

    kernel: KernelText
    types: Sequence[DataType]
    sliced: bool = False
    parts: list[KeyPart] = field(init=False)
    count: int = field(init=False)  # words of a key

    def __post_init__(self) -> None:
        self.parts, self.count = pack_keys(list(self.types))
        if self.sliced:
            self.count += 1 if self.types else 0

    @property
    def hashed(self) -> bool:
        """Whether there are several keys, which an index leads to."""
        return bool(self.types) or self.sliced

    @property
    def width(self) -> int:
        """Words of a record."""
        return self.count + len(SIDES)

    def declare(self) -> None:
        kernel = self.kernel
        room = kernel.declare("room", kernel.word("room"))
        kernel.declare("keys", f"words({kernel.word('keys')}, {self.width} * {room})")
        if self.hashed:
            mask = kernel.declare("imask", kernel.word("index mask"))
            kernel.declare("index", f"words({kernel.word('index')}, {mask} + 1)")
            kernel.declare("count", kernel.word("count"))

    def give_back(self) -> None:
        if self.hashed:
            self.kernel.body.line(f"{self.kernel.word('count')} = count")

    @property
    def full(self) -> str:
        return "count >= room" if self.hashed else "False"

    def words_of(
        self, schema: Schema, columns: Sequence[int], scope: RowScope, lost: str | None = None
    ) -> None:
        """Sets ``kw<n>``; a row with a NULL key has no partners: the next one follows, unless
        ``lost`` is what to do with it."""
        body = self.kernel.body
        words: list[list[str]] = [[] for _ in range(self.count - self.sliced)]
        for c, part in zip(columns, self.parts, strict=True):
            code = scope.load(c)
            if code.valid is not None:
                with body.block(f"if not {code.valid}:"):
                    body.lines(*self.lost(lost))
            words[part.word].append(key_expression(schema[c].type, code.value, part))
        if self.types:
            body.lines(*(f"kw{w} = {' | '.join(texts)}" for w, texts in enumerate(words)))

    def lost(self, instead: str | None) -> tuple[str, ...]:
        """What becomes of a row without a key or a time."""
        return (instead,) if instead else (f"{self.kernel.counter('null_keys')} += 1", "continue")

    def _hash(self, words: Sequence[str]) -> str:
        chain = f"hash_start({words[0]})"
        for word in words[1:]:
            chain = f"hash_next({chain}, {word})"
        return f"hash_end({chain})"

    def slice(self, text: str) -> None:
        """Of the words of a key, the slice of time."""
        self.kernel.body.line(f"kw{self.count - 1} = {text}")

    def find(self, wanted: str | None) -> None:
        """Sets ``e`` to where the record of the key begins and ``known`` to whether it was there;
        if it was not, it is made where ``wanted`` holds (None: never)."""
        body, width = self.kernel.body, self.width
        if not self.hashed:
            body.lines("e = uint64(0)", "known = True")
            return
        same = " and ".join(f"keys[e + {w}] == kw{w}" for w in range(self.count))
        body.lines(
            f"h = {self._hash([f'kw{w}' for w in range(self.count)])}",
            "p = (h >> 32) & imask",
            "known = False",
            "e = uint64(0)",
        )
        with body.block("while True:"):
            body.line("found = index[uint64(p)]")
            with body.block("if found == 0:"):
                body.line("break")
            with body.block("if (found ^ h) >> 32 == 0:"):
                body.line(f"e = uint64({width} * ((found & 0xFFFFFFFF) - 1))")
                with body.block(f"if likely({same}):"):
                    body.lines("known = True", "break")
            body.line("p = (p + 1) & imask")
        if wanted is None:
            return
        with body.block(f"if {wanted} and not known:"):
            body.lines(f"e = uint64({width} * count)", "count += 1")
            body.line("index[uint64(p)] = (h >> 32 << 32) | count")
            body.lines(*(f"keys[e + {w}] = kw{w}" for w in range(self.count)))
            body.lines(*(f"{self.latest(s)} = -1" for s in SIDES))

    def latest(self, side: str) -> str:
        """The place of a side's latest row of key ``e``."""
        return f"keys[e + {self.count + SIDES.index(side)}]"
