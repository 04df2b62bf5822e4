"""The bounds of windows that have numbers, as text for kernels: which windows hold a time, and from
when to when a window is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cql.window import Window, WindowKind

if TYPE_CHECKING:
    from cql.executor.operators.stage import StageWriter


@dataclass(frozen=True, slots=True)
class Spans:
    """Of a sliding or a cumulating window. Arguments and results are expressions of int64."""

    writer: StageWriter
    window: Window

    @property
    def slide(self) -> str:
        """From the end of one window to that of the next (CUMULATE's step)."""
        return self._constant("slide", self.window.slide or 0)

    @property
    def range(self) -> str:
        return self._constant("range", self.window.range or 0)

    @property
    def offset(self) -> str:
        return self._constant("offset", self.window.offset)

    @property
    def steps(self) -> str:
        """Windows of CUMULATE that begin together."""
        return self._constant("steps", (self.window.range or 0) // (self.window.slide or 1))

    def _constant(self, name: str, value: int) -> str:
        return self.writer.window_constant(name, value)

    @property
    def cumulates(self) -> bool:
        return self.window.kind is WindowKind.CUMULATE

    def first(self, t: str) -> str:
        """The first window that holds ``t``: of those that end after it."""
        if self.cumulates:
            return f"({t} - {self.offset}) // {self.slide}"
        return f"({t} - {self.offset} - {self.range}) // {self.slide} + 1"

    def last(self, t: str) -> str:
        if self.cumulates:
            return self.last_with(self.first(t))
        return f"({t} - {self.offset}) // {self.slide}"

    def last_with(self, w: str) -> str:
        """The last window of CUMULATE that begins with window ``w``."""
        return f"({w}) // {self.steps} * {self.steps} + {self.steps} - 1"

    def start(self, w: str) -> str:
        if self.cumulates:
            return f"{w} // {self.steps} * {self.range} + {self.offset}"
        return f"{w} * {self.slide} + {self.offset}"

    def end(self, w: str) -> str:
        if self.cumulates:
            return f"({w} + 1) * {self.slide} + {self.offset}"
        return f"{w} * {self.slide} + {self.offset} + {self.range}"

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
