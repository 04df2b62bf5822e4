"""Other arrival orders of the same rows, which must give the same answer.

Rows with different event times change places as far as the watermark allows. No row becomes a late
row; the late rows stay in place and keep their row watermarks. Rows of the same time keep their
order, which is their sequence.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

from tests.reference.naive_progress import Column, believed
from tests.support.fuzz.random_cases import Case
from tests.support.fuzz.random_data import SCHEMAS, TABLES, Stream

#: Patterns of windows over sequence numbers, of functions that depend on arrival if the query has
#: no window, and of windows.
_BY_ARRIVAL = re.compile(r"\bROWS \d+ SLIDE\b")
_IN_ORDER = re.compile(
    r"\b(first|last|max_by|min_by|array_agg|collect_set|string_agg|listagg|time_weighted_avg)\("
)
_WINDOW = re.compile(r"\[|TABLE\(|session_window|SESSION\(|window\(")


def permutable(case: Case) -> bool:
    """Whether the answer must not depend on arrival.

    Slack and MAX ADVANCE depend on earlier rows. Per-key watermarks are not covered here."""
    text = case.shape.text
    in_order = bool(_IN_ORDER.search(text)) and not _WINDOW.search(text)
    return not (
        _BY_ARRIVAL.search(text)
        or in_order
        or "slack" in case.settings
        or any(s.max_advance is not None or s.by is not None for s in case.streams)
        or any(s.name in TABLES for s in case.streams)
    )


def permuted(case: Case, rng: random.Random) -> Case | None:
    """The case with the rows of its streams in another order.

    None if there is no other order, or if later rows have to confirm an advance."""
    streams = tuple(replace(s, rows=_shuffled(s, rng)) for s in case.streams)
    moved = any(a.rows != b.rows for a, b in zip(streams, case.streams, strict=True))
    if not moved or any(map(_has_to_confirm, (*streams, *case.streams))):
        return None
    return replace(case, streams=streams)


def _has_to_confirm(stream: Stream) -> bool:
    """Whether an advance is above MAX ADVANCE.

    >>> [_has_to_confirm(Stream("n", ((1,), (1 + far,)), 2)) for far in (2000, 2001)]
    [False, True]
    """
    most = believed(SCHEMAS[stream.name][0].type, stream.progress)
    times = [row[0] for row in stream.rows if row[0] is not None]
    highest = accumulate(times, max)
    return most is not None and any(b - a > most for a, b in zip(highest, times[1:], strict=False))


def _shuffled(stream: Stream, rng: random.Random) -> tuple[tuple[Any, ...], ...]:
    """
    >>> made = random.Random(6)
    >>> rows = [(t, k) for k, t in enumerate((1, 2, 3, 3, 9, 2, 10, 11))]
    >>> [t for t, *_ in _shuffled(Stream("n", tuple(rows), 2), made)]
    [3, 2, 1, 3, 9, 2, 10, 11]
    """
    found: list[tuple[Any, ...]] = []
    for fixed, rows in _segments(stream):
        found += rows if fixed else _within(rows, stream.slack, rng)
    return tuple(found)


def _segments(stream: Stream) -> Iterator[tuple[bool, list[tuple[Any, ...]]]]:
    """Pairs (fixed, rows): runs of movable rows, and between them the rows that stay.

    Punctuations, rows without a time, and late rows stay. No row may pass a late row, because the
    row watermark of the late row would change."""
    marker = SCHEMAS[stream.name].find("b") if stream.marked else None
    known = Column(stream.progress, None)
    held: list[tuple[Any, ...]] = []
    for row in stream.rows:
        time, mark = row[0], known.mark
        promise = marker is not None and bool(row[marker])
        if promise or time is None or time < mark:
            yield False, held
            yield True, [row]
            held = []
        else:
            held.append(row)
        if time is not None:
            known.punctuate(time) if promise else known.row(time)
    yield False, held


def _within(rows: list[tuple[Any, ...]], slack: int, rng: random.Random) -> list[tuple[Any, ...]]:
    """The rows in a random order in which no row moves back by more than the slack."""
    same: dict[int, Iterator[tuple[Any, ...]]] = {}
    by_time: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        by_time[row[0]].append(row)
    same = {time: iter(those) for time, those in by_time.items()}
    keyed = sorted((row[0] + rng.randint(0, slack), rng.random(), row[0]) for row in rows)
    return [next(same[time]) for _, _, time in keyed]
