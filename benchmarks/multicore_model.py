"""The model of the ordered runtime for ``multicore_simulation``: pipelines of tasks, and machines
with any number of workers. All times are nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from cql.executor.kernels.ordered import tables

STATELESS, SERIAL, PARTITIONED = tables.STATELESS, tables.SERIAL_ONE, tables.PARTITIONED
Nanoseconds = npt.NDArray[np.float64]
#: "We consider only markers in the 20th to 80th percentile range" (§7).
FIRST, LAST = 0.2, 0.8
HYBRID, QUEUES, SHARED = "hybrid", "partitioned", "shared"
NON_BLOCKING, LOCK_BASED = "non_blocking", "lock_based"
#: A heuristic beside the engine's: ``multicore_near.nearest``.
NEAR = "near"


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a pipeline. ``cost`` is the mean time per input, drawn with the coefficient of
    ``variation`` (0: constant, 1: exponential). ``shares`` are the shares of the partitions
    (partitioned tasks only). An input belongs to one partition (a tuple), or, if ``scattered``, has
    rows of all partitions (a morsel of many rows); each partition then takes ``fragment``
    nanoseconds besides its share of the cost. ``fetch`` is the time to get an input from a worker
    at distance 1; it grows with the tuple size. ``host``: Python runs the task, one such task at a
    time overall (serial tasks only). ``shows``: outputs show columns of inputs, which stay
    allocated meanwhile: a source has ``places`` morsels, and a serial task has ``slots``."""

    kind: int
    cost: float
    selectivity: float = 1.0
    variation: float = 0.0
    shares: Sequence[float] = ()
    scattered: bool = False
    fragment: float = 0.0
    fetch: float = 0.0
    host: bool = False
    shows: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """Workers, settings, and the times of the runtime's steps. ``choose``: a look at the scheduler.
    ``take``: taking an input, plus ``contend`` per other worker at the task (they write the same
    words). ``send``: handing an output downstream. ``lock``: acquiring a lock. ``handover``: from
    the release of a lock to its next owner. ``wake``: until a worker that found nothing looks
    again. After ``looks`` nanoseconds without work a worker sleeps, until a slice ends, a morsel
    arrives or a result is delivered; waking then takes ``rouse``.

    ``places`` of a worklist and ``slots`` of a reorder buffer are the engine's if 0. ``retries``:
    as in figure 4, a worker takes inputs without a free slot, and retries to send their outputs
    until a slot is free; otherwise such inputs are not taken (``reorder.take_input``). A morsel
    arrives every ``interval`` nanoseconds (0: all are there at the start). ``leader``: only worker
    0 admits morsels, between two slices, as in the engine, and takes ``read`` to read each. Workers
    of one ``group`` are at distance 1 from each other (0: all are), others at distance ``far``."""

    workers: int
    scheduler: str = "ct"
    worklist: str = "hybrid"
    reorder: str = "non_blocking"
    slice: float = 1e6
    window: float = 1e8
    capacity: int = 256
    places: int = 0
    slots: int = 0
    retries: bool = False
    interval: float = 0.0
    leader: bool = False
    read: float = 0.0
    choose: float = 300.0
    take: float = 50.0
    contend: float = 30.0
    send: float = 50.0
    lock: float = 20.0
    handover: float = 50.0
    wake: float = 200.0
    looks: float = inf
    rouse: float = 0.0
    group: int = 0
    far: float = 3.0

    @property
    def depth(self) -> int:
        """The ``depth`` of ``runtimes.tables.Tasks``."""
        return 1 << (2 * self.workers).bit_length()

    def distance(self, one: int, other: int) -> float:
        """The distance between two workers; external inputs (worker -1) are near to all."""
        if one == other or -1 in (one, other):
            return 0.0
        return 1.0 if not self.group or one // self.group == other // self.group else self.far


@dataclass(slots=True)
class Totals:
    """Totals of a task: inputs and outputs, busy time of workers, and the part of it in which they
    waited for a lock or a slot."""

    inputs: int = 0
    outputs: int = 0
    busy: float = 0.0
    lock_wait: float = 0.0
    slot_wait: float = 0.0

    @property
    def cost(self) -> float:
        """Nanoseconds for an input, "which includes the time for which a worker is blocked"
        (§7.3.1)."""
        return self.busy / max(self.inputs, 1)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Results of a simulation. ``entered`` and ``left`` are the times of the admitted morsels.
    ``order`` has, for each output of the last task, the number of its input. Per worker: ``busy``,
    the time in tasks, and ``idle``, the time without work."""

    entered: Nanoseconds
    left: Nanoseconds
    order: list[int]
    tasks: list[Totals]
    busy: list[float]
    idle: list[float]
    time: float

    @property
    def throughput(self) -> float:
        """Morsels per second, "the ratio of number of tuples to the total time taken to process
        them" (§7)."""
        return 1e9 * self.left.size / self.time

    @property
    def _counts(self) -> slice:
        return slice(round(FIRST * self.left.size), round(LAST * self.left.size))

    @property
    def latency(self) -> float:
        """Mean latency over the counted markers, in nanoseconds."""
        return float((self.left[self._counts] - self.entered[self._counts]).mean())

    @property
    def pace(self) -> float:
        """Morsels per second at which the counted markers left."""
        left = self.left[self._counts]
        return 1e9 * (left.size - 1) / max(float(left[-1] - left[0]), 1.0)


class Draws:
    """Random costs and partitions of the inputs of a task, by input number."""

    def __init__(self, task: Task, seed: int, number: int) -> None:
        self._task = task
        self._rng = np.random.default_rng([seed, number])
        self._costs: list[float] = []
        self._parts: list[int] = []
        self._bounds = np.cumsum(task.shares)

    def cost(self, n: int) -> float:
        s = self._task
        if not s.variation:
            return s.cost
        while n >= len(self._costs):
            shape = s.variation**-2
            self._costs += (self._rng.gamma(shape, s.cost / shape, 1024)).tolist()
        return self._costs[n]

    def fragments(self, n: int) -> list[tuple[int, float]]:
        """The partitions of an input, each with its share of the input."""
        s = self._task
        if s.scattered:
            return [(q, share) for q, share in enumerate(s.shares) if share > 0]
        while n >= len(self._parts):
            drawn = self._rng.random(1024) * self._bounds[-1]
            self._parts += np.searchsorted(self._bounds, drawn, "right").tolist()
        return [(self._parts[n], 1.0)]

    def outputs(self, n: int) -> int:
        s = self._task.selectivity
        return int((n + 1) * s + 1e-9) - int(n * s + 1e-9)
