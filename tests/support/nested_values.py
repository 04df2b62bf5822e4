"""Arrays and structs in tests: as entries, as the interpreter has them, and as lists and tuples, as
the reference has them. Random ones, also as Arrow columns."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from cql.base.types import DataType
from cql.planner.interpret.entries import read_array, read_struct, write_array, write_struct
from cql.planner.nodes.expr import Value


def to_entry(value: Any, kind: DataType) -> Value:
    """A value of the reference as the interpreter has it."""
    if value is None:
        return None
    if kind.element is not None:
        element = kind.element
        return write_array([to_entry(v, element) for v in value], element)
    if kind.fields:
        return write_struct(_with(to_entry, value, kind), kind)
    found: Value = value
    return found


def from_entry(value: Any, kind: DataType) -> Any:
    """A value of the interpreter as the reference has it."""
    if value is None:
        return None
    if kind.element is not None:
        element = kind.element
        return [from_entry(v, element) for v in read_array(value, element)]
    if kind.fields:
        return tuple(_with(from_entry, read_struct(value, kind), kind))
    return value


def _with(
    convert: Callable[[Any, DataType], Any], values: Sequence[Any], kind: DataType
) -> list[Any]:
    return [convert(v, of) for v, (_, of) in zip(values, kind.fields, strict=True)]


def draw(rng: random.Random, kind: DataType, scalar: Callable[[DataType], Any]) -> Any:
    """A random value of a type, or NULL; ``scalar`` draws values without parts."""
    if not kind.is_nested:
        return scalar(kind)
    if rng.random() < 0.1:
        return None
    if kind.element is None:
        return tuple(draw(rng, of, scalar) for _, of in kind.fields)
    values = [draw(rng, kind.element, scalar) for _ in range(rng.choice((0, 1, 1, 2, 3, 5)))]
    return values if kind.contains_null else [v for v in values if v is not None]


def to_python(value: Any, kind: DataType) -> Any:
    """A value of the reference as Python's lists and dictionaries, for Arrow."""
    if value is None or not kind.is_nested:
        return value
    if kind.element is not None:
        element = kind.element
        return [to_python(v, element) for v in value]
    pairs = zip(value, kind.fields, strict=True)
    return {name: to_python(v, of) for v, (name, of) in pairs}
