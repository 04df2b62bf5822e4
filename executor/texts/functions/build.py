"""Functions that build new texts for all rows of a block: joins, padding, replacements.

Texts are written once their sizes, or a bound of these, are known. A row whose text would be longer
than the interpreter allows is left to the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cql.base.uninterruptible import load_module
from cql.executor.texts.column import (
    NULL,
    ODD,
    VALID,
    Column,
    Status,
    Texts,
    empty_texts,
    new_bytes,
    new_places,
)
from cql.executor.texts.functions.arguments import constant, numbers_in, texts_in
from cql.planner.interpret.text import MAX_REPEAT
from cql.planner.nodes.expr import Call, Literal

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument, BlockFunction


#: For this number of characters and more, ``translate`` looks up each byte.
_MANY = 5


def _kernels() -> Any:
    return load_module("cql.executor.kernels.texts.build")


# -- joins -----------------------------------------------------------------------------------------


def _concat(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    nothing = texts_in(Literal("", call.type), status.size)
    assert nothing is not None
    return _joined(nothing, args, status)


def _concat_ws(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    first, *parts = args
    if isinstance(first, Literal) and first.value is None:
        status[status == VALID] = NULL
        return empty_texts(np.zeros(status.size, np.int64), status)[0]
    separators = texts_in(first, status.size)
    if separators is None:
        return None
    if isinstance(first, Column):
        status[(status == VALID) & (first.status == NULL)] = NULL
    parts = [p for p in parts if not (isinstance(p, Literal) and p.value is None)]
    return _joined(separators, parts, status)


def _joined(separators: Texts, parts: Sequence[Argument], status: Status) -> Texts | None:
    """The VALID ``parts`` of each row with its separator between them; rows that need more bytes
    than MAX_REPEAT are ODD."""
    rows = status.size
    valid = np.full(rows, VALID, np.uint8)
    given = [(separators, valid)]
    for part in parts:
        texts = texts_in(part, rows)
        if texts is None:
            return None
        given.append(
            (texts, np.ascontiguousarray(part.status) if isinstance(part, Column) else valid)
        )
    table = np.empty((len(given), 5), np.int64)
    size = max(len(parts) - 1, 0) * separators.size
    for k, (texts, seen) in enumerate(given):
        begin = texts.data.ctypes.data
        places = texts.starts.ctypes.data, texts.ends.ctypes.data, seen.ctypes.data
        table[k] = (begin, begin + texts.data.size, *places)
        size += texts.size if k else 0
    out, made = new_bytes(size), new_places(rows)
    used = _kernels().join(table, MAX_REPEAT, status, out, *made)
    return Texts(out[:used], *made)


# -- repeat, pad, reverse --------------------------------------------------------------------------


def _repeat(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    texts, numbers = texts_in(args[0], status.size), numbers_in(args[1], status.size)
    if texts is None or numbers is None:
        return None
    sizes = (texts.ends - texts.starts) * np.maximum(numbers, 0)
    status[(status == VALID) & (sizes > MAX_REPEAT)] = ODD
    made, offsets = empty_texts(sizes, status)
    _kernels().repeat(texts.data, texts.starts, texts.ends, offsets, made.data)
    return made


def _pad(front: bool) -> BlockFunction:
    def pad(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
        rows = status.size
        texts, lengths = texts_in(args[0], rows), numbers_in(args[1], rows)
        padding = constant(args[2]) if len(args) == 3 else " "
        if texts is None or lengths is None or padding is None:
            return None
        bounds = np.cumsum([0, *(len(c.encode()) for c in padding)], dtype=np.int64)
        kept, sizes = new_places(rows)
        kernels = _kernels()
        kernels.padded_sizes(
            texts.data, texts.starts, texts.ends, status, lengths, bounds, MAX_REPEAT, kept, sizes
        )
        made, offsets = empty_texts(sizes, status)
        # Most paddings then take one copy.
        raw = np.frombuffer(padding.encode() * (1 + 64 // max(len(padding), 1)), np.uint8)
        kernels.pad(texts.data, texts.starts, kept, offsets, raw, front, made.data)
        return made

    return pad


def _reverse(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    texts = texts_in(args[0], status.size)
    if texts is None:
        return None
    return _written(_kernels().reverse, 1, texts, status)


# -- replacements ----------------------------------------------------------------------------------


def _replace(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    rows = status.size
    texts, olds = texts_in(args[0], rows), texts_in(args[1], rows)
    news = texts_in(args[2] if len(args) == 3 else Literal("", call.type), rows)
    if texts is None or olds is None or news is None:
        return None
    old, new = constant(args[1]), constant(args[2]) if len(args) == 3 else ""
    if old is not None and len(old.encode()) == 1 and new is not None and len(new.encode()) <= 1:
        return _mapped(texts, {old: new.encode()}, status)
    kernels, places, size = _kernels(), new_places(rows), texts.size
    if (news.ends - news.starts > olds.ends - olds.starts).any():
        size = kernels.replaced_bytes(
            texts.data, texts.starts, texts.ends, olds.data, olds.starts, olds.ends, news.starts,
            news.ends, MAX_REPEAT, status,
        )  # fmt: skip
    out = new_bytes(size)
    used, found = kernels.replace(
        texts.data, texts.starts, texts.ends, olds.data, olds.starts, olds.ends, news.data,
        news.starts, news.ends, MAX_REPEAT, status, out, *places,
    )  # fmt: skip
    return Texts(out[:used], *places) if found else texts


def _translate(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    texts, source, to = texts_in(args[0], status.size), constant(args[1]), constant(args[2])
    if texts is None or source is None or to is None:
        return None
    table: dict[str, bytes] = {}
    for k, c in enumerate(source):
        table.setdefault(c, to[k : k + 1].encode())
    return _mapped(texts, table, status)


def _mapped(texts: Texts, table: dict[str, bytes], status: Status) -> Texts:
    """The ``texts`` with the new bytes of the ``table`` for each of its characters."""
    codes = sorted(map(ord, table))
    new = [table[chr(code)] for code in codes]
    few = sum(code < 0x80 for code in codes)
    numbers = np.full(0x80, -1, np.int64)
    numbers[codes[:few]] = np.arange(few)
    bounds = np.cumsum([0, *map(len, new)], dtype=np.int64)
    single = kept = np.zeros(0, np.uint8)
    if _MANY <= few == len(codes) and max(map(len, new)) <= 1:
        single, kept = np.arange(0x100, dtype=np.uint8), np.ones(0x100, np.uint8)
        single[codes] = [n[0] if n else 0 for n in new]
        kept[codes] = [len(n) for n in new]
    # The bytes of a new text for each byte of an old one.
    sizes = [-(-len(n) // len(chr(c).encode())) for c, n in zip(codes, new, strict=True)]
    return _written(
        _kernels().translate, max([1, *sizes]), texts, status, np.array(codes, np.int64), few,
        numbers, np.frombuffer(b"".join(new), np.uint8), bounds, single, kept,
    )  # fmt: skip


def _written(kernel: Any, growth: int, texts: Texts, status: Status, *more: Any) -> Texts:
    """What ``kernel`` writes: at most ``growth`` bytes for each byte of the texts."""
    out, places = new_bytes(growth * texts.size), new_places(len(texts))
    used = kernel(texts.data, texts.starts, texts.ends, status, *more, out, *places)
    return Texts(out[:used], *places)


BLOCKS = {
    "concat": _concat,
    "concat_ws": _concat_ws,
    "repeat": _repeat,
    "lpad": _pad(front=True),
    "rpad": _pad(front=False),
    "reverse": _reverse,
    "replace": _replace,
    "translate": _translate,
}
