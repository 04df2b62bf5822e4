"""Numbers of texts for all rows of a block: lengths, positions, code points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cql.base.types import Kind
from cql.base.uninterruptible import load_module
from cql.executor.morsel.buffers import POOL
from cql.executor.texts.column import Status
from cql.executor.texts.functions.arguments import numbers_in, texts_in
from cql.planner.nodes.expr import Call

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument

Numbers = npt.NDArray[np.int32]


def _kernels() -> Any:
    return load_module("cql.executor.kernels.texts.measure")


def _length(call: Call, args: Sequence[Argument], status: Status) -> Numbers | None:
    if call.args[0].type.kind is Kind.BINARY:
        return _octet_length(call, args, status)
    texts = texts_in(args[0], status.size)
    if texts is None:
        return None
    out = POOL.empty(np.int32, len(texts))
    kernels = _kernels()
    length = kernels.length_in_a_row if texts.is_dense else kernels.length
    length(texts.data, texts.starts, texts.ends, out)
    return out


def _octet_length(call: Call, args: Sequence[Argument], status: Status) -> Numbers | None:
    texts = texts_in(args[0], status.size)
    return None if texts is None else (texts.ends - texts.starts).astype(np.int32)


def _ascii(call: Call, args: Sequence[Argument], status: Status) -> Numbers | None:
    texts = texts_in(args[0], status.size)
    if texts is None:
        return None
    out = POOL.empty(np.int32, len(texts))
    _kernels().first_code_point(texts.data, texts.starts, texts.ends, out)
    return out


def _locate(call: Call, args: Sequence[Argument], status: Status) -> Numbers | None:
    part, text, *position = args
    rows = status.size
    parts, texts = texts_in(part, rows), texts_in(text, rows)
    positions = numbers_in(position[0], rows) if position else np.ones(rows, np.int64)
    if parts is None or texts is None or positions is None:
        return None
    out = POOL.empty(np.int32, rows)
    _kernels().locate(
        texts.data, texts.starts, texts.ends, parts.data, parts.starts, parts.ends,
        status, positions, out,
    )  # fmt: skip
    return out


BLOCKS = {
    "length": _length,
    "octet_length": _octet_length,
    "ascii": _ascii,
    "locate": _locate,
}
