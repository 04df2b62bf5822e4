"""How many workers a query has: as many as raise its throughput (ordered-multicore paper, section
7.1, leaves the break-even point to others).

Hill climbing: twice as many are tried while that pays, then what lies between; with hysteresis:
more must bring a good part of what they would bring at best, fewer must lose next to nothing. What
was found is tried again ever less often, unless the throughput changes much.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

#: Of what more workers would bring if they shared the work without loss, they must bring this much;
#: fewer may lose as much of it.
GAIN, LOSS = 0.2, 0.1
#: A throughput that differs by so much from what it was is another load.
CHANGE = 0.4
#: Periods before a neighbour is tried again: at first, and at most.
PATIENCE, MOST_PATIENCE = 16, 512
#: Seconds that a throughput is measured for, and for how long it is not, after a change.
PERIOD, SETTLE = 0.05, 0.01


def cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Climb:
    """``workers`` are at work; ``best`` gave ``rate``, the best so far. ``above`` is the least
    number that did not pay. ``wait`` periods are left until more and fewer are tried again."""

    most: int
    workers: int = 1
    best: int = 1
    rate: float | None = None
    above: int | None = None
    wait: int = 0
    patience: int = PATIENCE

    def next(self, rate: float) -> Climb:
        """``workers`` had that throughput for a period."""
        if self.workers > self.best:
            return self._tried_more(rate)
        if self.workers < self.best:
            return self._tried_fewer(rate)
        if self.rate is None or abs(rate - self.rate) > CHANGE * self.rate:
            # nothing is known, or what is known is of another load
            known = replace(self, rate=rate, above=None, wait=1, patience=PATIENCE)
            if self.rate is not None:
                return known
            # more than one were chosen with a reason
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
        """Twice as many; below what did not pay, half of the way there; then fewer."""
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
        """For a while; then nothing is held against more."""
        return replace(
            self,
            workers=self.best,
            above=None,
            wait=self.patience,
            patience=min(2 * self.patience, MOST_PATIENCE),
        )


class Scaling:
    """Measures for a ``Climb``: told of rows and seconds, it says how many workers to have."""

    def __init__(self, most: int, workers: int = 1) -> None:
        workers = min(workers, most)
        self.climb = Climb(most, workers, workers)
        self.rates: dict[int, float] = {}  # the latest of each number of workers
        self._since: tuple[int, float] | None = None
        self._settling = SETTLE

    def note(self, rows: int, seconds: float) -> int:
        """``rows`` have been admitted in so many ``seconds``, since the beginning."""
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

    def told(self) -> str | None:
        """What it came to, and why; None: it has tried nothing else."""
        climb = self.climb
        if len(self.rates) < 2:
            return None
        rates = ", ".join(f"{w}: {rate:,.0f}" for w, rate in sorted(self.rates.items()))
        return (
            f"workers: {climb.best} of {climb.most} cores; rows per second with each number tried:"
            f" {rates}"
        )
