"""What every runtime offers, and what it asks of the execution that owns it."""

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
from cql.executor.operators.stage.operator import Operator
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.times import Times
from cql.executor.udf.errors import TIME_LIMIT


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that failed: row ``row`` of ``morsel``, at ``site`` of ``operator``. ``fatal``: no
    policy may leave it out. ``place``: where it stands in the order of depth first; beyond the
    morsel's serial number it need only be told if rows do not come in that order. ``feed`` is the
    input that the morsel was cut off, and where its block begins; None: the one whose turn it
    is."""

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
        """What an operator says of the morsel that it has returned ERROR for."""
        site = operator.error(morsel)
        fatal = operator.is_fatal(morsel) or site.kind == TIME_LIMIT
        place = place or (int(morsel.words[SERIAL]),)
        return cls(operator.name, site, morsel, failing_row(morsel), fatal, place, feed)


@contextlib.contextmanager
def at_work(name: str) -> Iterator[None]:
    """While Python computes something for the operator of that name, which is told with what takes
    too long."""
    try:
        yield
    except TimeLimitError as error:
        error.message = f"{error.message}, in {name}"
        raise


def failing_row(morsel: Morsel) -> int:
    """The row of a morsel that an operator has returned ERROR for."""
    row = int(morsel.words[DETAIL_ROW])
    if chosen := int(morsel.words[CHOSEN]):
        row = int(view_address(chosen, np.dtype(np.int32), row + 1)[row])
    return row


class Handler(Protocol):
    def deliver(self, morsel: Morsel, sink: int, feed: int | None = None) -> None:
        """Takes the output of operator ``sink``; the morsel is used again afterwards. ``feed``: the
        input that it came from; None: the one whose turn it is."""
        ...

    def failed(self, failure: Failure) -> None:
        """Raises, or returns to leave the row out."""
        ...


class Runtime(Protocol):
    """Drives a graph. The same operators run under every runtime, and give the same answer."""

    @property
    def calls(self) -> int:
        """Operator calls so far."""
        ...

    def times(self) -> Times | None:
        """What has been measured so far; None unless it was made to (``timed``)."""
        ...

    def admit(self, morsel: Morsel, edge: Edge) -> None:
        """Takes one morsel of a source; it may be used again once ``go_on`` says so."""
        ...

    def go_on(self, serial: int = INFINITY) -> bool:
        """Takes what was admitted further; to be called until all of it is through, at the least up
        to that serial number (False), so that what is delivered meanwhile, which may be much, can
        be read. Returns early when asked."""
        ...

    def admit_next(self, scheduler: InputScheduler) -> bool:
        """Takes the next morsels of those whose turn it is; returns early when something was
        delivered, between two morsels or, where that is much, within one, and when asked. False:
        the input whose turn it is has no block (any more), or no morsel is cut for now
        (``scheduler``)."""
        ...

    def is_through(self, serial: int) -> bool:
        """Whether no operator has work to do with what was admitted up to that serial number."""
        ...

    def quiesce(self) -> None:
        """Returns when no operator has work to do; results may still be gathered."""
        ...

    def drain(self) -> None:
        """Returns when nothing that was admitted is left inside."""
        ...

    def rebind(self) -> None:
        """Kernels were rebuilt: read their addresses again (only when drained)."""
        ...

    def ask(self, *, halt: bool = False) -> None:
        """Who drives the runtime is wanted: it comes back soon. ``halt``: all other threads leave
        at the end of their slices, and ``rest`` follows. Safe from any thread."""
        ...

    @property
    def workers(self) -> int:
        """Threads that share what there is to do."""
        ...

    def change(self, workers: int) -> None:
        """As many from now on."""
        ...

    def rest(self) -> None:
        """All other threads end, at the end of their slices, until this is driven again."""
        ...

    def close(self) -> None:
        """The run is over: threads end."""
        ...


class Alone:
    """Of a runtime without threads of its own: it comes back after each block."""

    workers = 1

    def ask(self, *, halt: bool = False) -> None: ...

    def change(self, workers: int) -> None: ...

    def rest(self) -> None: ...

    def close(self) -> None: ...
