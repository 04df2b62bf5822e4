"""The rows of a query as an Arrow C stream, which polars, pandas, DuckDB and pyarrow read.

Arrow's own export of a Python iterator gives a reader the whole traceback of an error. This export
gives only the message of the query's error, with its place and its hint.

Source: the Arrow C stream interface (https://arrow.apache.org/docs/format/CStreamInterface.html).
"""

from __future__ import annotations

import ctypes
import errno
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cql.base.foreign import error_text
from cql.errors import CqlError

if TYPE_CHECKING:
    import pyarrow as pa

_GET_NEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GET_LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Stream(ctypes.Structure):
    """``struct ArrowArrayStream``."""

    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


#: The size of ``struct ArrowArray``: five 64-bit numbers and five pointers.
_ARRAY_BYTES = 5 * 8 + 5 * ctypes.sizeof(ctypes.c_void_p)


class _Batches:
    """The batches of ``begin()``, which runs at the request for the first batch."""

    def __init__(self, begin: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._begin = begin
        self._batches: Iterator[pa.RecordBatch] | None = None
        self.error: ctypes.Array[ctypes.c_char] | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._batches is None:
            self._batches = self._begin()
        return next(self._batches)


#: The streams that are not yet released, by their ``private_data``.
_OPEN: weakref.WeakValueDictionary[int, _Batches] = weakref.WeakValueDictionary()


def reader(
    schema: pa.Schema, begin: Callable[[], Iterator[pa.RecordBatch]]
) -> pa.RecordBatchReader:
    """A reader of the batches of ``begin()``, which runs at the request for the first batch.

    The reader holds the only reference to the iterator: releasing the reader closes a generator.
    The reader raises an error of the query as ArrowInvalid with the error's text."""
    import pyarrow as pa

    batches = _Batches(begin)
    stream = _Stream()
    at = ctypes.addressof(stream)
    # Arrow's exported stream owns ``batches`` and its ``release`` frees them. Its own ``get_next``
    # is replaced.
    pa.RecordBatchReader.from_batches(schema, batches)._export_to_c(at)
    stream.get_next = ctypes.cast(_NEXT, ctypes.c_void_p)
    stream.get_last_error = ctypes.cast(_LAST_ERROR, ctypes.c_void_p)
    _OPEN[stream.private_data] = batches
    return pa.RecordBatchReader._import_from_c(at)


def _get_next(stream: int, out: int) -> int:
    batches = _OPEN[_Stream.from_address(stream).private_data]
    if batches.error is not None:  # a failed stream keeps failing, so no reader takes it for ended
        return errno.EINVAL
    try:
        batch: Any = next(batches, None)
        if batch is None:
            ctypes.memset(out, 0, _ARRAY_BYTES)  # a released array marks the end of the stream
        else:
            batch._export_to_c(out)
        return 0
    except CqlError as error:
        message = str(error)
    except KeyboardInterrupt:
        message = "interrupted"
    except BaseException as error:  # no exception can pass through C
        message = error_text(error)
    batches.error = ctypes.create_string_buffer(message.encode("utf-8", "replace"))
    return errno.EINVAL


def _get_last_error(stream: int) -> int | None:
    error = _OPEN[_Stream.from_address(stream).private_data].error
    return None if error is None else ctypes.addressof(error)


#: The callbacks for C; they live as long as the process.
_NEXT, _LAST_ERROR = _GET_NEXT(_get_next), _GET_LAST_ERROR(_get_last_error)
