"""What the in-order window joins cost (in-order paper, equations 1 to 8): how long a row of the
faster of two streams takes on average, from its arrival until its results have left.

``cost`` is c, the seconds to join two rows; ``window`` |w| in seconds; rates are rows per second,
of the ``slow`` stream (λ1) and the ``fast`` one (λ2)."""

from __future__ import annotations


def load(cost: float, window: float, slow: float, fast: float) -> float:
    """c·|w|·λ1·λ2: the time that joining the rows of one stream takes, of all time. The join keeps
    up while it is below 1 (1)."""
    return cost * window * slow * fast


def sync_filter(cost: float, window: float, slow: float, fast: float) -> float:
    """A row waits for the next one of the slow stream, then for those that came before it (3)."""
    n = fast / slow
    return filter_order(slow, fast) + (n + 1) / 2 * cost * window * slow


def filter_order(slow: float, fast: float) -> float:
    """A row's results wait for the next row of the slow stream (5)."""
    n = fast / slow
    return 1 / slow - (n - 1) / (2 * fast)


def improvement(load: float) -> float:
    """The share of Sync-Filter's response time that Filter-Order spares (7)."""
    return load / (1 + load)
