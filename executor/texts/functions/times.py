"""Texts of times by a pattern, and names of days and months, for all rows of a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cql.base.uninterruptible import load_module
from cql.executor.texts.column import Bytes, Column, Places, Status, Texts
from cql.executor.texts.functions.arguments import constant
from cql.executor.texts.functions.casts import chosen, written
from cql.planner.interpret.datetime_patterns import (
    DAY_NAMES,
    MONTH_NAMES,
    PatternField,
    compile_pattern,
)
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.time import DAY
from cql.planner.nodes.expr import Call

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument

#: Bytes that a text by a pattern may take here.
_MOST = 128
_DAYS, _MONTHS = ([name[:3].encode() for name in names] for names in (DAY_NAMES, MONTH_NAMES))
#: The names of the months, their three letters as a number.
_MONTH_WORDS = np.array([int.from_bytes(name, "big") for name in _MONTHS], np.int64)


def _kernels() -> Any:
    return load_module("cql.executor.kernels.texts.times")


def _date_format(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    times, pattern = args[0], constant(args[1])
    if pattern is None or not isinstance(times, Column) or isinstance(times.values, Texts):
        return None
    found = _writer(pattern)
    if found is None:
        return None
    *fields, width = found
    return written(_kernels().write_pattern, times.values, width, status, *fields)


@lru_cache(maxsize=512)
def _writer(pattern: str) -> tuple[Places, Places, Bytes, int] | None:
    """The fields of a pattern as the kernel writes them, and the bytes of the longest text; None
    for a pattern that is an error or has a field that the kernel does not write."""
    fields = _fields(pattern)
    if fields is None or any(f.letter not in "yMdHmsS" or _is_name(f) for f in fields):
        return None
    letters = [ord(f.letter or "\0") for f in fields]
    widths = [f.width or len(f.text.encode()) for f in fields]
    sizes = [_kernels().YEAR_WIDTH if f.letter == "y" else max(f.width, 2) for f in fields]
    literals = "".join(f.text for f in fields).encode()
    longest = sum(sizes) + len(literals)
    if longest > _MOST:
        return None
    return _array(letters), _array(widths), np.frombuffer(literals, np.uint8), longest


def _to_timestamp(call: Call, args: Sequence[Argument], status: Status) -> Places | None:
    texts, pattern = args[0], constant(args[1])
    if pattern is None or not isinstance(texts, Column) or not isinstance(texts.values, Texts):
        return None
    fields = _reader(pattern)
    if fields is None:
        return None
    out = np.zeros(status.size, np.int64)
    data, starts, ends = texts.values.data, texts.values.starts, texts.values.ends
    _kernels().read_pattern(data, starts, ends, *fields, _MONTH_WORDS, out, status)
    return out


def _to_date(call: Call, args: Sequence[Argument], status: Status) -> npt.NDArray[Any] | None:
    micros = _to_timestamp(call, args, status)
    return None if micros is None else (micros // DAY).astype(call.type.storage)


@lru_cache(maxsize=512)
def _reader(pattern: str) -> tuple[Places, Places, Places, Bytes] | None:
    """The fields of a pattern as the kernel reads them; None for a pattern that is an error, or has
    a field that the kernel does not read: a letter twice, a zone in front of another field, or a
    number of any width in front of a digit."""
    fields = _fields(pattern)
    if fields is None:
        return None
    written = [f.letter for f in fields if f.letter]
    if len(set(written)) < len(written) or not set(written) <= set("yMdHmsSX"):
        return None
    letters: list[int] = []
    least: list[int] = []
    most: list[int] = []
    for k, field in enumerate(fields):
        following = fields[k + 1] if k + 1 < len(fields) else None
        letter, width = field.letter, field.width
        loose = width == 1 and not (following and following.letter)
        if letter == "X" and following:
            return None
        if _is_name(field):
            if width == 4:
                return None
            letter = "L"
        elif letter and loose and following and following.text[0] in "0123456789":
            return None
        elif letter == "y" and width == 2:
            letter = "u"
        letters.append(ord(letter or "\0"))
        least.append(width)
        most.append((7 if letter == "y" else 2) if loose else width or len(field.text.encode()))
    literals = "".join(f.text for f in fields).encode()
    return _array(letters), _array(least), _array(most), np.frombuffer(literals, np.uint8)


def _fields(pattern: str) -> list[PatternField] | None:
    """The fields of a pattern, with one letter for each of their meanings; None for an error."""
    try:
        fields = compile_pattern(pattern)
    except EvaluationError:
        return None
    one = {"u": "y", "L": "M", "Z": "X"}
    return [replace(f, letter=one.get(f.letter, f.letter)) for f in fields]


def _is_name(field: PatternField) -> bool:
    return field.letter == "M" and field.width > 2


def _array(numbers: list[int]) -> Places:
    return np.array(numbers, np.int64)


def _day_name(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    days = args[0]
    if not isinstance(days, Column) or isinstance(days.values, Texts):
        return None
    return chosen(_DAYS, (days.values.astype(np.int64) + 3) % 7)


def _month_name(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    days = args[0]
    if not isinstance(days, Column) or isinstance(days.values, Texts):
        return None
    months = np.ones(status.size, np.int64)
    _kernels().months(np.ascontiguousarray(days.values, np.int64), months, status)
    return chosen(_MONTHS, months - 1)


BLOCKS = {
    "date_format": _date_format,
    "dayname": _day_name,
    "monthname": _month_name,
    "to_date": _to_date,
    "to_timestamp": _to_timestamp,
}
