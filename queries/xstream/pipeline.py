"""LeakDetect of ``pipeline.cql``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

import cql

#: Windows from which the noise of the sensors is known.
SETTLED = 4
#: Seconds of a value of the band: eight samples at 10 kHz.
PERIOD = 0.0008


@cql.operator(
    {"leak": "int", "up": "boolean", "trans": "boolean", "time": "timestamp"},
    state={"windows": "int64", "noise": ("float64", 16)},
)
def leak_detect(state: Any, row: Any, emit: Callable[..., None], omega: float) -> None:
    """The sensor that a wave reaches first, if it has an echo, as that of a leak has."""
    peaks, places, echoes = np.array(row[1:], np.float64).reshape(3, -1)
    noise = state.noise[: len(peaks)]
    loud = peaks > omega * noise
    if state.windows < SETTLED or not loud.any():
        state.windows += 1
        noise += (peaks - noise) / state.windows
        return
    arrival = np.where(loud, places, np.inf)
    first = int(arrival.argmin())
    above, below = arrival[first - 1 : first], arrival[first + 1 : first + 2]
    emit(
        leak=first if echoes[first] > omega * noise[first] else None,
        up=bool((above < below).all()) if above.size and below.size else None,
        trans=bool(loud.all()),
        time=row.window_start + timedelta(seconds=PERIOD * places[first]),
    )
