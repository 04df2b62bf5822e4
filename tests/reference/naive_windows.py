"""The reference's windows with bounds: the windows that hold a time, and the next windows."""

from __future__ import annotations

import zoneinfo
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache

from cql.base.window import Window, WindowKind

DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Span = tuple[int, int]


def windows_of(window: Window, time: int) -> list[Span]:
    """``[start, end)`` of every window that holds ``time``, by the definition: window k covers
    ``[k * slide + offset, k * slide + offset + range)``.

    >>> windows_of(Window(WindowKind.SLIDING, 0, range=10, slide=5), -1)
    [(-10, 0), (-5, 5)]
    >>> windows_of(Window(WindowKind.SLIDING, 0, range=2, slide=5), 3)
    []

    CUMULATE windows begin at ``k * range + offset``. Their ends are one slide apart, up to the next
    beginning.

    >>> windows_of(Window(WindowKind.CUMULATE, 0, range=10, slide=5, offset=1), 3)
    [(1, 6), (1, 11)]
    """
    if window.zone is not None:
        return _windows_of_days(window, time)
    length, slide = window.range, window.slide
    assert length is not None
    assert slide is not None
    if window.kind is WindowKind.CUMULATE:
        start = (time - window.offset) // length * length + window.offset
        ends = range(start + slide, start + length + slide, slide)
        return [(start, end) for end in ends if time < end]
    some = (time - window.offset) // slide  # the last window that starts at or before ``time``
    starts = [k * slide + window.offset for k in range(some - length // slide - 1, some + 2)]
    return [(s, s + length) for s in starts if s <= time < s + length]


def first_after(window: Window, mark: int) -> Span:
    """The first window that ends above ``mark``.

    >>> first_after(Window(WindowKind.SLIDING, 0, range=10, slide=5), 10)
    (5, 15)
    >>> first_after(Window(WindowKind.CUMULATE, 0, range=10, slide=5), 10)
    (10, 15)
    """
    assert window.range is not None
    assert window.slide is not None
    if window.zone is not None:
        days = _in_days(window)
        start, end = first_after(days, _day_of(window, mark))
        return day_start(window, start), day_start(window, end)
    if window.kind is WindowKind.CUMULATE:
        return windows_of(window, mark)[0]
    first = (mark - window.range - window.offset) // window.slide + 1
    start = first * window.slide + window.offset
    return start, start + window.range


# Days of a time zone ------------------------------------------------------------------------------


def _in_days(window: Window) -> Window:
    assert window.range is not None
    assert window.slide is not None
    lengths = {"range": window.range // DAY, "slide": window.slide // DAY}
    return replace(window, **lengths, offset=0, zone=None)


def _windows_of_days(window: Window, time: int) -> list[Span]:
    """The windows over day numbers: from the start of their first day to the end of their last day.

    The last day of March 2024 has 23 hours in Prague.

    >>> day = Window(WindowKind.SLIDING, 0, range=DAY, slide=DAY, zone="Europe/Prague")
    >>> [((b - a) // 3_600_000_000) for a, b in windows_of(day, 1_711_880_000_000_000)]
    [23]
    """
    spans = windows_of(_in_days(window), _day_of(window, time))
    return [(day_start(window, start), day_start(window, end)) for start, end in spans]


def _day_of(window: Window, time: int) -> int:
    near = (time - window.offset) // DAY
    return max(d for d in range(near - 3, near + 4) if day_start(window, d) <= time)


def day_start(window: Window, day: int) -> int:
    """The first instant at which the local clock, put back by OFFSET, shows the date ``day`` or a
    later one. The search goes minute by minute, then second by second."""
    assert window.zone is not None
    return _day_start(window.zone, window.offset, day)


@cache
def _day_start(zone: str, offset: int, day: int) -> int:
    info = zoneinfo.ZoneInfo(zone)
    wanted = date(1970, 1, 1) + timedelta(days=day)

    def begun(second: int) -> bool:
        local = (_EPOCH + timedelta(seconds=second)).astimezone(info).replace(tzinfo=None)
        return (local - timedelta(microseconds=offset)).date() >= wanted

    near = day * 86_400 + offset // 1_000_000
    minute = next(s for s in range(near - 57_600, near + 129_600, 60) if begun(s))
    return 1_000_000 * next(s for s in range(minute - 60, minute + 1) if begun(s))
