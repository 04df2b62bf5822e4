"""The reference's functions of arrays and structs: an array is a list, a struct is a tuple."""

from __future__ import annotations

from typing import Any

from cql.planner.nodes.expr import Call
from tests.reference.naive_registry import function
from tests.reference.naive_values import BadRowError, order_key


@function("array", nulls=True)
def _array(call: Call, *values: Any) -> Any:
    return list(values)


@function("named_struct", nulls=True)
def _struct(call: Call, *values: Any) -> Any:
    return values


@function("field")
def _field(call: Call, struct: Any, place: Any) -> Any:
    return struct[place]


@function("size")
def _size(call: Call, array: Any) -> Any:
    return len(array)


@function("get")
def _get(call: Call, array: Any, place: Any) -> Any:
    return array[place] if place in range(len(array)) else None


@function("item")
def _item(call: Call, array: Any, place: Any) -> Any:
    if place not in range(len(array)):
        raise BadRowError("no such element")
    return array[place]


@function("try_element_at")
def _try_element_at(call: Call, array: Any, number: Any) -> Any:
    """Counts from 1, or from -1 from the end.

    >>> [_try_element_at(None, ["a", "b"], n) for n in (1, -1, 3, -3)]
    ['a', 'b', None, None]
    """
    if number == 0:
        raise BadRowError("there is no element 0")
    places = {1 + k: v for k, v in enumerate(array)}
    places |= {k - len(array): v for k, v in enumerate(array)}
    return places.get(number)


@function("element_at")
def _element_at(call: Call, array: Any, number: Any) -> Any:
    if abs(number) not in range(1, len(array) + 1):
        raise BadRowError("no such element")
    return _try_element_at(call, array, number)


def _equal(array: list[Any], value: Any) -> list[bool]:
    return [v is not None and order_key(v) == order_key(value) for v in array]


@function("array_contains")
def _contains(call: Call, array: Any, value: Any) -> Any:
    """NULL if it is not there, but a NULL is."""
    return any(_equal(array, value)) or (None if None in array else False)


@function("array_position")
def _position(call: Call, array: Any, value: Any) -> Any:
    return [*_equal(array, value), True].index(True) + 1 if any(_equal(array, value)) else 0


@function("array_min")
def _min(call: Call, array: Any) -> Any:
    return min((v for v in array if v is not None), key=order_key, default=None)


@function("array_max")
def _max(call: Call, array: Any) -> Any:
    return max((v for v in array if v is not None), key=order_key, default=None)


@function("slice")
def _slice(call: Call, array: Any, start: Any, length: Any) -> Any:
    """
    >>> _slice(None, [1, 2, 3], -2, 5), _slice(None, [1, 2, 3], 2, 1), _slice(None, [1], -2, 9)
    ([2, 3], [2], [])
    """
    if start == 0 or length < 0:
        raise BadRowError("no such part")
    first = start if start > 0 else len(array) + start + 1
    if first < 1:
        return []
    return [v for k, v in enumerate(array, 1) if first <= k < first + length]


@function("array_join")
def _join(call: Call, array: Any, separator: Any, instead: Any = None) -> Any:
    texts = [instead if v is None else v for v in array]
    return separator.join(v for v in texts if v is not None)
