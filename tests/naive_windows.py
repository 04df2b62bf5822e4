"""The reference's windows that have bounds of their own: which hold a time, and which come next."""

from __future__ import annotations

from cql.window import Window, WindowKind

Span = tuple[int, int]


def windows_of(window: Window, time: int) -> list[Span]:
    """``[start, end)`` of every window that holds ``time``, by the definition: window k covers
    ``[k * slide + offset, k * slide + offset + range)``.

    >>> windows_of(Window(WindowKind.SLIDING, 0, range=10, slide=5), -1)
    [(-10, 0), (-5, 5)]
    >>> windows_of(Window(WindowKind.SLIDING, 0, range=2, slide=5), 3)
    []

    Those of CUMULATE begin at ``k * range + offset`` and end a slide after one another, up to the
    next beginning.

    >>> windows_of(Window(WindowKind.CUMULATE, 0, range=10, slide=5, offset=1), 3)
    [(1, 6), (1, 11)]
    """
    length, slide = window.range, window.slide
    assert length is not None
    assert slide is not None
    if window.kind is WindowKind.CUMULATE:
        start = (time - window.offset) // length * length + window.offset
        ends = range(start + slide, start + length + slide, slide)
        return [(start, end) for end in ends if time < end]
    some = (time - window.offset) // slide  # its window is the last that starts at or before time
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
    if window.kind is WindowKind.CUMULATE:
        return windows_of(window, mark)[0]
    first = (mark - window.range - window.offset) // window.slide + 1
    start = first * window.slide + window.offset
    return start, start + window.range
