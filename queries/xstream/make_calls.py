"""Calls of an animal and other sounds between four microphones, for ``localisation.cql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from queries.xstream.localisation import NODES, SPEED

RATE = 16_000
#: Seconds of a call and of thunder, and of the crack of a twig.
_CALL, _CRACK = 0.032, 0.002


class Sound(NamedTuple):
    """A sound whose middle is at ``time``, in seconds, at a place in metres. A ``knock`` is at the
    microphone of the nearest node, and no other node hears it."""

    time: float
    x: float
    y: float
    kind: str = "call"


#: Three calls, and three sounds that are none.
SOUNDS = (
    Sound(0.6, 3.2, 4.1),
    Sound(1.1, 8.0, 2.0, "thunder"),
    Sound(1.6, 10.4, 7.3),
    Sound(2.1, 5.0, 6.5, "crack"),
    Sound(2.6, 0.5, 0.5, "knock"),
    Sound(3.1, 6.9, -1.5),
)


def recordings(
    samples: int, sounds: Sequence[Sound] = SOUNDS, seed: int = 1
) -> npt.NDArray[np.int16]:
    """The samples of each node, a row for each. Their clock is the same."""
    made = np.random.default_rng(seed).normal(0, 20, (len(NODES), samples))
    seconds = np.arange(samples) / RATE
    for sound in sounds:
        distances = np.hypot(*(NODES - (sound.x, sound.y)).T)
        for node, distance in enumerate(distances):
            if sound.kind == "knock" and node != distances.argmin():
                continue
            made[node] += (
                8_000 * _wave(sound.kind, seconds - sound.time - distance / SPEED) / (1 + distance)
            )
    return made.astype(np.int16)


def _wave(kind: str, seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A sound at ``seconds`` from its middle. A call rises from 2 to 4 kHz."""
    length = _CRACK if kind == "crack" else _CALL
    swell = np.where(np.abs(seconds) < length / 2, np.cos(np.pi * seconds / length) ** 2, 0)
    hertz = {"call": 3_000 + 1_000 * seconds / length, "thunder": 150, "crack": 500}.get(kind, 800)
    wave: npt.NDArray[np.float64] = swell * np.sin(2 * np.pi * hertz * seconds)
    return wave
