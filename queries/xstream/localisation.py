"""Multilaterate of ``localisation.cql``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

import cql

#: Where the nodes are, in metres.
NODES = np.array([(0.0, 0.0), (12.0, 0.0), (12.0, 9.0), (0.0, 9.0)])
#: Metres that sound goes in a second.
SPEED = 340.0
_PAIRS = np.array(list(combinations(range(len(NODES)), 2))).T
_ROUNDS = 50


@cql.operator({"time": "timestamp", "x": "double", "y": "double", "residual": "double"})
def multilaterate(
    state: Any, row: Any, emit: Callable[..., None], rate: float, most: float
) -> None:
    """The place whose distances to the nodes fit the delays of each pair of nodes best, in metres;
    none if the root of the mean square of what is left over is above ``most``. ``heard``: when
    the sound was loudest at the first node, in nanoseconds."""
    further = np.array(row[2:], np.float64) * SPEED / rate
    place, rest = _fitted(further)
    residual = float(np.sqrt(np.mean(rest**2)))
    if residual > most:
        return
    seconds = row.heard / 1e9 - np.hypot(*(place - NODES[0])) / SPEED
    time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    emit(time=time, x=float(place[0]), y=float(place[1]), residual=residual)


def _fitted(
    further: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The least squares of ``further``, by how many metres the second node of each pair is further
    away, and what is left over (Levenberg-Marquardt)."""
    place, damping = NODES.mean(axis=0), 1.0
    rest, slope = _misfit(place, further)
    for _ in range(_ROUNDS):
        step = np.linalg.solve(slope.T @ slope + damping * np.eye(2), -slope.T @ rest)
        then, turned = _misfit(place + step, further)
        if then @ then < rest @ rest:
            place, rest, slope, damping = place + step, then, turned, damping / 4
        else:
            damping *= 4
    return place, rest


def _misfit(
    place: npt.NDArray[np.float64], further: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What is left over at a place, and its derivatives by x and y."""
    offsets = place - NODES
    distances = np.maximum(np.hypot(*offsets.T), 1e-6)
    near, far = _PAIRS
    directions = offsets / distances[:, None]
    return distances[far] - distances[near] - further, directions[far] - directions[near]
