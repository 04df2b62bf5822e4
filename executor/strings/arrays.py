"""Arrays that aggregates make, as entries of the dictionary (``planner.interpret.entries``). Their
elements are never NULL."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.types import DataType
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.strings.nested import entries_of_elements
from cql.executor.texts.column import VALID, Texts, texts_of, to_arrow

Array = npt.NDArray[Any]


def element_dtype(element: DataType) -> np.dtype[Any]:
    return stored_dtype(element.storage)


def entries_of(values: Array, counts: Array, element: DataType) -> pa.Array:
    """Binary entries for arrays: ``counts`` has the number of elements per array, ``values`` all
    elements in order, in storage form."""
    data = np.ascontiguousarray(values.astype(element_dtype(element), copy=False))
    return _binary(entries_of_elements(data, counts))


def entries_of_coded(elements: pa.Array, counts: Array) -> pa.Array:
    """Binary entries for arrays of texts, arrays or structs: ``elements`` are the strings or
    binaries, or the entries, without NULL."""
    return _binary(entries_of_elements(texts_of(elements), counts))


def _binary(entries: Texts) -> pa.Array:
    return to_arrow(entries, np.full(len(entries), VALID, np.uint8), pa.binary())


def offsets_of(counts: Array) -> Array:
    """Arrow list offsets: the start of each list, then the end of the last."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
