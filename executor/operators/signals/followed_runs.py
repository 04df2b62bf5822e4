"""The runs of a signal whose samples come as rows, in morsels: the rules are those of ``runs``."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from cql.errors import RunError
from cql.executor.morsel.morsel import Words
from cql.executor.operators.signals.runs import Run, Runs
from cql.executor.operators.signals.segment_store import Timebase
from cql.planner.nodes.physical import SignalInput

#: In microseconds, before or after 1970.
_LATEST = (2**63 - 2**61) // 1000
# The words of the state.
KNOWN = 0  # 1: there is a timebase
ORIGIN = 1
FOLLOWING = 2
GAPS = 3
OVERLAPPING = 4
MISSING = 5
WORDS = 6


def check_times(times: npt.NDArray[np.int64], name: str) -> None:
    """Raises RunError for times whose nanoseconds, with the longest window behind them, do not fit
    in 64 bits."""
    for time in (times.min(), times.max()) if len(times) else ():
        if abs(int(time)) > _LATEST:
            raise RunError(
                f"the signal {name} has a sample at the time {np.datetime64(int(time), 'us')}:"
                " times of samples lie between the years 1752 and 2188"
            )


class FollowedRuns:
    """Follows the signal over morsels. ``state``: WORDS words, in which it keeps how far it is;
    ``name`` of the signal, for errors."""

    def __init__(self, signal: SignalInput, state: Words, name: str) -> None:
        self._rate, self._name = Fraction(signal.rate, signal.per), name
        self._runs = Runs(self._rate)
        self.load(state)

    def load(self, state: Words) -> None:
        """Goes on with a state, which is kept from now on."""
        self._state, runs = state, self._runs
        known, origin, runs.following, runs.gaps, runs.overlapping, runs.missing = state.tolist()
        runs.base = Timebase(self._rate, origin) if known else None

    def of(
        self, n: int, times: npt.NDArray[np.int64] | None, valid: npt.NDArray[np.bool_] | None
    ) -> list[tuple[Run, bool]]:
        """The runs of ``n`` rows, as ``Runs.of`` has them, and whether each goes on where the one
        before it ended."""
        if times is not None:
            check_times(times if valid is None else times[valid], self._name)
        runs, found = self._runs, list[tuple[Run, bool]]()
        base, following = runs.base, runs.following
        for run in runs.of(n, times, valid):
            found.append((run, run.base == base and run.start == following))
            base, following = run.base, run.start + run.samples
        origin = 0 if runs.base is None else runs.base.origin
        self._state[[KNOWN, ORIGIN, FOLLOWING]] = runs.base is not None, origin, runs.following
        self._state[[GAPS, OVERLAPPING, MISSING]] = runs.gaps, runs.overlapping, runs.missing
        return found

    def counters(self) -> dict[str, int]:
        names = ("gaps", "overlapping", "missing")
        return dict(zip(names, self._state[GAPS:].tolist(), strict=True))
