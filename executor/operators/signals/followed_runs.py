"""The runs of a signal whose samples come as rows, in morsels: the rules are those of ``runs``."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from cql.errors import RunError
from cql.executor.morsel.morsel import Words
from cql.executor.operators.signals.runs import Run, Runs
from cql.planner.nodes.physical import SignalInput

#: In microseconds, before or after 1970.
_LATEST = (2**63 - 2**61) // 1000
#: Words of the state: those of ``Runs.words``.
WORDS = 8


def runs_of(signal: SignalInput) -> Runs:
    """The runs of a signal, before its first sample."""
    tolerance = None if signal.tolerance is None else 1_000 * signal.tolerance
    return Runs(Fraction(signal.rate, signal.per), tolerance)


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
        self._name = name
        self._runs = runs_of(signal)
        self.load(state)

    def load(self, state: Words) -> None:
        """Goes on with a state, which is kept from now on."""
        self._state = state
        self._runs = self._runs.continued(state.tolist())

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
        self._state[:] = runs.words
        return found

    def counters(self) -> dict[str, int]:
        """The samples of each channel, and what interrupts them."""
        runs = self._runs
        return {
            "samples": runs.samples,
            "gaps": runs.gaps,
            "overlapping": runs.overlapping,
            "missing": runs.missing,
        }
