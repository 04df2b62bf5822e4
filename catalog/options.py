"""OPTIONS (…) and keyword options as typed values; unknown options are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from os import PathLike, fspath
from typing import Any

from cql.errors import CatalogError, did_you_mean

_UNITS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
}
_DURATION = re.compile(r"\s*(\d+)(?:\.(\d{1,6}))?\s*([a-zA-Z]+)\s*")
_TRUTH = {"true": True, "yes": True, "on": True, "1": True}
_TRUTH |= {"false": False, "no": False, "off": False, "0": False}


class Options:
    """Reads options one by one; ``done`` raises CatalogError for those that were not read."""

    def __init__(self, given: Mapping[str, Any], what: str) -> None:
        self._given = {k.lower(): v for k, v in given.items()}
        self._known: set[str] = set()
        self._what = what

    def _take(self, name: str) -> Any:
        self._known.add(name)
        return self._given.get(name)

    def fail(self, name: str, wanted: str) -> CatalogError:
        return CatalogError(
            f"option {name} of {self._what} is {self._given.get(name)!r}", hint=f"give {wanted}"
        )

    def has(self, name: str) -> bool:
        return self._take(name) is not None

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.fail(name, "a text")
        return value

    def character(self, name: str, default: str, *, none: bool = False) -> str:
        """One character; with ``none`` also the empty text."""
        value = self.text(name, default)
        assert value is not None
        value = {"\\t": "\t", "tab": "\t"}.get(value, value)
        if len(value) != 1 and not (none and value == ""):
            raise self.fail(name, "one character" + ", or '' for none" * none)
        return value

    def paths(self, name: str) -> tuple[str, ...]:
        value = self._take(name)
        if isinstance(value, str | PathLike):
            return (str(fspath(value)),)
        if (
            isinstance(value, Sequence)
            and value
            and all(isinstance(v, str | PathLike) for v in value)
        ):
            return tuple(str(fspath(v)) for v in value)
        if value is None:
            raise CatalogError(f"{self._what} needs the option path", hint="path 'folder/or/file'")
        raise self.fail(name, "a path, or a list of paths")

    def texts(self, name: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        """A list, or one text with commas."""
        value = self._take(name)
        if value is None:
            return tuple(default)
        if isinstance(value, str):
            return tuple(v.strip() for v in value.split(","))
        if isinstance(value, Sequence) and all(isinstance(v, str) for v in value):
            return tuple(value)
        raise self.fail(name, "a text, or a list of texts")

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._take(name)
        if value is None:
            return default
        truth = _TRUTH.get(str(value).strip().lower())
        if truth is None:
            raise self.fail(name, "true or false")
        return truth

    def integer(self, name: str, default: int | None = None, *, least: int = 0) -> int | None:
        value = self._take(name)
        if value is None:
            return default
        try:
            number = int(str(value).replace("_", ""))
        except ValueError:
            number = least - 1
        if isinstance(value, bool) or number < least or number >= 2**63:
            raise self.fail(name, f"a whole number from {least}")
        return number

    def number(self, name: str, default: float, *, least: float, most: float) -> float:
        value = self._take(name)
        if value is None:
            return default
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = least - 1
        if not least <= number <= most:
            raise self.fail(name, f"a number from {least:g} to {most:g}")
        return number

    def duration(self, name: str, default: int = 0) -> int:
        """Microseconds, from ``'5 seconds'`` or a timedelta."""
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, timedelta):
            micros = value // timedelta(microseconds=1)
        else:
            micros = parse_duration(value) if isinstance(value, str) else -1
        if micros < 0:
            raise self.fail(name, "a duration such as '5 seconds' or '250 ms'")
        return micros

    def instant(self, name: str, default: int | None = None) -> int | None:
        """Microseconds since 1970 UTC, from ISO text (UTC unless the text has a zone), a datetime
        or a number of microseconds."""
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value.strip())
            except ValueError:
                raise self.fail(name, "a time such as '2024-01-01T00:00:00Z'") from None
        if not isinstance(value, datetime):
            raise self.fail(name, "a time such as '2024-01-01T00:00:00Z'")
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    def done(self) -> None:
        for name in self._given:
            if name not in self._known:
                raise CatalogError(
                    f"{self._what} has no option {name}",
                    hint=did_you_mean(name, self._known, what="its options are"),
                )


def parse_duration(text: str) -> int:
    """Microseconds of ``5 seconds``, ``1.5 min``; -1 if it is not a duration."""
    matched = _DURATION.fullmatch(text)
    if matched is None:
        return -1
    whole, fraction, unit = matched.groups()
    size = _UNITS.get(unit.lower()) or _UNITS.get(unit.lower().removesuffix("s"))
    if size is None:
        return -1
    return int(whole) * size + int((fraction or "0").ljust(6, "0")) * size // 1_000_000
