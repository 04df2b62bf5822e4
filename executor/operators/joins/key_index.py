"""The hashed keys of joins.

A stream join links the rows of each side into one list per hash bucket. A bucket holds the number
of the latest row of the left and of the right side; that row may have left since. A list may hold
rows with other keys, which a search skips. So a key whose rows have left needs no cleanup. (A table
of keys, which needed cleanup now and then, took 36 ns per row on Q7 with rare flows; buckets take
25 ns.)

A table that does not change has an index with open addressing. An entry holds 31 bits of the hash,
which also choose its place, and below these the number of the record + 1. So a miss reads no
record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

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
from cql.executor.operators.flow.ownership import key_values
from cql.executor.operators.joins.oop_join_side import SIDES
from cql.executor.operators.windows.group_table import AHEAD_ROWS
from cql.executor.state.repartition import KeyColumns

#: Rows of a morsel hashed at once where a partition picks its own rows.
CHUNK = 64
#: Hashes of later rows that are kept: a power of two above ``AHEAD_ROWS``.
_KEPT = 2 * AHEAD_ROWS


def hash_of(words: Sequence[str]) -> str:
    chain = f"hash_start({words[0]})"
    for word in words[1:]:
        chain = f"hash_next({chain}, {word})"
    return f"hash_end({chain})"


def partition_of(hashed: str, parts: str) -> str:
    """The partition of a hash, by those bits that choose a place in an index last."""
    return f"((({hashed} >> 32) & 0x7FFFFFFF) * {parts}) >> 31"


def spread(codes: Sequence[Code], types: Sequence[DataType], kernel: KernelText) -> str:
    """The hash that chooses the partition of a key. It is the same in every process and for as long
    as the key has state. So a text (or an array) contributes the hash of its content, not its code:
    codes change when the dictionary drops texts. NULL contributes 0."""
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
    """Sets ``known``: whether the index has the key of these words. ``entry``: the line that runs
    for the ``number`` of a found record. ``same``: the expression that compares the keys after it.
    For an unknown key, ``p`` is the place at which to put ``entered``."""
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
    """The index entry of a record whose key was just looked up; ``number`` counts from 1."""
    return f"(h >> 32 << 32) | {number}"


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """``parts``: the place of each key column in the ``words`` of a key. ``sliced``: the hash also
    covers a slice of time, behind these words."""

    parts: tuple[KeyPart, ...]
    words: int
    sliced: bool


def key_layout(types: Sequence[DataType], *, sliced: bool) -> KeyLayout:
    """The layout of keys of these types; ``sliced`` adds a slice of time to each key."""
    parts, words = pack_keys(list(types))
    return KeyLayout(tuple(parts), words if types else 0, sliced and bool(types))


def keys_of(rows: npt.NDArray[Any], layout: KeyLayout, types: Sequence[DataType]) -> KeyColumns:
    """The key columns of rows; no key is NULL."""
    found = []
    for kind, part in zip(types, layout.parts, strict=True):
        found.append((key_values(np.ascontiguousarray(rows[f"k{part.word}"]), kind, part), None))
    return found


@dataclass(slots=True)
class KeyLists:
    """Writes the text by which a kernel finds the lists of rows whose keys share a bucket. Without
    keys, all rows of a side form one list."""

    kernel: KernelText
    layout: KeyLayout
    picks: bool = False  # the kernel lists its partition's rows, with their hashes
    _keeps: bool = field(default=False, init=False)  # the kernel keeps the hashes of later rows

    def declare(self) -> None:
        kernel = self.kernel
        mask = kernel.declare("bucket_mask", kernel.word("bucket mask"))
        count = f"{len(SIDES)} * ({mask} + 1)"
        kernel.declare("buckets", f"as_i32({kernel.word('buckets')}, {count})")

    def words_of(
        self, schema: Schema, columns: Sequence[int], scope: RowScope, lost: str | None = None
    ) -> None:
        """Sets ``kw<n>``, the words of a row's key. A row with a NULL key has no partners: the
        kernel runs the line ``lost`` for it or, without one, skips the row."""
        body = self.kernel.body
        codes = [scope.load(c) for c in columns]
        for code in codes:
            if code.valid is not None:
                with body.block(f"if not {code.valid}:"):
                    body.lines(*self.lost(lost))
        words = self._packed(schema, columns, codes)
        body.lines(*(f"kw{w} = {text}" for w, text in enumerate(words)))

    def _packed(self, schema: Schema, columns: Sequence[int], codes: Sequence[Code]) -> list[str]:
        """The expressions of the words of a key, without the slice of time."""
        words: list[list[str]] = [[] for _ in range(self.layout.words)]
        for c, code, part in zip(columns, codes, self.layout.parts, strict=True):
            words[part.word].append(key_expression(schema[c].type, code.value, part))
        return [" | ".join(texts) for texts in words if texts]

    def pick(self, schema: Schema, columns: Sequence[int], scope: RowScope) -> None:
        """Lists the rows of a morsel whose keys belong to this partition, with their hashes.
        ``scope`` loads row ``r``. A row with a NULL key gets hash 0."""
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
        body.line("chosen_rows = 0")
        with body.block(f"for begin in range(0, n, {CHUNK}):"):
            body.line(f"rows = min({CHUNK}, n - begin)")
            with body.block("for k in range(rows):"):  # the compiler vectorises this loop
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
                body.line("chosen[uint64(chosen_rows)] = begin + k")
                body.line(f"{hashes}[uint64(chosen_rows)] = h")
                if spreads != chunk:
                    body.line(f"h = {spreads}[uint64(k)]")
                body.line(f"chosen_rows += int64({partition_of('h', parts)} == {part})")

    def look_ahead(
        self, schema: Schema, columns: Sequence[int], scope: RowScope, part: str | None
    ) -> None:
        """Prefetches the bucket of a later row, which ``scope`` loads; ``part`` is the row's slice.
        (The bucket's value decides a branch, and the bucket is not in the nearest cache.) Without
        slices, the hash is kept until the row is looked up. (To prefetch the bucket's latest row,
        too, gains nothing.)"""
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
        """The kernel lines for a row with a NULL key or time."""
        return (instead,) if instead else (f"{self.kernel.counter('null_keys')} += 1", "continue")

    def find(self, part: str | None = None) -> None:
        """Sets ``b`` to the place of the key's bucket; ``part`` is the slice of time."""
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
        """The number of the latest row of a side in the list; a number below ``head`` means that
        the list is empty. (A bucket holds the lower 32 bits of the number + 1. A bucket that got no
        row for 2^32 rows may seem to have one; a search skips that row, as its key differs.)"""
        passed = f"({side}top - int64({self._entry(side)})) & 0xFFFFFFFF"
        return f"{side}top - ({passed}) - 1"

    def enter(self, side: str) -> str:
        """Makes row ``top`` of a side the latest row of the list."""
        return f"{self._entry(side)} = int32({side}top + 1)"

    def _entry(self, side: str) -> str:
        return f"buckets[b + uint64({SIDES.index(side)})]"
