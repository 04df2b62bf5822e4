"""Vibrations of a water pipe with ten sensors, for ``pipeline.cql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SENSORS = 10
RATE = 10_000
#: Samples that a wave takes from a sensor to the next one.
TRAVEL = 32
#: Samples from a wave to its echo.
ECHO = 160
_LENGTH = 16


class Wave(NamedTuple):
    """A wave that begins at sample ``start`` at a place of the pipe, in sensors from its head. It
    comes ``reach`` sensors far. A leak has an echo."""

    start: int
    place: float
    reach: float
    is_leak: bool


#: Two leaks, a valve that closes, and a knock at the pipe.
WAVES = (
    Wave(5_200, 3.3, 2.5, True),
    Wave(11_300, 0.0, 20, False),
    Wave(15_900, 7.8, 20, True),
    Wave(20_000, 5.1, 1.2, False),
)


def vibrations(samples: int, waves: Sequence[Wave] = WAVES, seed: int = 1) -> npt.NDArray[np.int16]:
    """The samples of each sensor, a row for each."""
    made = np.random.default_rng(seed).normal(0, 20, (SENSORS, samples))
    shape = 4_000 * np.hanning(_LENGTH) * np.where(np.arange(_LENGTH) % 8 < 4, 1, -1)
    for wave in waves:
        for sensor in range(SENSORS):
            distance = abs(sensor - wave.place)
            if distance > wave.reach:
                continue
            at = wave.start + round(TRAVEL * distance)
            made[sensor, at : at + _LENGTH] += shape / (1 + distance / 4)
            if wave.is_leak:
                made[sensor, at + ECHO : at + ECHO + _LENGTH] += shape / (2 + distance / 4)
    return made.astype(np.int16)
