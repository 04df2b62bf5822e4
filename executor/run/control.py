"""What is asked of a running query from outside: to pause, to share its work among more or fewer
workers, to let nothing be inside at a certain point. The thread that drives the query attends to it
between two morsels."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from cql.errors import RunError
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.run.worker_scaling import Scaling, cores
from cql.executor.runtimes.protocol import Runtime


class Control:
    """``workers`` share the work of the query; ``finds``: to begin with, it finds out how many.
    Requests are safe from any thread and from signal handlers; the rest is for the thread that
    drives the query."""

    def __init__(
        self, driver: str, workers: int, clock: Callable[[], float], *, finds: bool = False
    ) -> None:
        self._driver = driver
        self._alone: str | None = None
        self._scaling = Scaling(cores(), workers) if finds else None
        self.workers = workers
        self._clock = clock
        self._idle = 0.0  # seconds in which somebody else kept the driver
        self._paused = self._halted = False  # halted: threads were told to leave
        self._stop = False
        self._bell: SimpleQueue[None] = SimpleQueue()  # its put may interrupt itself
        self._cut: tuple[int, Callable[[], None]] | None = None
        self._runtime: Runtime | None = None
        self._scheduler: InputScheduler | None = None

    # -- requests ----------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self._paused

    @property
    def must_stop(self) -> bool:
        return self._stop

    def pause(self) -> None:
        self._paused = self._halted = True
        self._ask(halt=True)

    def resume(self) -> None:
        self._paused = False
        self._bell.put(None)

    def stop(self) -> None:
        self._stop = True
        self._bell.put(None)
        self._ask()

    def share(self, workers: int) -> None:
        """So many workers from now on; 0: as many as raise throughput. RunError if only one thread
        can be at work."""
        if self._driver != "ordered":
            raise RunError(
                f"this query runs {self._driver.replace('_', ' ')}, in one thread",
                hint="SET runtime = ordered before it starts",
            )
        self._scaling = None if workers else Scaling(cores(), self.workers)
        self.workers = workers or self.workers
        self._ask()

    def told(self) -> str | None:
        """How many workers it came to, and why, if that was found out; or why it has one."""
        if self._alone is not None:
            return f"it ran depth first: {self._alone}"
        return self._scaling.told() if self._scaling is not None else None

    def _ask(self, *, halt: bool = False) -> None:
        if (runtime := self._runtime) is not None:
            runtime.ask(halt=halt)

    # -- of the driver -----------------------------------------------------------------------------

    def begin(self, runtime: Runtime, scheduler: InputScheduler) -> None:
        """The run begins; what was asked before is attended to first."""
        self._scheduler, self._runtime = scheduler, runtime
        if self._cut is not None:
            scheduler.hold(self._cut[0])
        self.attend()

    def alone(self, why: str) -> None:
        """It runs depth first, whatever was asked for."""
        self._driver, self._alone = "depth_first", why
        self._scaling, self.workers = None, 1

    def end(self) -> None:
        self._runtime = self._scheduler = None

    def quiesce_at(self, serial: int, then: Callable[[], None]) -> None:
        """Calls ``then`` when all morsels below that serial number have left and none has been
        admitted since: what state and results are then is what depth first has after as many
        morsels, whoever is at work (a consistent cut)."""
        self._cut = serial, then
        if self._scheduler is not None:
            self._scheduler.hold(serial)

    def reach(self) -> None:
        """Before a morsel is admitted: whether the point of ``quiesce_at`` has come."""
        if self._cut is None or self._scheduler is None or self._scheduler.serial < self._cut[0]:
            return
        assert self._runtime is not None
        self._runtime.drain()
        (_, then), self._cut = self._cut, None
        self._scheduler.hold(INFINITY)
        then()

    def away(self, seconds: float) -> None:
        """The driver was kept by somebody who takes results."""
        self._idle += seconds

    def attend(self) -> None:
        """Between two morsels."""
        runtime = self._runtime
        assert runtime is not None
        if self._halted:
            began, self._halted = self._clock(), False
            runtime.rest()
            while self._paused and not self._stop:
                self._bell.get()
            self._idle += self._clock() - began
        if (scaling := self._scaling) is not None and self._scheduler is not None:
            self.workers = scaling.note(self._scheduler.sequence, self._clock() - self._idle)
        runtime.change(self.workers)
