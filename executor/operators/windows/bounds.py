"""The bounds of numbered windows as kernel text: which windows hold a time, and the start and the
end of a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cql.base.window import Window, WindowKind
from cql.base.zones import DAY

if TYPE_CHECKING:
    from cql.executor.operators.stage.stage_kernel import StageWriter


@dataclass(frozen=True, slots=True)
class Spans:
    """The bounds of a sliding or a cumulating window. Arguments and results are int64 expressions.

    Lengths and distances are in units, counted from the start of window 0: units of the window
    attribute, or days for windows with a time zone."""

    writer: StageWriter
    window: Window

    @property
    def slide(self) -> str:
        """The distance between the ends of successive windows (CUMULATE's step), in units."""
        return self.length("slide", self.window.slide or 0)

    @property
    def range(self) -> str:
        return self.length("range", self.window.range or 0)

    @property
    def steps(self) -> str:
        """The number of CUMULATE's windows that begin together."""
        return self._constant("steps", (self.window.range or 0) // (self.window.slide or 1))

    def length(self, name: str, value: int) -> str:
        """The constant of a length, in units; ``value`` is in units of the attribute."""
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
        """The time at which a unit begins."""
        if self.window.zone is not None:
            days = self.writer.kernel.zone(self.window.zone, self.window.offset)
            return f"zone_start({unit}, {days})"
        return f"({unit} + {self._constant('offset', self.window.offset)})"

    def first(self, t: str) -> str:
        """The first window that ends after ``t`` (and after ``Window.since``): the first one that
        holds ``t``, if any does."""
        first = self._first(t)
        return first if self.since is None else f"max({first}, {self._first(self.since)})"

    def _first(self, t: str) -> str:
        if self.cumulates:
            return f"{self.unit(t)} // {self.slide}"
        return f"({self.unit(t)} - {self.range}) // {self.slide} + 1"

    @property
    def since(self) -> str | None:
        """``Window.since``; None if all windows get rows."""
        return None if self.window.since is None else self._constant("since", self.window.since)

    def elsewhere(self, t: str) -> str:
        """The number of windows that hold ``t`` and end at or before ``Window.since``."""
        assert self.since is not None
        behind = f"min({self._first(self.since)}, {self.last(t)} + 1)"
        return f"max(0, {behind} - ({self._first(t)}))"

    def last(self, t: str) -> str:
        if self.cumulates:
            return self.last_with(self._first(t))
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
        """Lines that set ``ws`` and ``we``, the start and the end of window ``w``."""
        return f"ws = {self.start('w')}", f"we = {self.end('w')}"

    def punctuation(self) -> tuple[str, ...]:
        """Lines that set ``punct_w0`` to ``punct_w2`` to the bounds of the first window that can
        still come at watermark ``value``."""
        return (
            f"w = {self.first('value')}",
            f"punct_w0 = {self.start('w')}",
            f"punct_w1 = {self.end('w')}",
            "punct_w2 = punct_w1 - 1",
        )
