"""Cells: the rows that lie in the same windows and find the same ones closed."""

from __future__ import annotations

from typing import Any

from numba import int64

from cql.executor.jit.decorators import njit

#: The cell of rows that lie in no window.
NOWHERE = -(1 << 62)
#: Watermarks below it close no window, like this one.
_EARLIEST = -(1 << 61)
#: Words of a window: its lengths, in units of the event time, whether its windows cumulate, and the
#: greatest distance of a time from ``OFFSET``.
RANGE, SLIDE, OFFSET, CUMULATES, MOST = range(5)
WORDS = 5

_INTS = "Array(int64, 1, 'C', readonly=True)"
_MASK = "Array(uint8, 1, 'C', readonly=True)"


@njit(inline="always")
def _span(unit: int, window: Any) -> tuple[int, int]:
    """The first and the last window of the time ``unit``, counted from the window's offset."""
    slide = window[SLIDE]
    if window[CUMULATES]:
        first = unit // slide
        steps = window[RANGE] // slide
        return first, first // steps * steps + steps - 1
    return (unit - window[RANGE]) // slide + 1, unit // slide


@njit(inline="always")
def _stretch(first: int, last: int, window: Any) -> tuple[int, int]:
    """From when on, and until when, times have this first and this last window."""
    slide = window[SLIDE]
    if window[CUMULATES]:
        return first * slide, (first + 1) * slide
    begin = max(last * slide, (first - 1) * slide + window[RANGE])
    return begin, min((last + 1) * slide, first * slide + window[RANGE])


@njit(inline="always")
def _end(number: int, window: Any) -> int:
    """The end of a window, counted from the window's offset."""
    if window[CUMULATES]:
        return int64((number + 1) * window[SLIDE])
    return int64(number * window[SLIDE] + window[RANGE])


@njit(inline="always")
def _first_open(watermark: int, window: Any) -> int:
    """The first window that ends above ``watermark``, which is counted from the window's offset."""
    if window[CUMULATES]:
        return int64(watermark // window[SLIDE])
    return int64((watermark - window[RANGE]) // window[SLIDE] + 1)


@njit(inline="always")
def _time_in(both: int, window: Any) -> int:
    """A time, counted from the window's offset, whose first and last windows have the sum
    ``both``."""
    slide = window[SLIDE]
    if window[CUMULATES]:
        # first + last grows by one with each step, and by ``steps`` from one range to the next.
        steps = window[RANGE] // slide
        begun = (both + 1 - steps) // (2 * steps)
        inside = both - (2 * begun * steps + steps - 1)
        return int64((begun * steps + inside) * slide)
    rest = window[RANGE] % slide
    number = both + window[RANGE] // slide
    return int64(number // 2 * slide + (rest if number % 2 else 0))


@njit(
    f"void({_INTS}, {_MASK}, {_INTS}, {_INTS}, int64[::1], uint8[::1])",
    nogil=True,
    cache=True,
)
def cells(times: Any, valid: Any, before: Any, window: Any, made: Any, held: Any) -> None:
    """The cell of each row into ``made``. ``valid``: 0 for NULL, empty if there is none;
    ``before``: the watermark before each row. ``held`` becomes 0 for times that are NULL or beyond
    MOST."""
    n = window[RANGE] // window[SLIDE] + 3
    most = window[MOST]
    # Neighbours mostly lie in the same windows, behind the same watermark: divisions are rare.
    first = last = begin = behind = 0
    latest, opened = _EARLIEST, _first_open(_EARLIEST - window[OFFSET], window)
    for i in range(times.size):
        unit = times[i] - window[OFFSET]
        held[i] = (valid.size == 0 or valid[i] != 0) and -most <= unit <= most
        made[i] = NOWHERE
        if held[i]:
            if unit < begin or unit >= behind:
                first, last = _span(unit, window)
                begin, behind = _stretch(first, last, window)
            if first <= last:
                if before[i] != latest:
                    latest = before[i]
                    mark = min(max(latest, _EARLIEST), -_EARLIEST)
                    opened = _first_open(mark - window[OFFSET], window)
                made[i] = (first + last) * n + min(max(opened - first, 0), last - first + 1)


@njit(
    f"void({_INTS}, {_INTS}, int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def windows_of(made: Any, window: Any, times: Any, closed: Any, least: Any, most: Any) -> None:
    """For each cell of ``made`` (none is NOWHERE): a time in it, how many of its windows are
    ``closed``, and the ends of its first open one and of its last one. If all are closed, ``least``
    is above ``most``."""
    n = window[RANGE] // window[SLIDE] + 3
    offset = window[OFFSET]
    for i in range(made.size):
        both, closed[i] = made[i] // n, made[i] % n
        unit = _time_in(both, window)
        first, last = _span(unit, window)
        times[i] = unit + offset
        least[i] = _end(first + closed[i], window) + offset
        most[i] = _end(last, window) + offset
