"""Cells by definition: the windows that a row lies in, and those that it finds closed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cql.executor.kernels.ingest import cells as kernel

#: RANGE, SLIDE, OFFSET, and whether the windows cumulate.
WINDOWS = [(10, 10, 0, 0), (50, 10, 3, 0), (25, 10, -4, 0), (7, 20, 5, 0), (40, 10, 3, 1)]


def windows_of(time: int, window: tuple[int, int, int, int]) -> list[tuple[int, int]]:
    """The number and the end of each window that holds ``time``."""
    range_, slide, offset, cumulates = window
    found = []
    near = (time - offset) // slide
    for number in range(near - range_ // slide - 2, near + range_ // slide + 2):
        begin, end = number * slide, number * slide + range_
        if cumulates:
            begin, end = number * slide // range_ * range_, (number + 1) * slide
        if begin <= time - offset < end:
            found.append((number, end + offset))
    return found


@pytest.mark.parametrize("window", WINDOWS)
def test_cells_of_rows(window: tuple[int, int, int, int], seed: int) -> None:
    rng = random.Random(f"{seed} {window}")
    times = [n + rng.randrange(-30, 31) - 400 for n in range(900)]
    marks = [kernel.NOWHERE] * 5
    while len(marks) < len(times):
        marks.append(max(marks[-1], times[len(marks)] - rng.randrange(40)))
    most = 1 << 40
    times[700] = most * 2  # beyond what a window holds
    words = np.array([*window, most], np.int64)
    valid = np.array([rng.random() > 0.05 for _ in times], np.uint8)
    made, held = np.empty(len(times), np.int64), np.empty(len(times), np.uint8)
    kernel.cells(np.array(times), valid, np.array(marks), words, made, held)
    assert held.tolist() == [v and abs(t) < most for v, t in zip(valid, times, strict=True)]
    meant: dict[object, int] = {}
    for k, (time, mark) in enumerate(zip(times, marks, strict=True)):
        found = windows_of(time, window) if held[k] else []
        if found:
            closed = sum(end <= mark for _, end in found)
            assert meant.setdefault((tuple(found), closed), made[k]) == made[k]
        else:
            assert made[k] == kernel.NOWHERE
    assert len(set(meant.values())) == len(meant) > 5
