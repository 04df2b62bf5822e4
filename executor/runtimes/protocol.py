"""What every runtime offers, and what it asks of the execution that owns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cql.executor.expressions import ErrorSite
from cql.executor.graph import Edge
from cql.executor.turns import Turns
from cql.executor.unit import Unit


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that failed: row ``row`` of ``unit``, at ``site`` of ``operator``. ``fatal``: no policy
    may leave it out."""

    operator: str
    site: ErrorSite
    unit: Unit
    row: int
    fatal: bool


class Handler(Protocol):
    def deliver(self, unit: Unit) -> None:
        """Takes the plan's output; the unit is used again afterwards."""
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

    def admit(self, unit: Unit, edge: Edge) -> None:
        """Takes one unit of a source; it may be used again once ``go_on`` says so."""
        ...

    def go_on(self) -> bool:
        """Takes what was admitted last further; to be called until it is through (False), so that
        what is delivered meanwhile, which may be much, can be read."""
        ...

    def admit_next(self, turns: Turns) -> bool:
        """Takes the next units of those whose turn it is; returns early when something was
        delivered, between two units or, where that is much, within one. False: the input whose turn
        it is has no block (any more)."""
        ...

    def settle(self) -> None:
        """Returns when no operator has work to do; results may still be gathered."""
        ...

    def drain(self) -> None:
        """Returns when nothing that was admitted is left inside."""
        ...

    def rebind(self) -> None:
        """Kernels were rebuilt: read their addresses again (only when drained)."""
        ...
