"""Capital and small letters for all rows of a block: upper, lower, initcap, ILIKE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cql.base.uninterruptible import load_module
from cql.executor.texts.column import Status, Texts, new_bytes, new_places
from cql.executor.texts.functions.arguments import constant, texts_in
from cql.executor.texts.functions.search import matches
from cql.planner.nodes.expr import Call

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument

Codes = npt.NDArray[np.int32]

#: Characters from this code point on have no case.
_END = 0x1F000
_SMALL, _CAPITAL = ord("a"), ord("A")
#: Bytes for each byte of the texts, at first: few letters become longer.
_GROWTH = 1.02
#: Its small letter depends on the letters around it.
_SIGMA = ord("Σ")
_NONE: Codes = np.zeros(0, np.int32)
#: Whether a text that is not ASCII was there: from then on the kernel gets the tables.
_tables_needed = False


@lru_cache(maxsize=3)
def _table(change: Callable[[str], str]) -> Codes:
    """The code point of the capital letter (``str.upper``), the small one (``str.lower``) or the
    one that begins a word (``str.title``) of each character; -1 if that is no single character or
    depends on its neighbours."""
    made = np.arange(_END, dtype=np.int32)
    for page in made.reshape(-1, 0x100):
        characters = page.tobytes().decode("utf-32-le", "surrogatepass")
        changed = list(map(change, characters))
        if changed != list(characters):
            page[:] = [ord(c) if len(c) == 1 else -1 for c in changed]
    if change is str.lower:
        made[_SIGMA] = -1
    return made


def _changed(texts: Texts, status: Status, capital: bool, words: bool = False) -> Texts:
    """The ``texts`` in capital or small letters; ``words`` begin with a capital letter."""
    global _tables_needed
    kernels = load_module("cql.executor.kernels.texts.case")
    places, growth = new_places(len(texts)), _GROWTH
    while True:
        out = new_bytes(int(growth * texts.size))
        other = _table(str.upper if capital else str.lower) if _tables_needed else _NONE
        first = _table(str.title) if _tables_needed and words else _NONE
        used = kernels.change_case(
            texts.data, texts.starts, texts.ends, status, _SMALL if capital else _CAPITAL, words,
            other, first, out, *places,
        )  # fmt: skip
        if used >= 0:
            return Texts(out[:used], *places)
        if used == kernels.NEEDS_ROOM:
            growth = 2.0
        else:
            _tables_needed = True


def _upper(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    texts = texts_in(args[0], status.size)
    return None if texts is None else _changed(texts, status, capital=True)


def _lower(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    texts = texts_in(args[0], status.size)
    return None if texts is None else _changed(texts, status, capital=False)


def _initcap(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    texts = texts_in(args[0], status.size)
    return None if texts is None else _changed(texts, status, capital=False, words=True)


def _ilike(call: Call, args: Sequence[Argument], status: Status) -> npt.NDArray[np.uint8] | None:
    texts, pattern = texts_in(args[0], status.size), constant(args[1])
    escape = constant(args[2]) if len(args) == 3 else "\\"
    if texts is None or pattern is None or escape is None:
        return None
    after = status.copy()
    found = matches(_changed(texts, after, capital=False), pattern.lower(), escape.lower())
    if found is not None:
        status[:] = after
    return found


BLOCKS = {"upper": _upper, "lower": _lower, "initcap": _initcap, "ilike": _ilike}
