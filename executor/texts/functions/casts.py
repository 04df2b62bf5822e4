"""Casts between texts and other types, for all rows of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cql.base.types import DataType, Kind
from cql.base.uninterruptible import load_module
from cql.executor.morsel.buffers import POOL
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.texts.column import (
    FAILED,
    VALID,
    Column,
    Places,
    Status,
    Texts,
    new_bytes,
    new_places,
    texts_from,
)
from cql.planner.nodes.expr import Cast

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument

Values: TypeAlias = npt.NDArray[Any]


def _numbers() -> Any:
    return load_module("cql.executor.kernels.texts.numbers")


def _reals() -> Any:
    return load_module("cql.executor.kernels.texts.reals")


def _times() -> Any:
    return load_module("cql.executor.kernels.texts.times")


def _cast(call: Cast, args: Sequence[Argument], status: Status) -> Texts | Values | None:
    arg, source, to = args[0], call.arg.type, call.type
    if not isinstance(arg, Column) or source.is_nested:
        return None
    if not isinstance(arg.values, Texts):
        write = _WRITERS.get(source.kind)
        return None if write is None else write(arg.values, source, status)
    if source == to or to.kind is Kind.BINARY:
        return arg.values
    if to.kind is Kind.STRING:
        return _decoded(arg.values, status)
    read = _READERS.get(to.kind)
    return None if read is None else read(arg.values, to, status)


def _decoded(texts: Texts, status: Status) -> Texts:
    """Binaries as strings: what is not UTF-8 fails."""
    from cql.executor.kernels.texts.validity import find_invalid

    invalid = np.zeros(len(texts), np.uint8)
    if find_invalid(texts.data, texts.starts, texts.ends, invalid):
        status[(invalid != 0) & (status == VALID)] = FAILED
    return texts


# -- texts to values -----------------------------------------------------------------------------


def _read(
    kernel: Callable[..., None], texts: Texts, status: Status, *options: Any, kind: Any = np.int64
) -> Values:
    out = POOL.zeros(kind, len(texts))
    kernel(texts.data, texts.starts, texts.ends, *options, out, status)
    return out


def _integer(texts: Texts, to: DataType, status: Status) -> Values:
    kind = stored_dtype(to.storage)
    return _read(_numbers().read_integers, texts, status, np.iinfo(kind).max).astype(kind)


def _boolean(texts: Texts, to: DataType, status: Status) -> Values:
    return _read(_numbers().read_booleans, texts, status, kind=np.uint8)


def _real(texts: Texts, to: DataType, status: Status) -> Values:
    made = _read(_reals().read_reals, texts, status, kind=np.float64)
    with np.errstate(over="ignore"):
        return made.astype(to.storage, copy=False)


def _decimal(texts: Texts, to: DataType, status: Status) -> Values:
    return _read(_numbers().read_decimals, texts, status, to.precision, to.scale)


def _date(texts: Texts, to: DataType, status: Status) -> Values:
    return _read(_times().read_dates, texts, status).astype(to.storage)


def _timestamp(texts: Texts, to: DataType, status: Status) -> Values:
    return _read(_times().read_timestamps, texts, status, to.kind is Kind.TIMESTAMP)


_READERS: dict[Kind, Callable[[Texts, DataType, Status], Values]] = {
    Kind.BOOLEAN: _boolean,
    Kind.TINYINT: _integer,
    Kind.SMALLINT: _integer,
    Kind.INT: _integer,
    Kind.BIGINT: _integer,
    Kind.FLOAT: _real,
    Kind.DOUBLE: _real,
    Kind.DECIMAL: _decimal,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMP_NTZ: _timestamp,
}


# -- values to texts -----------------------------------------------------------------------------


def written(
    kernel: Callable[..., None], values: Values, width: int, status: Status, *options: Any
) -> Texts:
    """The texts that a kernel writes for int64 values, of at most ``width`` bytes each."""
    data, places = new_bytes(values.size * width), new_places(values.size)
    whole = np.ascontiguousarray(values, np.int64)
    kernel(whole, *options, data, *places, status)
    return Texts(data, *places)


def chosen(words: list[bytes], numbers: Places) -> Texts:
    """Word ``numbers[i]`` as text *i*."""
    all_words = texts_from(words)
    return Texts(all_words.data, all_words.starts[numbers], all_words.ends[numbers])


def _integer_text(values: Values, source: DataType, status: Status) -> Texts:
    kernels = _numbers()
    return written(kernels.write_integers, values, kernels.INTEGER_WIDTH, status)


def _real_text(values: Values, source: DataType, status: Status) -> Texts:
    kernels = _reals()
    narrow = source.kind is Kind.FLOAT
    bits = np.ascontiguousarray(values).view(np.int32 if narrow else np.int64)
    return written(kernels.write_reals, bits, kernels.REAL_WIDTH, status, narrow)


def _boolean_text(values: Values, source: DataType, status: Status) -> Texts:
    return chosen([b"false", b"true"], (values != 0).astype(np.int64))


def _decimal_text(values: Values, source: DataType, status: Status) -> Texts:
    kernels = _numbers()
    width = kernels.INTEGER_WIDTH + source.scale + 2
    return written(kernels.write_decimals, values, width, status, source.scale)


def _date_text(values: Values, source: DataType, status: Status) -> Texts:
    kernels = _times()
    return written(kernels.write_dates, values, kernels.DATE_WIDTH, status)


def _timestamp_text(values: Values, source: DataType, status: Status) -> Texts:
    kernels = _times()
    return written(kernels.write_timestamps, values, kernels.TIMESTAMP_WIDTH, status)


_WRITERS: dict[Kind, Callable[[Values, DataType, Status], Texts]] = {
    Kind.BOOLEAN: _boolean_text,
    Kind.TINYINT: _integer_text,
    Kind.SMALLINT: _integer_text,
    Kind.INT: _integer_text,
    Kind.BIGINT: _integer_text,
    Kind.FLOAT: _real_text,
    Kind.DOUBLE: _real_text,
    Kind.DECIMAL: _decimal_text,
    Kind.DATE: _date_text,
    Kind.TIMESTAMP: _timestamp_text,
    Kind.TIMESTAMP_NTZ: _timestamp_text,
}

BLOCKS = {"cast": _cast}
