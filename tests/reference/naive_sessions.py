"""The reference's sessions: a graph of rows, and its connected components."""

from __future__ import annotations

from collections.abc import Sequence

#: The time of a row, and its row watermark (None: the column of the time has no watermark).
Point = tuple[int, float | None]


def is_late(point: Point, gap: int) -> bool:
    """Whether a row is late: a session of this row alone would be over."""
    time, mark = point
    return mark is not None and time + gap <= mark


def linked(a: Point, b: Point, gap: int) -> bool:
    """Whether two rows of a group belong together: their times differ by at most the gap, and
    neither lies more than the gap behind the other's row watermark.

    >>> linked((10, 0), (20, 0), 10), linked((10, 0), (21, 0), 10)
    (True, False)

    The row at 18 comes when the watermark of its source is 25: a session that ended with 14 may
    have left by then, a session with a row at 15 has not.

    >>> linked((18, 25), (14, 0), 10), linked((18, 25), (15, 0), 10)
    (False, True)
    """
    return abs(a[0] - b[0]) <= gap and all(
        x[1] is None or y[0] >= x[1] - gap for x, y in ((a, b), (b, a))
    )


def sessions(points: Sequence[Point], gap: int) -> list[tuple[int, int, list[int]]]:
    """The sessions of one group without late rows: start, end (last + gap) and indices of the rows.

    >>> sessions([(0, None), (25, None), (10, None)], 10)
    [(0, 20, [0, 2]), (25, 35, [1])]
    """
    waiting, found = list(range(len(points))), []
    while waiting:
        members = [waiting.pop(0)]
        for member in members:  # the loop appends to ``members``
            near = [k for k in waiting if linked(points[member], points[k], gap)]
            members += near
            waiting = [k for k in waiting if k not in near]
        times = [points[k][0] for k in members]
        found.append((min(times), max(times) + gap, sorted(members)))
    return found
