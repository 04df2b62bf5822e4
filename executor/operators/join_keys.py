"""The keys of a join: one table for both sides, with the latest row of each side.

A record is so many words of a key, then the place of the latest row of the left and of the right,
which may have left since. The index is open addressing by hash: an entry holds 31 bits of the hash
(which choose its place, too) and, below, the number of the record + 1, so that a miss reads nothing
else. Keys without rows are forgotten when room is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cql.executor.codegen import Text
from cql.executor.expression_scope import Code
from cql.executor.operators.grouping import AHEAD_ROWS
from cql.executor.operators.join_side import SIDES
from cql.executor.operators.packing import KeyPart, key_expression, pack_keys
from cql.executor.operators.rowscope import KernelText, RowScope
from cql.model import Schema
from cql.types import DataType

#: Rows of a unit that are hashed at once where a partition looks for its own.
CHUNK = 64
#: Hashes of rows ahead that are kept, a power of two beyond how far they are.
_KEPT = 2 * AHEAD_ROWS


def hash_of(words: Sequence[str]) -> str:
    chain = f"hash_start({words[0]})"
    for word in words[1:]:
        chain = f"hash_next({chain}, {word})"
    return f"hash_end({chain})"


def partition_of(hashed: str, parts: str) -> str:
    """By bits that choose the place in an index last."""
    return f"((({hashed} >> 32) & 0x7FFFFFFF) * {parts}) >> 31"


def look_up(
    body: Text,
    words: Sequence[str],
    index: str,
    mask: str,
    entry: str,
    same: str,
    hashed: str | None = None,
) -> None:
    """Sets ``known``: whether the key of these words is in the index. ``entry`` is what to do with
    the ``number`` of a record, before ``same`` asks whether it has that key; ``entered`` is put at
    ``p`` for one that was not there. ``hashed`` is their hash, if it is known."""
    body.lines(f"h = {hashed or hash_of(words)}", f"p = (h >> 32) & {mask}", "known = False")
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
    picks: bool = False  # the rows of this partition, which are listed with their hashes
    _keeps: bool = field(default=False, init=False)  # the hashes of rows ahead

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

    def pick(self, schema: Schema, columns: Sequence[int], scope: RowScope) -> None:
        """Lists the rows of a unit whose keys are of this partition, and their hashes; ``scope``
        loads row ``r``. One with a NULL key is of the first."""
        kernel, body = self.kernel, self.kernel.body
        part, parts = (kernel.declare(name, kernel.word(name)) for name in ("part", "parts"))
        kernel.declare("chosen", f"as_i32({kernel.word('chosen')}, n)")
        hashes = kernel.declare("hashes", f"words({kernel.word('hashes')}, n)")
        chunk = kernel.declare("chunk", f"words(desc + {8 * kernel.words(CHUNK)}, {CHUNK})")
        body.line("picked = 0")
        with body.block(f"for begin in range(0, n, {CHUNK}):"):
            body.line(f"rows = min({CHUNK}, n - begin)")
            with body.block("for k in range(rows):"):  # which runs on several at once
                body.line("r = uint64(begin + k)")
                codes = [scope.load(c) for c in columns]
                hashed = hash_of(self._packed(schema, columns, codes))
                valid = " and ".join(code.valid for code in codes if code.valid is not None)
                hashed = f"{hashed} if {valid} else 0" if valid else hashed
                body.line(f"{chunk}[uint64(k)] = {hashed}")
            with body.block("for k in range(rows):"):
                body.line(f"h = {chunk}[uint64(k)]")
                body.line("chosen[uint64(picked)] = begin + k")
                body.line(f"{hashes}[uint64(picked)] = h")
                body.line(f"picked += int64({partition_of('h', parts)} == {part})")

    def look_ahead(
        self, schema: Schema, columns: Sequence[int], scope: RowScope, part: str | None
    ) -> None:
        """Asks for the place in the index of a later row, which ``scope`` loads; ``part`` is its
        slice. (What stands there decides a branch, and is not in the nearest cache.) Without slices
        its hash is kept until it is looked up, and halfway there its record is asked for."""
        body = self.kernel.body
        if self.picks:
            body.line(f"hashed = hashes[uint64(i + {AHEAD_ROWS})]")
        else:
            codes = [scope.load(c) for c in columns]
            words = [*self._packed(schema, columns, codes), *([part] if part else [])]
            body.lines(*(f"ahead{w} = {text}" for w, text in enumerate(words)))
            body.line(f"hashed = {hash_of([f'ahead{w}' for w in range(len(words))])}")
        index = self.kernel.declare("index_at", self.kernel.word("index"))
        body.line(f"prefetch({index} + 8 * ((hashed >> 32) & imask))")
        if part is not None:
            return
        if not (self._keeps or self.picks):
            self._keeps = True
            slot = self.kernel.words(_KEPT)
            self.kernel.declare("hashes", f"words(desc + {8 * slot}, {_KEPT})")
        if self._keeps:
            body.line(f"hashes[(i + {AHEAD_ROWS}) & {_KEPT - 1}] = hashed")
        halfway = AHEAD_ROWS // 2
        with body.block(f"if i >= first + {halfway if self._keeps else 0}:"):
            place = f"(i + {halfway}) & {_KEPT - 1}" if self._keeps else f"uint64(i + {halfway})"
            body.line(f"hashed = hashes[{place}]")
            body.line("number = (index[uint64((hashed >> 32) & imask)] & 0xFFFFFFFF) - 1")
            keys = self.kernel.declare("keys_at", self.kernel.word("keys"))
            body.line(f"prefetch({keys} + {8 * self.layout.width} * number)")

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
        hashed = hash_of(words)
        if self.picks:
            hashed = "hashes[uint64(i)]"
        elif self._keeps:
            known = f"hashes[i & {_KEPT - 1}] if i >= first + {AHEAD_ROWS} else {hashed}"
            hashed = f"({known})"
        look_up(body, words, "index", "imask", f"e = uint64({width} * number)", same, hashed)
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
