"""The runtimes for tests: settings under which every query gives the same rows.

All tests of operators, compaction, late rows and bad rows take their runtimes from here."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

from cql.base.settings import Settings as SessionSettings
from cql.session.session import Session

Settings = dict[str, Any]
Choice = TypeVar("Choice")

#: The runtimes of one thread.
ONE_THREAD = ("depth_first", "fifo", "fifo_slice", "run_to_completion")
#: The ordered runtime, with one, some and many partitions for operators with keys.
ORDERED: tuple[Settings, ...] = tuple(
    {"runtime": "ordered", "partitions": partitions, "workers": workers}
    for partitions in (1, 4, 100)
    for workers in (1, 2)
)
RUNTIMES: tuple[Settings, ...] = (*({"runtime": name} for name in ONE_THREAD), *ORDERED)


def apply(session: Session, *settings: Settings) -> None:
    """Sets all settings of the session."""
    for name, value in (pair for some in settings for pair in some.items()):
        session.set(name, value)


def named(settings: Settings) -> str:
    """The settings as a part of a test's name."""
    return "-".join(map(str, settings.values()))


#: By name: ``fifo``, …, ``ordered-4-2`` (4 partitions, 2 workers).
BY_NAME = {named(settings): settings for settings in RUNTIMES}


@contextmanager
def by_default(settings: Settings) -> Iterator[None]:
    """In this context, the settings are the defaults of each new session and of ``RESET ALL``."""
    before = SessionSettings.__init__.__defaults__
    names = [field.name for field in fields(SessionSettings)]
    values = dict(zip(names, before, strict=True)) | settings
    SessionSettings.__init__.__defaults__ = tuple(values.values())
    try:
        yield
    finally:
        SessionSettings.__init__.__defaults__ = before


def share(
    choices: Sequence[Choice], case: int, count: int, seed: int = 0, *, full: bool = False
) -> list[Choice]:
    """``count`` of the choices for the test case number ``case``; all choices if ``full``.

    ``seed`` decides the order in which the choices are dealt out, so that consecutive cases use all
    choices."""
    dealt = list(choices)
    if full or count >= len(dealt):
        return dealt
    random.Random(seed).shuffle(dealt)
    return [dealt[(case * count + k) % len(dealt)] for k in range(count)]


OPERATORS: dict[str, dict[str, Any]] = {
    "wid": {"window_operator": "wid"},
    "panes": {"window_operator": "panes"},
    "two_stacks": {"window_operator": "two_stacks"},
    "subtract": {"window_operator": "subtract"},
    "buffered": {"window_operator": "buffered"},
    "adaptive": {"window_operator": "wid", "adaptive_windows": True},
    **{
        f"two_level, {flush}": {
            "window_operator": "two_level",
            "flush": flush,
            "flush_every": 2,
            "low_level_entries": 2,
        }
        for flush in ("at_once", "slow", "lazy", "in_order_slow")
    },
}
