"""The keys of a join: one table for both sides, with the latest row of each side.

A record is so many words of a key, then the place of the latest row of the left and of the right,
which may have left since. The index is open addressing by hash: an entry holds 31 bits of the hash
(which choose its place, too) and, below, the number of the record + 1, so that a miss reads nothing
else. Keys without rows are forgotten when room is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cql.executor.codegen import Text
from cql.executor.expression_scope import Code
from cql.executor.operators.join_side import SIDES
from cql.executor.operators.packing import KeyPart, key_expression, pack_keys
from cql.executor.operators.rowscope import KernelText, RowScope
from cql.model import Schema
from cql.types import DataType


def hash_of(words: Sequence[str]) -> str:
    chain = f"hash_start({words[0]})"
    for word in words[1:]:
        chain = f"hash_next({chain}, {word})"
    return f"hash_end({chain})"


def look_up(body: Text, words: Sequence[str], index: str, mask: str, entry: str, same: str) -> None:
    """Sets ``known``: whether the key of these words is in the index. ``entry`` is what to do with
    the ``number`` of a record, before ``same`` asks whether it has that key; ``entered`` is put at
    ``p`` for one that was not there."""
    body.lines(f"h = {hash_of(words)}", f"p = (h >> 32) & {mask}", "known = False")
    with body.block("while True:"):
        body.line(f"found = {index}[uint64(p)]")
        with body.block("if found == 0:"):
            body.line("break")
        with body.block("if (found ^ h) >> 32 == 0:"):
            body.lines("number = (found & 0xFFFFFFFF) - 1", entry)
            with body.block(f"if likely({same}):"):
                body.lines("known = True", "break")
        body.line(f"p = (p + 1) & {mask}")


def entered(number: str) -> str:
    """The entry of a record, counted from 1, whose key has been looked up."""
    return f"(h >> 32 << 32) | {number}"


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """Where each column of a key stands in its ``count`` words. ``sliced``: the last word is a
    slice of time. ``hashed``: there are several keys, which an index leads to."""

    parts: tuple[KeyPart, ...]
    count: int
    sliced: bool
    hashed: bool

    @property
    def width(self) -> int:
        """Words of a record."""
        return self.count + len(SIDES)


def key_layout(types: Sequence[DataType], *, sliced: bool) -> KeyLayout:
    """Of keys of these types, each with a slice of time if ``sliced``."""
    parts, count = pack_keys(list(types))
    more = 1 if sliced and types else 0
    return KeyLayout(tuple(parts), count + more, sliced, bool(types) or sliced)


@dataclass(slots=True)
class KeyTable:
    """Writes what a kernel does with keys; without any, all rows share the record 0."""

    kernel: KernelText
    layout: KeyLayout

    def declare(self) -> None:
        kernel, width = self.kernel, self.layout.width
        room = kernel.declare("room", kernel.word("room"))
        kernel.declare("keys", f"words({kernel.word('keys')}, {width} * {room})")
        if self.layout.hashed:
            mask = kernel.declare("imask", kernel.word("index mask"))
            kernel.declare("index", f"words({kernel.word('index')}, {mask} + 1)")
            kernel.declare("count", kernel.word("count"))

    def give_back(self) -> None:
        if self.layout.hashed:
            self.kernel.body.line(f"{self.kernel.word('count')} = count")

    @property
    def full(self) -> str:
        return "count >= room" if self.layout.hashed else "False"

    def words_of(
        self, schema: Schema, columns: Sequence[int], scope: RowScope, lost: str | None = None
    ) -> None:
        """Sets ``kw<n>``; a row with a NULL key has no partners: the next one follows, unless
        ``lost`` is what to do with it."""
        body = self.kernel.body
        codes = [scope.load(c) for c in columns]
        for code in codes:
            if code.valid is not None:
                with body.block(f"if not {code.valid}:"):
                    body.lines(*self.lost(lost))
        words = self._packed(schema, columns, codes)
        body.lines(*(f"kw{w} = {text}" for w, text in enumerate(words)))

    def _packed(self, schema: Schema, columns: Sequence[int], codes: Sequence[Code]) -> list[str]:
        """The words that values of columns make, without the slice."""
        words: list[list[str]] = [[] for _ in range(self.layout.count - self.layout.sliced)]
        for c, code, part in zip(columns, codes, self.layout.parts, strict=True):
            words[part.word].append(key_expression(schema[c].type, code.value, part))
        return [" | ".join(texts) for texts in words if texts]

    def look_ahead(
        self, schema: Schema, columns: Sequence[int], scope: RowScope, part: str | None
    ) -> None:
        """Asks for the place in the index of a later row, which ``scope`` loads; ``part`` is its
        slice. (What stands there decides a branch, and is not in the nearest cache.)"""
        body = self.kernel.body
        codes = [scope.load(c) for c in columns]
        words = [*self._packed(schema, columns, codes), *([part] if part else [])]
        body.lines(*(f"ahead{w} = {text}" for w, text in enumerate(words)))
        hashed = hash_of([f"ahead{w}" for w in range(len(words))])
        index = self.kernel.declare("index_at", self.kernel.word("index"))
        body.line(f"prefetch({index} + 8 * (({hashed} >> 32) & imask))")

    def lost(self, instead: str | None) -> tuple[str, ...]:
        """What becomes of a row without a key or a time."""
        return (instead,) if instead else (f"{self.kernel.counter('null_keys')} += 1", "continue")

    def slice(self, text: str) -> None:
        """Of the words of a key, the slice of time."""
        self.kernel.body.line(f"kw{self.layout.count - 1} = {text}")

    def find(self, wanted: str | None) -> None:
        """Sets ``e`` to where the record of the key begins and ``known`` to whether it was there;
        if it was not, it is made where ``wanted`` holds (None: never)."""
        body, width, count = self.kernel.body, self.layout.width, self.layout.count
        if not self.layout.hashed:
            body.lines("e = uint64(0)", "known = True")
            return
        same = " and ".join(f"keys[e + {w}] == kw{w}" for w in range(count))
        body.line("e = uint64(0)")
        words = [f"kw{w}" for w in range(count)]
        look_up(body, words, "index", "imask", f"e = uint64({width} * number)", same)
        if wanted is None:
            return
        with body.block(f"if {wanted} and not known:"):
            body.lines(f"e = uint64({width} * count)", "count += 1")
            body.line(f"index[uint64(p)] = {entered('count')}")
            body.lines(*(f"keys[e + {w}] = kw{w}" for w in range(count)))
            body.lines(*(f"{self.latest(s)} = -1" for s in SIDES))

    def latest(self, side: str) -> str:
        """The place of a side's latest row of key ``e``."""
        return f"keys[e + {self.layout.count + SIDES.index(side)}]"
