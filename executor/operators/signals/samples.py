"""The columns of a morsel as arrays, for operators that look at samples in Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.kernels.morsel_layout import ROWS, data_word, mask_word
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel, stored_dtype


def column_of(morsel: Morsel, schema: Schema, column: int) -> npt.NDArray[Any]:
    """The values of a column of numbers or times, in place."""
    address, n = int(morsel.words[data_word(column)]), int(morsel.words[ROWS])
    return view_address(address, stored_dtype(schema[column].type.storage), n)


def valid_in(
    morsel: Morsel, schema: Schema, columns: Iterable[int] | None = None
) -> npt.NDArray[np.bool_] | None:
    """Whether each row has a value in all ``columns`` (default: of the schema); None: each has."""
    n, found = int(morsel.words[ROWS]), None
    for c in range(len(schema)) if columns is None else columns:
        if schema[c].nullable:
            there = view_address(int(morsel.words[mask_word(c)]), np.dtype(np.uint8), n) != 0
            found = there if found is None else found & there
    return found
