"""Tests of many cases run a sample of these by default: ``@pytest.mark.sampled``.

Most of a test's time is the compilation of its kernels, so a mark stands where the cases of a test
take seconds together. A case is drawn by the hash of its name: other cases of the test do not
change the choice. Another ``--seed`` draws others; four seeds in a row draw all.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import pytest

#: One case in so many runs.
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
    sampled = [item for item in items if item.get_closest_marker("sampled")]
    kept = drawn([item.nodeid for item in sampled], seed)
    left = {item for item in sampled if item.nodeid not in kept}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def drawn(names: Iterable[str], seed: int) -> set[str]:
    """The names of cases that are drawn: of each test, those whose hash has the seed's remainder,
    or if there is none, those that are next to it."""
    by_test: dict[str, list[str]] = {}
    for name in names:
        by_test.setdefault(name.partition("[")[0], []).append(name)
    kept: set[str] = set()
    for cases in by_test.values():
        distance = {case: (crc32(case.encode()) - seed) % PART for case in cases}
        least = min(distance.values())
        kept |= {case for case in cases if distance[case] == least}
    return kept
