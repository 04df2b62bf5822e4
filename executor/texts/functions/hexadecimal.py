"""hex and unhex for all rows of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cql.base.uninterruptible import load_module
from cql.executor.texts.column import ODD, VALID, Status, Texts, empty_texts, new_bytes, new_places
from cql.executor.texts.functions.arguments import numbers_in, texts_in
from cql.planner.interpret.text import MAX_REPEAT
from cql.planner.nodes.expr import Call

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument


def _kernels() -> Any:
    return load_module("cql.executor.kernels.texts.hexadecimal")


def _hex(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    rows = status.size
    texts = texts_in(args[0], rows)
    if texts is not None:
        sizes = 2 * (texts.ends - texts.starts)
        status[(status == VALID) & (sizes > MAX_REPEAT)] = ODD
        made, offsets = empty_texts(sizes, status)
        _kernels().hex_of_bytes(texts.data, texts.starts, texts.ends, offsets, made.data)
        return made
    numbers = numbers_in(args[0], rows)
    if numbers is None:
        return None
    out, places = new_bytes(16 * rows), new_places(rows)
    used = _kernels().hex_of_numbers(numbers, status, out, *places)
    return Texts(out[:used], *places)


def _unhex(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    rows = status.size
    texts = texts_in(args[0], rows)
    if texts is None:
        return None
    out, places = new_bytes((texts.size + rows) // 2 + rows), new_places(rows)
    used = _kernels().bytes_of_hex(texts.data, texts.starts, texts.ends, status, out, *places)
    return Texts(out[:used], *places)


BLOCKS = {"hex": _hex, "unhex": _unhex}
