"""Functions of arrays and structs, whose values are entries (``planner.interpret.entries``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cql.base.types import DataType
from cql.planner.interpret.entries import (
    read_array,
    read_struct,
    write_array,
    write_struct,
)
from cql.planner.interpret.error import EvaluationError
from cql.planner.nodes.expr import Call, Value

Order = Callable[[Value, Value], int]


def element_of(kind: DataType) -> DataType:
    assert kind.element is not None
    return kind.element


def parts_of(entry: bytes, kind: DataType) -> list[tuple[Value, DataType]]:
    """The elements or fields, each with its type."""
    if kind.element is not None:
        return [(value, kind.element) for value in read_array(entry, kind.element)]
    values = read_struct(entry, kind)
    return [(value, of) for value, (_, of) in zip(values, kind.fields, strict=True)]


def _elements(call: Call, args: Sequence[Any]) -> list[Value]:
    return read_array(args[0], element_of(call.args[0].type))


def _size(call: Call, args: Sequence[Any]) -> Value:
    return len(_elements(call, args))


def _get(call: Call, args: Sequence[Any]) -> Value:
    """The element with a number from 0 on; NULL if there is none."""
    values, number = _elements(call, args), args[1]
    found: Value = values[number] if 0 <= number < len(values) else None
    return found


def _item(call: Call, args: Sequence[Any]) -> Value:
    """``_get``, which fails if there is no such element."""
    values, number = _elements(call, args), args[1]
    if not 0 <= number < len(values):
        raise EvaluationError(
            "value", f"an array of {len(values)} elements has no element number {number}, from 0 on"
        )
    found: Value = values[number]
    return found


def _try_element_at(call: Call, args: Sequence[Any]) -> Value:
    """The element with a number from 1 on, or from -1 on from the end; NULL if there is none."""
    values, number = _elements(call, args), args[1]
    if number == 0:
        raise EvaluationError("value", "the elements of an array are numbered from 1 on, not 0")
    if abs(number) > len(values):
        return None
    found: Value = values[number - 1 if number > 0 else number]
    return found


def _element_at(call: Call, args: Sequence[Any]) -> Value:
    values, number = _elements(call, args), args[1]
    if abs(number) > len(values):
        raise EvaluationError(
            "value", f"an array of {len(values)} elements has no element number {number}, from 1 on"
        )
    return _try_element_at(call, args)


def _contains(order: Order) -> Callable[[Call, Sequence[Any]], Value]:
    def contains(call: Call, args: Sequence[Any]) -> Value:
        values = _elements(call, args)
        if any(v is not None and order(v, args[1]) == 0 for v in values):
            return True
        return None if None in values else False

    return contains


def _position(order: Order) -> Callable[[Call, Sequence[Any]], Value]:
    def position(call: Call, args: Sequence[Any]) -> Value:
        for number, value in enumerate(_elements(call, args), 1):
            if value is not None and order(value, args[1]) == 0:
                return number
        return 0

    return position


def _extreme(order: Order, sign: int) -> Callable[[Call, Sequence[Any]], Value]:
    def extreme(call: Call, args: Sequence[Any]) -> Value:
        best: Value = None
        for value in _elements(call, args):
            if value is not None and (best is None or order(value, best) * sign > 0):
                best = value
        return best

    return extreme


def _slice(call: Call, args: Sequence[Any]) -> Value:
    """``length`` elements from number ``start`` on, from 1, or from -1 on from the end."""
    values, (start, length) = _elements(call, args), args[1:]
    if start == 0:
        raise EvaluationError("value", "the elements of an array are numbered from 1 on, not 0")
    if length < 0:
        raise EvaluationError("value", f"a slice has no {length} elements")
    first = start - 1 if start > 0 else len(values) + start
    part = values[first : first + length] if first >= 0 else []
    return write_array(part, element_of(call.type))


def _join(call: Call, args: Sequence[Any]) -> Value:
    """The texts with a separator between them; NULLs are left out, or get a replacement."""
    values, (separator, *instead) = _elements(call, args), args[1:]
    given = [instead[0] if v is None and instead else v for v in values]
    return str(separator).join(str(v) for v in given if v is not None)


def _field(call: Call, args: Sequence[Any]) -> Value:
    value, number = args
    found: Value = read_struct(value, call.args[0].type)[number]
    return found


def make_array(call: Call, args: Sequence[Value]) -> Value:
    return write_array(args, element_of(call.type))


def make_struct(call: Call, args: Sequence[Value]) -> Value:
    return write_struct(args, call.type)


def never_fail(order: Order) -> dict[str, Callable[[Call, Sequence[Any]], Value]]:
    """Strict functions that never fail; ``order`` compares two values."""
    return {
        "size": _size,
        "get": _get,
        "array_contains": _contains(order),
        "array_position": _position(order),
        "array_min": _extreme(order, -1),
        "array_max": _extreme(order, 1),
        "array_join": _join,
        "field": _field,
    }


#: Strict functions that may raise EvaluationError.
MAY_FAIL: dict[str, Callable[[Call, Sequence[Any]], Value]] = {
    "item": _item,
    "element_at": _element_at,
    "try_element_at": _try_element_at,
    "slice": _slice,
}
#: Functions that take NULL as a value.
CONSTRUCTORS = {"array": make_array, "named_struct": make_struct}
#: All functions of this module.
NESTED_FUNCTIONS = frozenset((*never_fail(lambda a, b: 0), *MAY_FAIL, *CONSTRUCTORS))
