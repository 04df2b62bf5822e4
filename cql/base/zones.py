"""The days of a time zone, not all of 24 hours, as a table that kernels can read too.

Day *d* (counted from 1970-01-01) begins at the first instant whose local date is *d* or later. Day
*d* ends where day *d + 1* begins. So days follow each other without gaps, even where clocks go back
over midnight. Instants are microseconds UTC.

Between two changes of the clock, local time is UTC plus a constant. ``instants`` are the beginnings
of these stretches, ``offsets`` their constants in microseconds. ``firsts`` is the last day begun
before each stretch (a day that has begun does not begin again).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

DAY = 86_400_000_000
_SECOND = 1_000_000
#: The table holds the clock changes between these years; outside, the first and the last offset
#: hold for ever.
FIRST_YEAR, LAST_YEAR = 1850, 2200
#: Days between two probes for a change; a probe finds every change unless the offset returns to its
#: old value within the stride.
_STRIDE = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = -(2**63)


@dataclass(frozen=True, slots=True)
class ZoneDays:
    """Days of a zone that begin ``shift`` microseconds after midnight."""

    instants: tuple[int, ...]
    offsets: tuple[int, ...]
    firsts: tuple[int, ...]

    def day(self, instant: int) -> int:
        """The number of the day that holds ``instant``."""
        at = bisect_right(self.instants, instant) - 1
        return max((instant + self.offsets[at]) // DAY, self.firsts[at])

    def start(self, day: int) -> int:
        """The first instant of ``day``, in the first stretch that reaches the day. A day that the
        zone skipped begins and ends where the next day begins."""
        at = bisect_left(self.firsts, day) - 1
        return max(day * DAY - self.offsets[at], self.instants[at])


@lru_cache(maxsize=64)
def days_of(zone: str, shift: int = 0) -> ZoneDays:
    """The days of an IANA zone (``Europe/Prague``). Raises ValueError for other names."""
    changes = _changes(zone)
    instants, offsets, firsts = [], [], []
    reached = -(2**62) // DAY
    for k, (instant, offset) in enumerate(changes):
        moved = offset - shift
        instants.append(instant)
        offsets.append(moved)
        firsts.append(reached)
        if k + 1 < len(changes):
            reached = max(reached, (changes[k + 1][0] - 1 + moved) // DAY)
    return ZoneDays(tuple(instants), tuple(offsets), tuple(firsts))


@lru_cache(maxsize=64)
def _changes(zone: str) -> tuple[tuple[int, int], ...]:
    """Pairs (instant, offset): from the instant on, local time is UTC plus the offset, both in
    microseconds."""
    import zoneinfo

    try:
        info = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"no time zone is called {zone}") from error

    def offset(second: int) -> int:
        found = (_EPOCH + timedelta(seconds=second)).astimezone(info).utcoffset()
        assert found is not None
        return found // timedelta(microseconds=1)

    low = int(datetime(FIRST_YEAR, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(LAST_YEAR, 1, 1, tzinfo=UTC).timestamp())
    before = offset(low)
    found = [(_NEVER, before)]
    while low < end:
        high = low + _STRIDE * 86_400
        while before != offset(high):  # the first change in the stride
            a, b = low, high
            while b - a > 1:
                middle = (a + b) // 2
                if offset(middle) == before:
                    a = middle
                else:
                    b = middle
            low, before = b, offset(b)
            found.append((b * _SECOND, before))
        low = high
    return tuple(found)
