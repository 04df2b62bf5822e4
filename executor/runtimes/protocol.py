"""The protocols between a runtime and the execution that owns it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cql.base.call_timeout import TimeLimitError
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.graph.graph import Edge
from cql.executor.kernels.morsel_layout import CHOSEN, DETAIL_ROW, INFINITY, SERIAL
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import Operator
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.times import Times
from cql.executor.state.store import Snapshot
from cql.executor.udf.errors import TIME_LIMIT


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that failed: row ``row`` of ``morsel``, at ``site`` of ``operator``. ``fatal``: no
    policy may leave the row out. ``place``: its position in depth-first order; the serial number of
    the morsel suffices if failures are reported in that order. ``feed``: the input from which the
    morsel was cut and the stream position at which its block begins; None: the current input of the
    input scheduler."""

    operator: str
    site: ErrorSite
    morsel: Morsel
    row: int
    fatal: bool
    place: tuple[int, ...]
    feed: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        operator: Operator,
        morsel: Morsel,
        place: tuple[int, ...] = (),
        feed: tuple[int, int] | None = None,
    ) -> Failure:
        """The failure of a morsel for which an operator has returned ERROR."""
        site = operator.error(morsel)
        fatal = operator.is_fatal(morsel) or site.kind == TIME_LIMIT
        place = place or (int(morsel.words[SERIAL]),)
        return cls(operator.name, site, morsel, failing_row(morsel), fatal, place, feed)


@contextlib.contextmanager
def at_work(name: str) -> Iterator[None]:
    """A context in which Python works for operator ``name``; adds the name to the message of a
    TimeLimitError."""
    try:
        yield
    except TimeLimitError as error:
        error.message = f"{error.message}, in {name}"
        raise


def failing_row(morsel: Morsel) -> int:
    """The row of a morsel for which an operator has returned ERROR; if rows of the morsel are
    CHOSEN, its number among all rows."""
    row = int(morsel.words[DETAIL_ROW])
    if chosen := int(morsel.words[CHOSEN]):
        row = int(view_address(chosen, np.dtype(np.int32), row + 1)[row])
    return row


class Handler(Protocol):
    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        """Takes a morsel of results of operator ``sink``; the runtime reuses the morsel afterwards.
        ``feed``: the input that the results come from; None: the current input of the input
        scheduler."""
        ...

    def failed(self, failure: Failure) -> None:
        """Handles a failed row: raises an error, or returns, which leaves the row out."""
        ...


class Runtime(Protocol):
    """Drives a graph. The same operators run under every runtime and give the same results."""

    @property
    def calls(self) -> int:
        """The number of operator calls so far."""
        ...

    def times(self) -> Times | None:
        """The times measured so far; None unless the runtime was made with ``timed``."""
        ...

    def admit(self, morsel: Morsel, edge: Edge) -> None:
        """Admits one morsel of a source; the caller may reuse it once ``go_on`` returns False."""
        ...

    def go_on(self, serial: int = INFINITY) -> bool:
        """Continues with the admitted morsels. Returns False when all morsels up to serial number
        ``serial`` are through. Returns True earlier, when results were delivered, so that the
        caller can read them, or when asked to (``request_return``); the caller then calls again."""
        ...

    def admit_next(self, scheduler: InputScheduler) -> bool:
        """Admits and runs the next morsels of the input scheduler. Returns True when results were
        delivered (between two morsels, or within a morsel that gives many results), or when asked
        to (``request_return``). Returns False when the current input has no block, or when the
        scheduler cuts no morsel for now."""
        ...

    def is_through(self, serial: int) -> bool:
        """Whether no operator has work left with the morsels up to serial number ``serial``."""
        ...

    def quiesce(self) -> None:
        """Runs until no operator has work; gathered results may remain undelivered."""
        ...

    def drain(self) -> None:
        """Runs until no operator has work and all gathered results are delivered."""
        ...

    def give_up(self) -> None:
        """Delivers results that were gathered before the failure of the run, which is closed next:
        it runs no operator."""
        ...

    def rebind(self) -> None:
        """Reads the addresses of kernels again after they were rebuilt; only when drained."""
        ...

    def request_return(self, *, halt: bool = False) -> None:
        """Makes the call of the driving thread return soon. ``halt``: all other threads also leave
        at the end of their slices; the caller calls ``rest`` next. Safe from any thread."""
        ...

    @property
    def workers(self) -> int:
        """The number of threads that share the work."""
        ...

    def change(self, workers: int) -> None:
        """Changes the number of threads that share the work."""
        ...

    def rest(self) -> None:
        """Ends all other threads, at the end of their slices. They start again when the runtime is
        driven again."""
        ...

    def snapshot(self) -> Snapshot:
        """What later results depend on; only when drained."""
        ...

    def restore(self, saved: Snapshot) -> None:
        """Continues with the snapshot of any runtime over the same operators."""
        ...

    def close(self) -> None:
        """Ends the run and all other threads."""
        ...


class Alone:
    """The methods of a runtime without threads of its own, whose calls return after each block
    anyway, and whose queues are empty when it is drained."""

    workers = 1

    def give_up(self) -> None: ...

    def request_return(self, *, halt: bool = False) -> None: ...

    def change(self, workers: int) -> None: ...

    def rest(self) -> None: ...

    def snapshot(self) -> Snapshot:
        return Snapshot({}, np.zeros(0, np.int64))

    def restore(self, saved: Snapshot) -> None: ...

    def close(self) -> None: ...
