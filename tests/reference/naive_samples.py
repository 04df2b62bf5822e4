"""Samples and segments of the reference, with their times."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

_SECOND = 1_000_000


@dataclass(frozen=True)
class Sample:
    """A sample of all channels; ``number`` counts from ``origin`` (microseconds) at the rate."""

    number: int
    origin: Fraction
    rate: Fraction
    values: tuple[Any, ...]

    def time(self, ahead: int = 0) -> int:
        """The time in microseconds, rounded down; ``ahead`` samples later."""
        return math.floor(self.exact(ahead))

    def nanoseconds(self, ahead: int = 0) -> int:
        """The same in nanoseconds."""
        return math.floor(1000 * self.exact(ahead))

    def exact(self, ahead: int = 0) -> Fraction:
        return self.origin + (self.number + ahead) * _SECOND / self.rate


class Segment(tuple[Any, ...]):
    """Samples of a channel, and when the first one was."""

    first: Sample

    def time_of(self, number: int) -> int:
        """In nanoseconds."""
        return self.first.nanoseconds(number)


def placed(x: Any, samples: Iterable[Any], skip: int = 0, up: int = 1, down: int = 1) -> Any:
    """Samples that begin at sample ``skip`` of segment ``x``, at ``up`` / ``down`` times its rate;
    the samples alone if ``x`` does not say where it begins."""
    if not isinstance(x, Segment):
        return tuple(samples)
    made = Segment(samples)
    made.first = Sample(0, x.first.exact(skip), x.first.rate * up / down, ())
    return made
