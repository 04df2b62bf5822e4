"""The state of an operator of the user: the objects that its function gets, over arrays that hold
the declared numbers and arrays of each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.foreign import object_text
from cql.planner.functions.user.operators import StateField

Array = npt.NDArray[Any]


def state_class(
    fields: Sequence[StateField], arrays: Sequence[Array], born: Array
) -> Callable[[int], object]:
    """Makes the state object of a key from its number: an attribute for each number and each array,
    and ``clear()``, but no others. ``arrays``: for each field, the flat values of all keys.
    ``born``: for each key, 0 if it has no state."""
    values = [
        array.reshape(-1, *f.shape) if f.shape else array
        for f, array in zip(fields, arrays, strict=True)
    ]

    def begin(self: Any, place: int) -> None:
        self._place = place

    def clear(self: Any) -> None:
        """Sets all numbers and arrays to zero, and forgets the key."""
        for array in (*values, born):
            array[self._place] = 0

    members: dict[str, Any] = {"__slots__": ("_place",), "__init__": begin, "clear": clear}
    for f, array in zip(fields, values, strict=True):
        members[f.name] = _array(array) if f.shape else _number(array)
    return type("State", (), members)


def _number(array: Array) -> property:
    kind = array.dtype.kind

    def put(self: Any, value: Any) -> None:
        if kind in "iu" and not isinstance(value, int | np.integer):
            raise TypeError(f"{object_text(value)} is no integer, as the state has here")
        array[self._place] = value

    return property(lambda self: array[self._place].item(), put)


def _array(array: Array) -> property:
    def put(self: Any, value: Any) -> None:
        np.copyto(array[self._place], value, casting="same_kind")

    return property(lambda self: array[self._place], put)
