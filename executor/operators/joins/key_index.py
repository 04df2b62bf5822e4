"""The keys of joins, hashed.

The rows of a stream join are in lists by bucket: of each bucket, the number of the latest row of
the left and of the right is known, which may have left since; a row with another key that is in the
list, too, is passed over. So nothing is to be done for a key whose rows are gone. (With a table of
keys, which had to be forgotten now and then, Q7 of rare flows took 36 ns a row, and now 25.)

Tables that do not change are found by an index, open addressing: an entry holds 31 bits of the hash
(which choose its place, too) and, below, the number of the record + 1, so that a miss reads nothing
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cql.base.model import Schema
from cql.base.types import DataType
from cql.executor.codegen.expressions.scope import Code
from cql.executor.codegen.kernel_builder import KernelText, RowScope
from cql.executor.codegen.key_packing import (
    TEXT_HASHES,
    KeyPart,
    key_expression,
    pack_keys,
    spread_keys,
)
from cql.executor.codegen.module import Text
from cql.executor.operators.joins.oop_join_side import SIDES
from cql.executor.operators.windows.group_table import AHEAD_ROWS

#: Rows of a morsel that are hashed at once where a partition looks for its own.
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


def spread(codes: Sequence[Code], types: Sequence[DataType], kernel: KernelText) -> str:
    """The hash by which a key has its partition, the same in every process and for as long as the
    key has state: of a text (or an array) its own hash goes into it, as codes are given anew when
    texts are forgotten. NULL is 0."""
    parts, count = spread_keys(types)
    words: list[list[str]] = [[] for _ in range(count)]
    for k, (code, kind, part) in enumerate(zip(codes, types, parts, strict=True)):
        if kind.is_coded:
            table = f"words(words({kernel.word(TEXT_HASHES)}, 1)[0], {1 << 31})"
            bits = f"{kernel.declare('text_hashes', table)}[uint64({code.value})]"
        else:
            bits = key_expression(kind, code.value, part)
        if code.valid is not None:
            kernel.body.line(f"bits{k} = {bits} if {code.valid} else 0")
            bits = f"bits{k}"
        words[part.word].append(bits)
    return hash_of([" | ".join(texts) for texts in words])


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
    """Where each column of a key stands in its ``words``. ``sliced``: what is hashed is followed by
    a slice of time."""

    parts: tuple[KeyPart, ...]
    words: int
    sliced: bool


def key_layout(types: Sequence[DataType], *, sliced: bool) -> KeyLayout:
    """Of keys of these types, each with a slice of time if ``sliced``."""
    parts, words = pack_keys(list(types))
    return KeyLayout(tuple(parts), words if types else 0, sliced and bool(types))


@dataclass(slots=True)
class KeyLists:
    """Writes how a kernel finds the lists of rows with equal hashes of their keys; without keys,
    all rows of a side are one list."""

    kernel: KernelText
    layout: KeyLayout
    picks: bool = False  # the rows of this partition, which are listed with their hashes
    _keeps: bool = field(default=False, init=False)  # the hashes of rows ahead

    def declare(self) -> None:
        kernel = self.kernel
        mask = kernel.declare("bucket_mask", kernel.word("bucket mask"))
        count = f"{len(SIDES)} * ({mask} + 1)"
        kernel.declare("buckets", f"as_i32({kernel.word('buckets')}, {count})")

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
        words: list[list[str]] = [[] for _ in range(self.layout.words)]
        for c, code, part in zip(columns, codes, self.layout.parts, strict=True):
            words[part.word].append(key_expression(schema[c].type, code.value, part))
        return [" | ".join(texts) for texts in words if texts]

    def pick(self, schema: Schema, columns: Sequence[int], scope: RowScope) -> None:
        """Lists the rows of a morsel whose keys are of this partition, and their hashes; ``scope``
        loads row ``r``. One with a NULL key is of the first."""
        kernel, body = self.kernel, self.kernel.body
        part, parts = (kernel.declare(name, kernel.word(name)) for name in ("part", "parts"))
        kernel.declare("chosen", f"as_i32({kernel.word('chosen')}, n)")
        hashes = kernel.declare("hashes", f"words({kernel.word('hashes')}, n)")
        chunk = kernel.declare("chunk", f"words(desc + {8 * kernel.words(CHUNK)}, {CHUNK})")
        types = [schema[c].type for c in columns]
        spreads = chunk
        if any(kind.is_coded for kind in types):
            own = f"words(desc + {8 * kernel.words(CHUNK)}, {CHUNK})"
            spreads = kernel.declare("spreads", own)
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
                if spreads != chunk:
                    body.line(f"{spreads}[uint64(k)] = {spread(codes, types, kernel)}")
            with body.block("for k in range(rows):"):
                body.line(f"h = {chunk}[uint64(k)]")
                body.line("chosen[uint64(picked)] = begin + k")
                body.line(f"{hashes}[uint64(picked)] = h")
                if spreads != chunk:
                    body.line(f"h = {spreads}[uint64(k)]")
                body.line(f"picked += int64({partition_of('h', parts)} == {part})")

    def look_ahead(
        self, schema: Schema, columns: Sequence[int], scope: RowScope, part: str | None
    ) -> None:
        """Asks for the bucket of a later row, which ``scope`` loads; ``part`` is its slice. (What
        stands there decides a branch, and is not in the nearest cache.) Without slices its hash is
        kept until it is looked up. (To ask for the row that is the latest gains nothing.)"""
        body = self.kernel.body
        if self.picks:
            body.line(f"hashed = hashes[uint64(i + {AHEAD_ROWS})]")
        else:
            codes = [scope.load(c) for c in columns]
            words = [*self._packed(schema, columns, codes), *([part] if part else [])]
            body.lines(*(f"ahead{w} = {text}" for w, text in enumerate(words)))
            body.line(f"hashed = {hash_of([f'ahead{w}' for w in range(len(words))])}")
        buckets = self.kernel.declare("buckets_at", self.kernel.word("buckets"))
        body.line(f"prefetch({buckets} + {4 * len(SIDES)} * ((hashed >> 32) & bucket_mask))")
        if part is not None or self.picks:
            return
        if not self._keeps:
            self._keeps = True
            slot = self.kernel.words(_KEPT)
            self.kernel.declare("hashes", f"words(desc + {8 * slot}, {_KEPT})")
        body.line(f"hashes[(i + {AHEAD_ROWS}) & {_KEPT - 1}] = hashed")

    def seek(
        self, schema: Schema, columns: Sequence[int], scope: RowScope, part: str | None
    ) -> None:
        """Sets ``b`` as ``find`` does, for row ``g``, which ``scope`` loads."""
        hashed = "hashes[uint64(g)]"
        if not self.picks:
            codes = [scope.load(c) for c in columns]
            words = [*self._packed(schema, columns, codes), *([part] if part else [])]
            hashed = hash_of(words)
        self.kernel.body.line(self._list(hashed))

    def lost(self, instead: str | None) -> tuple[str, ...]:
        """What becomes of a row without a key or a time."""
        return (instead,) if instead else (f"{self.kernel.counter('null_keys')} += 1", "continue")

    def find(self, part: str | None = None) -> None:
        """Sets ``b`` to where the lists of the key begin; ``part`` is its slice of time."""
        body = self.kernel.body
        if not self.layout.words:
            body.line("b = uint64(0)")
            return
        words = [f"kw{w}" for w in range(self.layout.words)]
        hashed = hash_of([*words, part] if part else words)
        if self.picks:
            hashed = "hashes[uint64(i)]"
        elif self._keeps:
            hashed = f"(hashes[i & {_KEPT - 1}] if i >= first + {AHEAD_ROWS} else {hashed})"
        body.line(self._list(hashed))

    @staticmethod
    def _list(hashed: str) -> str:
        return f"b = uint64({len(SIDES)} * (({hashed} >> 32) & bucket_mask))"

    def latest(self, side: str) -> str:
        """The number of the latest row of a side in the list; there is none if that is below those
        that are held. (Buckets hold the lower half of it, + 1. One in which no row has been for
        2^32 rows may seem to have one, which is passed over as it has another key.)"""
        passed = f"({side}top - int64({self._entry(side)})) & 0xFFFFFFFF"
        return f"{side}top - ({passed}) - 1"

    def enter(self, side: str) -> str:
        """Row ``top`` of a side is the latest of the list."""
        return f"{self._entry(side)} = int32({side}top + 1)"

    def _entry(self, side: str) -> str:
        return f"buckets[b + uint64({SIDES.index(side)})]"
