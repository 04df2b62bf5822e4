"""Tests of many cases run a sample of these by default: ``@pytest.mark.sampled``.

Most of a test's time is the compilation of its kernels, so a mark stands where the cases of a test
take seconds together. A case is drawn by the hash of its name: other cases of the test do not
change the choice. Another ``--seed`` draws others; four seeds in a row draw all.
"""

from __future__ import annotations

from zlib import crc32

import pytest

#: One case in so many runs; ``@pytest.mark.sampled(12)`` names another number.
PART = 4
ALL_CASES = "--all-cases"
#: Options that ask for more than a sample, or for tests by name.
_FOR_ALL = (ALL_CASES, "--full", "--rewrite", "keyword")


def draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the cases of ``sampled`` tests that are not drawn. Every test keeps a case. With
    ``--all-cases``, ``--full``, ``--rewrite``, ``-k``, or the name of a test in the command, all
    cases stay."""
    if any(config.getoption(name) for name in _FOR_ALL) or any("::" in arg for arg in config.args):
        return
    seed = int(config.getoption("--seed"))
    parts: dict[str, int] = {}
    cases: dict[str, list[str]] = {}
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            test = item.nodeid.partition("[")[0]
            parts[test] = mark.args[0] if mark.args else PART
            cases.setdefault(test, []).append(item.nodeid)
    left: set[str] = set()
    for test, names in cases.items():
        left |= set(names) - drawn(names, parts[test], seed)
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]


def drawn(names: list[str], part: int, seed: int) -> set[str]:
    """The names of a test's cases that are drawn: those whose hash has the seed's remainder by
    ``part``, or if there is none, those that are next to it."""
    distance = {name: (crc32(name.encode()) - seed) % part for name in names}
    least = min(distance.values())
    return {name for name in names if distance[name] == least}
