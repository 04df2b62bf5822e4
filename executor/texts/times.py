"""Texts of times with a pattern, and names of days and months, for all rows of a block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cql.base.uninterruptible import load_module
from cql.executor.texts.casts import chosen, written
from cql.executor.texts.column import Bytes, Column, Places, Status, Texts
from cql.executor.texts.search import constant
from cql.planner.interpret.datetime_patterns import DAY_NAMES, MONTH_NAMES, compile_pattern
from cql.planner.interpret.error import EvaluationError
from cql.planner.nodes.expr import Call

if TYPE_CHECKING:
    from cql.executor.texts.functions import Argument

#: Bytes that a text by a pattern may take here.
_MOST = 128
_DAYS, _MONTHS = ([name[:3].encode() for name in names] for names in (DAY_NAMES, MONTH_NAMES))


def _kernels() -> Any:
    return load_module("cql.executor.kernels.texts.times")


def _date_format(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    times, pattern = args[0], constant(args[1])
    if pattern is None or not isinstance(times, Column) or isinstance(times.values, Texts):
        return None
    found = _compiled(pattern)
    if found is None:
        return None
    *fields, width = found
    return written(_kernels().write_pattern, times.values, width, status, *fields)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> tuple[Places, Places, Bytes, int] | None:
    """The fields of a pattern as the kernel takes them, and the bytes of the longest text; None for
    a pattern that is an error or has a field that the kernel does not write."""
    letters: list[int] = []
    widths: list[int] = []
    literals, longest = b"", 0
    try:
        fields = compile_pattern(pattern)
    except EvaluationError:
        return None
    for field in fields:
        letter = {"u": "y", "L": "M"}.get(field.letter, field.letter)
        if letter not in "yMdHmsS" or (letter == "M" and field.width > 2):
            return None
        text = field.text.encode()
        literals += text
        letters.append(ord(letter) if letter else 0)
        widths.append(field.width if letter else len(text))
        longest += _kernels().YEAR_WIDTH if letter == "y" else max(widths[-1], 2)
    if longest > _MOST:
        return None
    numbers = np.array(letters, np.int64), np.array(widths, np.int64)
    return *numbers, np.frombuffer(literals, np.uint8), longest


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


BLOCKS = {"date_format": _date_format, "dayname": _day_name, "monthname": _month_name}
