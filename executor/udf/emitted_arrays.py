"""Arrays that an operator of the user emits, as entries of the dictionary, and as samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.foreign import object_text
from cql.base.types import DataType, list_of
from cql.executor.morsel.morsel import stored_dtype
from cql.planner.interpret.entries import write_array
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.python_values import from_python

#: Kinds of numpy's types whose numbers become elements at once, by the kind of the element's type.
_FITTING = {"b": "b", "i": "iu", "f": "fiu"}


def entry_of(value: object, kind: DataType, what: str) -> bytes | None:
    """The entry (``planner.interpret.entries``) of a list or of an array of numpy with one
    dimension; it shares no memory with ``value``. ``what`` begins the error message. Raises
    EvaluationError for other objects, and for elements that the type does not hold."""
    element = kind.element
    assert element is not None
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise EvaluationError(
                "function", f"{what} an array of {value.ndim} dimensions, and {kind} has one"
            )
        plain = element.is_numeric or element.storage == "bool"
        dtype = stored_dtype(element.storage)
        if plain and type(value) is np.ndarray and value.dtype.kind in _kinds(element):
            return _of_numbers(value, dtype, kind, what)
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise EvaluationError(
            "function", f"{what} {object_text(value)}, which is no list and no array of numpy"
        )
    return write_array([from_python(v, element, what) for v in value], element)


def samples_of(value: object, kind: DataType, what: str) -> npt.NDArray[Any]:
    """The samples of a segment that is emitted; ``what`` as in ``entry_of``. They share no memory
    with ``value``. Raises EvaluationError for what is no list or array of such numbers."""
    entry = None if value is None else entry_of(value, list_of(kind), what)
    count = -1 if entry is None else int(np.frombuffer(entry, np.int32, 1)[0])
    if entry is None or count < 0:
        where = "" if entry is None else "an array with "
        raise EvaluationError("function", f"{what} {where}None, and a {kind} has all its samples")
    assert kind.element is not None
    return np.frombuffer(entry, stored_dtype(kind.element.storage), count, 4)


def _kinds(element: DataType) -> str:
    if element.scale or element.precision:  # decimals
        return ""
    return _FITTING["b" if element.storage == "bool" else stored_dtype(element.storage).kind]


def _of_numbers(values: npt.NDArray[Any], dtype: np.dtype[Any], kind: DataType, what: str) -> bytes:
    if dtype.kind == "i" and values.size:
        limits = np.iinfo(dtype)
        for end in (int(values.min()), int(values.max())):
            if not limits.min <= end <= limits.max:
                raise EvaluationError(
                    "function", f"{what} an array with {end}, which {kind} cannot hold"
                )
    with np.errstate(over="ignore"):  # binary32 has infinity for it, as a single value has
        stored = values.astype(dtype)
    if dtype.kind == "f":
        stored += 0  # -0.0 is 0.0
        stored[np.isnan(stored)] = np.nan
    return np.int32(stored.size).tobytes() + stored.tobytes()
