"""The running functions of a stream (``kernels.flow.running``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.base.uninterruptible import load_module
from cql.executor.kernels.flow import running as kernel
from cql.executor.kernels.morsel_layout import PHASE, ROWS
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, StateStore
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import RunningCall
from cql.planner.nodes.physical import RunningExec, SignalInput

_KINDS = {
    "fir": kernel.FIR,
    "iir": kernel.IIR,
    "sta_lta": kernel.STA_LTA,
    "recursive_sta_lta": kernel.RECURSIVE_STA_LTA,
    "cfar": kernel.CFAR,
    "trigger": kernel.TRIGGER,
}
_FIXED = {"recursive_sta_lta": 3, "cfar": 3, "trigger": 1}


def _size(call: RunningCall) -> int:
    """The numbers of its state."""
    if call.fn == "sta_lta":
        (windows,) = call.numbers
        return 1 + sum(kernel.SUFFIXES + int(n) for n in windows)
    return _FIXED.get(call.fn, max(map(len, call.numbers)) - 1)


def _constants(call: RunningCall) -> list[float]:
    """Its constants; those of a filter are as many for each part."""
    longest = max(map(len, call.numbers))
    return [v for part in call.numbers for v in (*part, *(0.0 for _ in range(longest - len(part))))]


class RunningOperator(Operator):
    """State: the array ``state``, with the numbers of one call behind those of the other; over the
    samples of a signal also ``runs``, how far the signal is."""

    def __init__(self, name: str, node: RunningExec, workspace: Workspace) -> None:
        self.name = name
        calls = node.calls
        self._sizes = [_size(call) for call in calls]
        self._constants = [_constants(call) for call in calls]
        self.descriptor: Words = np.zeros(kernel.FIRST + kernel.CALL * len(calls), np.int64)
        self.descriptor[[kernel.WIDTH, kernel.CALLS]] = node.width, len(calls)
        for k, call in enumerate(calls):
            assert isinstance(call.value, Column)
            d = self._words(k)
            d[[kernel.KIND, kernel.VALUE]] = _KINDS[call.fn], call.value.index
            d[[kernel.OUTPUT, kernel.NULLABLE]] = (
                node.width + k,
                node.schema[node.width + k].nullable,
            )
            d[kernel.SIZE] = self._sizes[k]
        self._store = StateStore(name, workspace)
        starts = (kernel.FIRST + kernel.CALL * k for k in range(len(calls)))
        own = {at + word for at in starts for word in (kernel.NUMBERS, kernel.STATE)}
        self._store.bound = {kernel.RUNS, kernel.RUNS_AT, *own}
        self._store.resize("state", sum(self._sizes), np.float64)
        constants = [v for values in self._constants for v in values]
        self._store.resize("constants", len(constants), np.float64, Role.DERIVED)
        self._store.arrays["constants"][:] = constants
        self._schema = node.input.schema
        self._time: int | None = None
        if node.signal is not None:
            self._follow(node.signal, node.name, workspace.morsel_rows)
        self.address = int(kernel.running.address)
        self._bind()

    def _follow(self, signal: SignalInput, name: str, rows: int) -> None:
        """Follows the runs of the signal."""
        load_module("cql.executor.operators.signals.followed_runs")
        from cql.executor.operators.signals.followed_runs import WORDS, FollowedRuns

        self._time = signal.time
        self.descriptor[kernel.TIMED] = 1
        self._store.resize("runs", WORDS, np.int64)
        self._store.resize("ranges", 3 * rows, np.int64, Role.SCRATCH)
        self._runs = FollowedRuns(signal, self._store.arrays["runs"], name)

    def provide(self, morsel: Morsel) -> None:
        """Finds the runs of a morsel. Raises RunError for times that samples cannot have."""
        assert self._time is not None
        from cql.executor.operators.signals.samples import column_of, valid_in

        times = column_of(morsel, self._schema, self._time)
        valid = valid_in(morsel, self._schema, [self._time])
        found = self._runs.of(int(morsel.words[ROWS]), times, valid)
        ranges = self._store.arrays["ranges"][: 3 * len(found)].reshape(-1, 3)
        for line, (run, goes_on) in zip(ranges, found, strict=True):
            line[:] = run.first, run.first + run.samples, goes_on
        self.descriptor[kernel.RUNS] = len(found)
        morsel.words[PHASE] = 1

    def _words(self, k: int) -> Words:
        """The words of a call."""
        at = kernel.FIRST + kernel.CALL * k
        found: Words = self.descriptor[at : at + kernel.CALL]
        return found

    def _bind(self) -> None:
        """Writes the addresses of constants and state into the descriptor."""
        arrays = self._store.arrays
        state, constants = (arrays[n].ctypes.data for n in ("state", "constants"))
        for k, (size, given) in enumerate(zip(self._sizes, self._constants, strict=True)):
            self._words(k)[[kernel.NUMBERS, kernel.STATE]] = constants, state
            state, constants = state + 8 * size, constants + 8 * len(given)
        if self._time is not None:
            self.descriptor[kernel.RUNS_AT] = arrays["ranges"].ctypes.data
            self._runs.load(arrays["runs"])

    @property
    def gives_one_at_most(self) -> bool:
        return True

    @property
    def passes_rows(self) -> bool:
        return True

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self._store,)

    def snapshot(self) -> Snapshot:
        """The state; the runtime has no morsel inside."""
        return self._store.snapshot(self.descriptor)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan."""
        self._store.restore(saved, self.descriptor)
        self._bind()

    def counters(self) -> dict[str, int]:
        rows = int(self.descriptor[kernel.ROWS_SEEN])
        found = {"rows_in": rows, "rows_out": rows}
        return found if self._time is None else found | self._runs.counters()
