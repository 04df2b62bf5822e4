"""Figures 8 to 14 of the ordered-multicore paper."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import multicore_operators, multicore_queries, multicore_tuples
from benchmarks.figure import Figure
from benchmarks.multicore_runs import Sizes


def figures(rows: int | None = None) -> Iterator[Figure]:
    """``rows``: rows of each stream of TPCx-BB; the other runs scale in proportion."""
    sizes = Sizes.of(rows)
    yield multicore_tuples.parameters(sizes)
    yield from multicore_operators.figures(sizes)
    yield from multicore_queries.figures(sizes)
