"""Cost of a window as an update (UpStream report, section 6.1.2), in the unit of ``row``: the cost
of one row in one window. Rows come once per unit of event time, and a window has ``size`` of them;
windows start ``slide`` units apart.

The report's upper bound, (o + 1) row (size - o slide / 2), equals ``window_cost`` only where
``slide`` divides ``size``. Elsewhere it lies below: for size 5 and slide 2 it is 8, and the cost
9."""

from __future__ import annotations


def overlap(size: int, slide: int) -> int:
    """The number o of windows that a row is in, at the most. Raises ValueError unless both are
    positive."""
    if size <= 0 or slide <= 0:
        raise ValueError("the size and the slide of a window are positive")
    return -(-size // slide)


def window_cost(size: int, slide: int, row: float = 1.0) -> float:
    """The cost of a result if all windows that overlap it are open, and each row is processed once
    for each window: the upper bound."""
    o = overlap(size, slide)
    return row * (o * size - slide * (o * (o - 1) // 2))


def lone_window_cost(size: int, row: float = 1.0) -> float:
    """The cost of a result if no other window is open, as under LAZY and EAGER: the lower bound."""
    return row * size


def load(size: int, slide: int, row: float, gap: float) -> float:
    """The share of one server's time that rows of one key, ``gap`` apart, take if every window is
    processed (append semantics): on average each is in ``size / slide`` windows."""
    return row * size / slide / gap
