"""Columns between Arrow and storage form: codes of the dictionary for texts, arrays and structs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Field
from cql.executor.morsel.arrow_columns import Array, plain_arrow, plain_storage
from cql.executor.morsel.buffers import POOL
from cql.executor.strings import nested
from cql.executor.strings.dictionary import ARRAYS, Dictionary
from cql.executor.texts.column import Texts


def to_storage(column: pa.Array, f: Field, dictionary: Dictionary) -> Array:
    """A column's values as a flat array of the type's storage; NULL places hold any value."""
    if not f.type.is_coded:
        return plain_storage(column, f.type)
    if f.type.is_nested:
        return dictionary.encode_results(nested.binary_entries(column, f.type), ARRAYS)
    codes = POOL.zeros(np.int32, len(column))
    dictionary.encode(column, codes)
    return codes


def to_arrow(
    values: Array, valid: npt.NDArray[np.uint8] | None, f: Field, dictionary: Dictionary
) -> pa.Array:
    """An Arrow array of the field's type over ``values`` (in storage form)."""
    if valid is not None and valid.all():
        valid = None
    if f.type.is_text:
        return dictionary.decode(values, valid, f.type.to_arrow())
    if not f.type.is_nested:
        return plain_arrow(values, valid, f.type)
    codes = values if valid is None else np.where(valid != 0, values, 0)
    starts = dictionary.starts  # before the arena: a later arena covers at least these entries
    entries = Texts(dictionary.arena, starts[codes], starts[codes + 1])
    return nested.arrow_of(nested.copied(entries), valid, f.type)  # the arena changes
