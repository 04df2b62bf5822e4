"""Parts of texts for all rows of a block: places in the same bytes, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cql.base.uninterruptible import load_module
from cql.executor.texts.column import Places, Status, Texts, new_places
from cql.executor.texts.functions.arguments import constant, numbers_in, texts_in
from cql.planner.nodes.expr import Call

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument, BlockFunction

#: More characters than a text has.
_ALL = 1 << 40


def _kernels() -> Any:
    return load_module("cql.executor.kernels.texts.slices")


def _places_in(texts: Texts) -> Texts:
    """Places for new slices of ``texts``."""
    return Texts(texts.data, *new_places(len(texts)))


def _substring(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    rows = status.size
    lengths = numbers_in(args[2], rows) if len(args) == 3 else np.full(rows, _ALL)
    return _part(texts_in(args[0], rows), numbers_in(args[1], rows), lengths, status)


def _left(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    rows = status.size
    return _part(
        texts_in(args[0], rows), np.ones(rows, np.int64), numbers_in(args[1], rows), status
    )


def _right(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    texts, n = texts_in(args[0], status.size), numbers_in(args[1], status.size)
    return None if n is None else _part(texts, -n, np.where(n > 0, n, 0), status)


def _part(
    texts: Texts | None, positions: Places | None, lengths: Places | None, status: Status
) -> Texts | None:
    if texts is None or positions is None or lengths is None:
        return None
    made = _places_in(texts)
    _kernels().substring(
        texts.data, texts.starts, texts.ends, status, positions, lengths, made.starts, made.ends
    )
    return made


def _trim(front: bool, back: bool) -> BlockFunction:
    def trim(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
        texts = texts_in(args[0], status.size)
        characters = constant(args[1]) if len(args) == 2 else " "
        if texts is None or characters is None:
            return None
        codes = np.array([ord(c) for c in set(characters)], np.int64)
        others = codes[codes >= 0x80]
        flags = np.zeros(0x100, np.uint8)
        flags[codes[codes < 0x80]] = 1
        flags[0x80:] = 2 if others.size else 0
        made = _places_in(texts)
        _kernels().trim(
            texts.data, texts.starts, texts.ends, status, flags, others, front, back,
            made.starts, made.ends,
        )  # fmt: skip
        return made

    return trim


def _split_part(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    rows = status.size
    texts, delimiters = texts_in(args[0], rows), texts_in(args[1], rows)
    numbers = numbers_in(args[2], rows)
    if texts is None or delimiters is None or numbers is None:
        return None
    made = _places_in(texts)
    _kernels().split_part(
        texts.data, texts.starts, texts.ends, delimiters.data, delimiters.starts, delimiters.ends,
        status, numbers, made.starts, made.ends,
    )  # fmt: skip
    return made


_LATIN = "".join(map(chr, range(256))).encode()
#: Where the characters below 256 start in their UTF-8.
_PLACES = np.append(np.arange(0x80), np.arange(0x80, len(_LATIN) + 1, 2))


def _chr(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    """The characters are places in a constant text of them all."""
    numbers = numbers_in(args[0], status.size)
    if numbers is None:
        return None
    codes = numbers & 0xFF
    starts = _PLACES[codes]
    ends = np.where(numbers < 0, starts, _PLACES[codes + 1])
    return Texts(np.frombuffer(_LATIN, np.uint8), starts, ends)


BLOCKS: dict[str, BlockFunction] = {
    "substring": _substring,
    "left": _left,
    "right": _right,
    "trim": _trim(True, True),
    "ltrim": _trim(True, False),
    "rtrim": _trim(False, True),
    "split_part": _split_part,
    "chr": _chr,
}
