"""The number of workers of a query: raised as long as its throughput rises (ordered-multicore
paper, section 7.1, leaves the break-even point open).

Hill climbing: the number doubles while that pays, then a binary search follows. Hysteresis: more
workers must bring a share GAIN of the ideal gain, fewer workers may lose a share LOSS of the ideal
loss. Neighbours of the best number are tried again at growing intervals, or at once when the
throughput changes much.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

#: The share of the ideal gain that more workers must bring, and the share of the ideal loss that
#: fewer workers may cost; ideal is throughput proportional to workers.
GAIN, LOSS = 0.2, 0.1
#: A relative change of throughput that counts as another load.
CHANGE = 0.4
#: Periods before a neighbour is tried again: at first, and at most.
PATIENCE, MOST_PATIENCE = 16, 512
#: Seconds of a measurement, and seconds without measurement after a change.
PERIOD, SETTLE = 0.05, 0.01


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Climb:
    """State of the hill climbing. ``workers`` are at work. ``best`` workers gave the best
    throughput so far, ``rate`` rows per second. ``above`` is the least number that did not pay.
    ``wait`` periods remain until more and fewer workers are tried again."""

    most: int
    workers: int = 1
    best: int = 1
    rate: float | None = None
    above: int | None = None
    wait: int = 0
    patience: int = PATIENCE

    def next(self, rate: float) -> Climb:
        """The state after a period in which ``workers`` had throughput ``rate``."""
        if self.workers > self.best:
            return self._tried_more(rate)
        if self.workers < self.best:
            return self._tried_fewer(rate)
        if self.rate is None or abs(rate - self.rate) > CHANGE * self.rate:
            # No throughput is known, or the known one belongs to another load.
            known = replace(self, rate=rate, above=None, wait=1, patience=PATIENCE)
            if self.rate is not None:
                return known
            # A start with more than one worker was chosen for a reason: keep it for a while.
            return known._try_more() if self.best == 1 else replace(known, wait=PATIENCE)
        known = replace(self, rate=(3 * self.rate + rate) / 4)
        return replace(known, wait=self.wait - 1) if self.wait > 0 else known._try_more()

    def _tried_more(self, rate: float) -> Climb:
        assert self.rate is not None
        share = (self.workers - self.best) / self.best
        if rate >= self.rate * (1 + GAIN * share):
            return replace(self, best=self.workers, rate=rate, patience=PATIENCE)._try_more()
        return replace(self, above=self.workers)._try_more()

    def _try_more(self) -> Climb:
        """Tries twice as many, or the midpoint below ``above``; if none is left, fewer."""
        least_bad = self.above if self.above is not None else self.most + 1
        to = min(2 * self.best, self.most)
        if to >= least_bad:
            to = (self.best + least_bad) // 2
        return replace(self, workers=to) if self.best < to < least_bad else self._try_fewer()

    def _tried_fewer(self, rate: float) -> Climb:
        assert self.rate is not None
        share = (self.best - self.workers) / self.best
        if rate >= self.rate * (1 - LOSS * share):
            fewer = replace(self, best=self.workers, rate=rate, above=self.best, patience=PATIENCE)
            return fewer._try_fewer()
        return replace(self, workers=self.best)._stay()

    def _try_fewer(self) -> Climb:
        fewer = self.best - max(self.best // 4, 1)
        return replace(self, workers=fewer) if fewer >= 1 else self._stay()

    def _stay(self) -> Climb:
        """Keeps ``best`` for ``patience`` periods; afterwards all larger numbers are open again."""
        return replace(
            self,
            workers=self.best,
            above=None,
            wait=self.patience,
            patience=min(2 * self.patience, MOST_PATIENCE),
        )


class Scaling:
    """Feeds a ``Climb`` with measurements of rows and seconds; returns the number of workers."""

    def __init__(self, most: int, workers: int = 1) -> None:
        workers = min(workers, most)
        self.climb = Climb(most, workers, workers)
        self.rates: dict[int, float] = {}  # latest rows per second, by number of workers
        self._since: tuple[int, float] | None = None
        self._settling = SETTLE

    def note(self, rows: int, seconds: float) -> int:
        """Takes the totals of admitted ``rows`` and ``seconds`` since the beginning; returns the
        number of workers from now on."""
        workers = self.climb.workers
        if self._since is None:
            self._since = rows, seconds
        passed = seconds - self._since[1]
        if self._settling:
            if passed >= self._settling:
                self._since, self._settling = (rows, seconds), 0.0
            return workers
        if passed < PERIOD:
            return workers
        rate = self.rates[workers] = (rows - self._since[0]) / passed
        self.climb = self.climb.next(rate)
        self._since = rows, seconds
        if self.climb.workers != workers:
            self._settling = SETTLE
        return self.climb.workers

    def report(self) -> str | None:
        """The number of workers found, and the throughputs measured; None if only one number was
        tried."""
        climb = self.climb
        if len(self.rates) < 2:
            return None
        rates = ", ".join(f"{w}: {rate:,.0f}" for w, rate in sorted(self.rates.items()))
        return (
            f"workers: {climb.best} of {climb.most} cores; rows per second with each number tried:"
            f" {rates}"
        )
