"""Requests to a running query from outside: pause, use more or fewer workers, quiesce at a certain
serial number. The thread that drives the query serves them between two morsels."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from cql.base.waiting import get
from cql.errors import RunError
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.run.worker_scaling import Scaling, cores
from cql.executor.runtimes.protocol import Runtime
from cql.executor.state.checkpoint import Checkpoint


class Control:
    """``workers`` share the work of the query; ``finds`` makes the run search for their best
    number. Requests are safe from any thread and from signal handlers; all other methods belong to
    the thread that drives the query."""

    def __init__(
        self, driver: str, workers: int, clock: Callable[[], float], *, finds: bool = False
    ) -> None:
        self._driver = driver
        self._alone: str | None = None
        self._scaling = Scaling(cores(), workers) if finds else None
        self.workers = workers
        self._clock = clock
        self._idle = 0.0  # seconds in which the driver did not drive: paused, or away
        self._paused = self._halted = False  # halted: threads were requested to leave
        self._stop = False
        self._led: list[Control] = []
        self._bell: SimpleQueue[None] = SimpleQueue()  # a signal handler may interrupt its put
        self._cut: tuple[int, Callable[[], None]] | None = None
        self._saves: tuple[int, Callable[[Checkpoint], None]] | None = None
        self._saves_from = 0  # serial number of the first morsel that a late checkpoint holds
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
        self._request_return(halt=True)
        for control in self._led:
            control.pause()

    def resume(self) -> None:
        self._paused = False
        self._bell.put(None)
        for control in self._led:
            control.resume()

    def stop(self) -> None:
        self._stop = True
        self._bell.put(None)
        self._request_return()
        for control in self._led:
            control.stop()

    def share(self, workers: int) -> None:
        """Uses ``workers`` workers from now on; 0 searches for the best number. Raises RunError if
        the runtime has only one thread."""
        if self._driver != "ordered":
            raise RunError(
                f"this query runs {self._driver.replace('_', ' ')}, in one thread",
                hint="SET runtime = ordered before it starts",
            )
        self._scaling = None if workers else Scaling(cores(), self.workers)
        self.workers = workers or self.workers
        self._request_return()

    def report(self) -> str | None:
        """The number of workers found and the reason, or the reason for having one worker; None if
        there is nothing to report."""
        if self._alone is not None:
            return f"it ran depth first: {self._alone}"
        return self._scaling.report() if self._scaling is not None else None

    def _request_return(self, *, halt: bool = False) -> None:
        if (runtime := self._runtime) is not None:
            runtime.request_return(halt=halt)

    def lead(self, control: Control) -> None:
        """Makes a run, which has not begun, pause, resume and stop with this one."""
        self._led.append(control)
        if self._stop:
            control.stop()
        if self._paused:
            control.pause()

    # -- of the driver -----------------------------------------------------------------------------

    def begin(self, runtime: Runtime, scheduler: InputScheduler) -> None:
        """Starts the run; earlier requests are served first."""
        self._scheduler, self._runtime = scheduler, runtime
        self._hold()
        self.attend()

    def alone(self, why: str) -> None:
        """Falls back to depth first, whatever was requested."""
        self._driver, self._alone = "depth_first", why
        self._scaling, self.workers = None, 1

    def end(self) -> None:
        self._runtime = self._scheduler = None

    def quiesce_at(self, serial: int, then: Callable[[], None]) -> None:
        """Calls ``then`` when all morsels below ``serial`` have left and no later one has been
        admitted. State and results are then those of depth first after the same number of morsels,
        under any number of workers (a consistent cut)."""
        self._cut = serial, then
        self._hold()

    def checkpoint_at(self, serial: int, then: Callable[[Checkpoint], None]) -> None:
        """Requests a checkpoint when all morsels below ``serial`` have left and no later one has
        been admitted (``Execution.request_checkpoint``); replaces an earlier request."""
        self._saves = serial, then
        self._hold()
        self._request_return()

    def wants_checkpoint(self, serial: int) -> bool:
        """Whether a checkpoint is due before the morsel ``serial`` is admitted."""
        return (saves := self._saves) is not None and serial >= saves[0]

    def postpone(self, serial: int) -> None:
        """Lets the morsel ``serial`` be cut although a checkpoint is due."""
        self._saves_from = serial + 1
        self._hold()

    def give(self, made: Checkpoint) -> None:
        """Hands over the checkpoint that was due."""
        assert self._saves is not None
        (_, then), self._saves = self._saves, None
        self._hold()
        then(made)

    def _hold(self) -> None:
        """Lets no morsel be cut before a request is served."""
        if (scheduler := self._scheduler) is not None:
            cut, saves = self._cut, self._saves
            due = [] if cut is None else [cut[0]]
            due += [] if saves is None else [max(saves[0], self._saves_from)]
            scheduler.hold(min(due, default=INFINITY))

    def reach(self) -> None:
        """Called before a morsel is admitted: serves ``quiesce_at`` if its point is reached."""
        if self._cut is None or self._scheduler is None or self._scheduler.serial < self._cut[0]:
            return
        assert self._runtime is not None
        self._runtime.drain()
        (_, then), self._cut = self._cut, None
        self._hold()
        then()

    def away(self, seconds: float) -> None:
        """Excludes ``seconds`` in which the consumer of results kept the driver."""
        self._idle += seconds

    def attend(self) -> None:
        """Serves pauses and changes of the number of workers, between two morsels."""
        runtime = self._runtime
        assert runtime is not None
        if self._halted:
            began, self._halted = self._clock(), False
            runtime.rest()
            while self._paused and not self._stop:
                get(self._bell)
            self._idle += self._clock() - began
        if (scaling := self._scaling) is not None and self._scheduler is not None:
            self.workers = scaling.note(self._scheduler.sequence, self._clock() - self._idle)
        runtime.change(self.workers)
