"""Cost of the in-order window joins (in-order paper, equations 1 to 8): the average response time
of a row of the faster of two streams, from its arrival until its results have left.

``cost`` is c, the seconds to join two rows; ``window`` |w| in seconds; rates are rows per second,
of the ``slow`` stream (λ1) and the ``fast`` one (λ2)."""

from __future__ import annotations


def load(cost: float, window: float, slow: float, fast: float) -> float:
    """c·|w|·λ1·λ2: the fraction of time that joining the rows of one stream takes. The join keeps
    up while the load is below 1 (equation 1)."""
    return cost * window * slow * fast


def sync_filter(cost: float, window: float, slow: float, fast: float) -> float:
    """Response time of Sync-Filter in seconds: a row waits for the next row of the slow stream,
    then for the rows that came before it (equation 3)."""
    n = fast / slow
    return filter_order(slow, fast) + (n + 1) / 2 * cost * window * slow


def filter_order(slow: float, fast: float) -> float:
    """Response time of Filter-Order in seconds: the results of a row wait for the next row of the
    slow stream (equation 5)."""
    n = fast / slow
    return 1 / slow - (n - 1) / (2 * fast)


def improvement(load: float) -> float:
    """The share of Sync-Filter's response time that Filter-Order saves (equation 7)."""
    return load / (1 + load)
