"""The bounds of windows that have numbers, as text for kernels: which windows hold a time, and from
when to when a window is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cql.base.window import Window, WindowKind
from cql.base.zones import DAY

if TYPE_CHECKING:
    from cql.executor.operators.stage.stage_kernel import StageWriter


@dataclass(frozen=True, slots=True)
class Spans:
    """Of a sliding or a cumulating window. Arguments and results are expressions of int64.

    Windows are counted in units from where window 0 begins: those of the window attribute, or, for
    windows of a time zone, days."""

    writer: StageWriter
    window: Window

    @property
    def slide(self) -> str:
        """From the end of one window to that of the next (CUMULATE's step), in units."""
        return self.length("slide", self.window.slide or 0)

    @property
    def range(self) -> str:
        return self.length("range", self.window.range or 0)

    @property
    def steps(self) -> str:
        """Windows of CUMULATE that begin together."""
        return self._constant("steps", (self.window.range or 0) // (self.window.slide or 1))

    def length(self, name: str, value: int) -> str:
        """A length, given in units of the attribute."""
        return self._constant(name, value // DAY if self.window.zone is not None else value)

    def _constant(self, name: str, value: int) -> str:
        return self.writer.window_constant(name, value)

    @property
    def cumulates(self) -> bool:
        return self.window.kind is WindowKind.CUMULATE

    def unit(self, t: str) -> str:
        """The number of the unit that holds ``t``."""
        if self.window.zone is not None:
            days = self.writer.kernel.zone(self.window.zone, self.window.offset)
            return f"zone_day({t}, {days})"
        return f"({t} - {self._constant('offset', self.window.offset)})"

    def at(self, unit: str) -> str:
        """When a unit begins."""
        if self.window.zone is not None:
            days = self.writer.kernel.zone(self.window.zone, self.window.offset)
            return f"zone_start({unit}, {days})"
        return f"({unit} + {self._constant('offset', self.window.offset)})"

    def first(self, t: str) -> str:
        """The first window that holds ``t``: of those that end after it."""
        if self.cumulates:
            return f"{self.unit(t)} // {self.slide}"
        return f"({self.unit(t)} - {self.range}) // {self.slide} + 1"

    def last(self, t: str) -> str:
        if self.cumulates:
            return self.last_with(self.first(t))
        return f"{self.unit(t)} // {self.slide}"

    def last_with(self, w: str) -> str:
        """The last window of CUMULATE that begins with window ``w``."""
        return f"({w}) // {self.steps} * {self.steps} + {self.steps} - 1"

    def start(self, w: str) -> str:
        if self.cumulates:
            return self.at(f"{w} // {self.steps} * {self.range}")
        return self.at(f"{w} * {self.slide}")

    def end(self, w: str) -> str:
        if self.cumulates:
            return self.at(f"({w} + 1) * {self.slide}")
        return self.at(f"{w} * {self.slide} + {self.range}")

    def bounds(self) -> tuple[str, str]:
        """Set ``ws`` and ``we`` of window ``w``."""
        return f"ws = {self.start('w')}", f"we = {self.end('w')}"

    def promise(self) -> tuple[str, ...]:
        """Set ``punct_w0`` to ``punct_w2`` to the bounds of the first window that can still come
        when progress has reached ``value``."""
        return (
            f"w = {self.first('value')}",
            f"punct_w0 = {self.start('w')}",
            f"punct_w1 = {self.end('w')}",
            "punct_w2 = punct_w1 - 1",
        )
