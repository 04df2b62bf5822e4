"""PIPELINE of the XStream paper with numpy alone, for ``benchmarks.signals``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.workloads import Answer, sums
from queries.xstream import pipeline
from queries.xstream.make_vibrations import RATE, SENSORS, WAVES, vibrations
from queries.xstream.pipeline import leak_detect

__all__ = ["OMEGA", "RATE", "SENSORS", "WINDOW", "leak_detect"]

WINDOW, OMEGA = 512, 8.0
_LEVELS = 3


def text() -> str:
    """The query."""
    return Path(pipeline.__file__).with_suffix(".cql").read_text("utf-8")


def sensors(length: int) -> npt.NDArray[np.int16]:
    """What the sensors hear in ``length`` samples each, in whole windows: a wave in every eighth
    window. Shape: (SENSORS, samples)."""
    length -= length % WINDOW
    waves = [
        WAVES[k % len(WAVES)]._replace(start=WINDOW * (6 + 8 * k) + 40)
        for k in range((length // WINDOW + 1) // 8)
    ]
    return vibrations(length, waves)


def leaks_of(heard: npt.NDArray[np.int16]) -> Answer:
    """The waves that reach the sensors."""
    windows = heard.reshape(SENSORS, -1, WINDOW).transpose(1, 0, 2)
    state: Any = SimpleNamespace(windows=0, noise=np.zeros(SENSORS))
    found: list[int | None] = []
    times: list[int] = []
    start = datetime(1970, 1, 1, tzinfo=UTC)

    def emit(*, leak: int | None, up: bool | None, trans: bool, time: datetime) -> None:
        found.append(leak)
        times.append(round((time - start) / timedelta(microseconds=1)))

    for k, window in enumerate(windows):
        energy = _energy(window)
        places = energy.argmax(axis=1)
        rests = [one[at + 2 :] for one, at in zip(energy, places, strict=True)]
        echoes = [(rest * np.hanning(len(rest))).max() if len(rest) else None for rest in rests]
        begin = start + timedelta(seconds=k * WINDOW / RATE)
        leak_detect.function(
            state, _Row((begin, *energy.max(axis=1), *places, *echoes)), emit, OMEGA
        )
    return answer(found, times)


def answer(leaks: Sequence[int | None], times: Any) -> Answer:
    """The number of waves, and sums of their sensors and times."""
    return sums([-1 if leak is None else leak for leak in leaks], times)


class _Row(tuple[Any, ...]):
    """A row of the operator's table."""

    @property
    def window_start(self) -> Any:
        return self[0]


def _energy(window: npt.NDArray[np.int16]) -> npt.NDArray[np.float64]:
    """The squares of the details of the third level of the Haar transform of each sensor."""
    means = window.astype(np.float64)
    for _ in range(_LEVELS):
        first, second = means[:, ::2], means[:, 1::2]
        details, means = (first - second) / np.sqrt(2), (first + second) / np.sqrt(2)
    squares: npt.NDArray[np.float64] = details * details
    return squares
