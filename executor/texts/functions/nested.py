"""Functions of arrays and structs for all rows of a block, over their entries.

Functions that are not here, the interpreter computes row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cql.executor.morsel.morsel import stored_dtype
from cql.executor.strings.nested import array_parts, arrays_of, struct_fields, structs_of
from cql.executor.texts.column import FAILED, NULL, VALID, Column, Status, Texts
from cql.executor.texts.functions.arguments import numbers_in, texts_in
from cql.planner.interpret.nested import NESTED_FUNCTIONS, element_of
from cql.planner.nodes.expr import Call, Literal

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument, BlockFunction, Values

Parts = tuple[npt.NDArray[Any], npt.NDArray[np.uint8] | None, "Texts | npt.NDArray[Any]"]
#: Values of a column, and 0 for NULL.
Given = tuple["Texts | npt.NDArray[Any]", npt.NDArray[np.uint8]]
#: The number of elements of each array, which elements are not NULL, the row of each element, and
#: which elements equal the value of their row.
Hits = tuple[npt.NDArray[Any], npt.NDArray[np.uint8] | None, npt.NDArray[Any], npt.NDArray[Any]]


def _parts(call: Call, args: Sequence[Argument], status: Status) -> Parts | None:
    """The number of elements of each array, which elements are not NULL, and all elements."""
    entries = texts_in(args[0], status.size)
    if entries is None:
        return None
    ends = np.where(status == VALID, entries.ends, entries.starts)
    kind = element_of(call.args[0].type)
    return array_parts(Texts(entries.data, entries.starts, ends), kind)


def _size(call: Call, args: Sequence[Argument], status: Status) -> Values | None:
    parts = _parts(call, args, status)
    return None if parts is None else parts[0].astype(np.int32)


def _element(from_one: bool, without: int) -> BlockFunction:
    """The elements with a number, from 0 or 1 on; ``without`` is the status if there is none."""

    def element(call: Call, args: Sequence[Argument], status: Status) -> Values | None:
        parts, numbers = _parts(call, args, status), numbers_in(args[1], status.size)
        if parts is None or numbers is None:
            return None
        counts, there, elements = parts
        places = numbers
        if from_one:
            places = np.where(numbers > 0, numbers - 1, counts + numbers)
        found = (status == VALID) & (places >= 0) & (places < counts)
        if from_one:
            found &= numbers != 0
            status[(status == VALID) & (numbers == 0)] = FAILED
        status[(status == VALID) & ~found] = without
        at = np.where(found, np.cumsum(counts) - counts + places, 0)
        if there is not None and there.size:
            status[found & (there[at] == 0)] = NULL
        if not len(elements):
            if isinstance(elements, Texts):
                return Texts(elements.data, np.zeros_like(at), np.zeros_like(at))
            return np.zeros(status.size, elements.dtype)
        return elements.take(at) if isinstance(elements, Texts) else elements[at]

    return element


def _hits(call: Call, args: Sequence[Argument], status: Status) -> Hits | None:
    parts = _parts(call, args, status)
    if parts is None:
        return None
    counts, there, elements = parts
    if isinstance(elements, Texts):
        return None
    rows = np.repeat(np.arange(status.size), counts)
    value = args[1]
    if isinstance(value, Literal):
        wanted = np.full(rows.size, value.value or 0, elements.dtype)
    elif isinstance(value.values, Texts):
        return None
    else:
        wanted = value.values[rows]
    equal = elements == wanted
    if elements.dtype.kind == "f":
        equal |= (elements != elements) & (wanted != wanted)
    if there is not None:
        equal &= there != 0
    return counts, there, rows, equal


def _contains(call: Call, args: Sequence[Argument], status: Status) -> Values | None:
    found = _hits(call, args, status)
    if found is None:
        return None
    _, there, rows, equal = found
    contains = np.zeros(status.size, np.uint8)
    contains[rows[equal]] = 1
    if there is not None:
        nulls = np.zeros(status.size, np.bool_)
        nulls[rows[there == 0]] = True
        status[(status == VALID) & nulls & (contains == 0)] = NULL
    return contains


def _position(call: Call, args: Sequence[Argument], status: Status) -> Values | None:
    found = _hits(call, args, status)
    if found is None:
        return None
    counts, _, rows, equal = found
    places = np.zeros(status.size, np.int64)
    hits = np.flatnonzero(equal)[::-1]  # of several in a row, the first is written last
    places[rows[hits]] = hits - (np.cumsum(counts) - counts)[rows[hits]] + 1
    return places


def _field(call: Call, args: Sequence[Argument], status: Status) -> Values | None:
    entries, number = texts_in(args[0], status.size), args[1]
    if entries is None or not isinstance(number, Literal) or not isinstance(number.value, int):
        return None
    ends = np.where(status == VALID, entries.ends, entries.starts)
    given = Texts(entries.data, entries.starts, ends)
    values, there = struct_fields(given, call.args[0].type)[number.value]
    status[(status == VALID) & (there == 0)] = NULL
    return values


def _given(call: Call, args: Sequence[Argument], status: Status) -> list[Given] | None:
    """The values of all arguments, each with 0 for NULL; None if one of them has another form."""
    found: list[Given] = []
    for arg, kind in zip(args, (a.type for a in call.args), strict=True):
        rows = status.size
        if isinstance(arg, Column):
            there = (arg.status == VALID).view(np.uint8)
            found.append((arg.values, there))
            continue
        there = np.full(rows, arg.value is not None, np.uint8)
        if kind.is_coded:
            values = texts_in(Literal(b"", kind) if arg.value is None else arg, rows)
            if values is None:
                return None
            found.append((values, there))
        else:
            value = 0 if arg.value is None else arg.value
            found.append((np.full(rows, value, stored_dtype(kind.storage)), there))
    return found


def _array(call: Call, args: Sequence[Argument], status: Status) -> Values | None:
    given = _given(call, args, status)
    return None if given is None else arrays_of(given)


def _struct(call: Call, args: Sequence[Argument], status: Status) -> Values | None:
    given = _given(call, args, status)
    return None if given is None else structs_of(given)


def _by_row(call: Call, args: Sequence[Argument], status: Status) -> Values | None:
    return None


_HERE: dict[str, BlockFunction] = {
    "size": _size,
    "item": _element(from_one=False, without=FAILED),
    "get": _element(from_one=False, without=NULL),
    "element_at": _element(from_one=True, without=FAILED),
    "try_element_at": _element(from_one=True, without=NULL),
    "array_contains": _contains,
    "array_position": _position,
    "field": _field,
    "array": _array,
    "named_struct": _struct,
}
#: Functions that Python computes row by row.
IN_PYTHON = NESTED_FUNCTIONS - frozenset(_HERE)
BLOCKS: dict[str, BlockFunction] = {**dict.fromkeys(IN_PYTHON, _by_row), **_HERE}
