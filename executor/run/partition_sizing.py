"""The default number of partitions: the smallest number that gives each worker its share of the
rows, measured on a sample of keys (ordered-multicore paper, §4: finer partitions even out skew, but
no partition is smaller than its heaviest key)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cql.executor.morsel.ingest import Feed, errors_at
from cql.executor.operators.flow.ownership import hash_of, partition_numbers
from cql.executor.strings.dictionary import Dictionary
from cql.planner.nodes.physical import Physical, WidAggregateExec
from cql.planner.nodes.physical.numbers import NodeNumbers, SourceNumbers
from cql.planner.placement.partitioning import origins

#: Rows sampled from the first block of an input, and the least sample that is used.
SAMPLE, LEAST = 1 << 14, 1 << 10
#: Bound on the largest partition, relative to a worker's share; the most partitions.
EVEN, MOST = 1.2, 64
#: A finer split is worthwhile only if it shrinks the largest partition below this factor.
_BETTER = 0.95


@dataclass(frozen=True, slots=True)
class Measured:
    """``parts`` partitions; the largest held the share ``largest`` of a sample of ``rows`` rows."""

    parts: int
    largest: float
    rows: int

    @property
    def why(self) -> str:
        many = f"{self.parts} partition{'' if self.parts == 1 else 's'}"
        return f"{many}: the largest had {self.largest:.0%} of {self.rows:,} rows, a sample"


def partitions(counts: Sequence[int], workers: int) -> Measured:
    """Chooses the number of partitions. ``counts`` has the sampled rows per partition for the
    finest split, into ``workers`` · 2ⁿ partitions by hash; merging two neighbours gives the next
    coarser split. Chooses the smallest number whose largest partition has at most ``EVEN`` times a
    worker's share. If heavy keys prevent that, chooses the smallest number whose largest partition
    is within ``_BETTER`` of the best."""
    rows = max(sum(counts), 1)
    found = []
    while len(counts) >= workers:
        found.append(Measured(len(counts), max(counts) / rows, sum(counts)))
        if len(counts) % 2:
            break
        counts = [a + b for a, b in zip(counts[::2], counts[1::2], strict=True)]
    found.reverse()
    for measured in found:
        if measured.largest <= EVEN / workers:
            return measured
    least = min(measured.largest for measured in found)
    return next(m for m in found if m.largest * _BETTER <= least)


def measure(
    roots: Sequence[Physical],
    feeds: Sequence[Feed],
    dictionary: Dictionary,
    workers: int,
    split: frozenset[int],
) -> dict[int, Measured]:
    """The number of partitions per aggregate in ``split``, by the number of its node. Aggregates
    with computed keys, or with keys from an input without a block yet, are left out. ``feeds`` are
    those of the sources, in their order."""
    nodes, order = NodeNumbers(*roots), SourceNumbers(*roots)
    chosen = (nodes.node(number) for number in sorted(split))
    aggregates = [n for n in chosen if isinstance(n, WidAggregateExec) and not n.partitioning]
    _load(aggregates, feeds, order)
    found = {}
    for node in aggregates:
        counts = _counts(node, feeds, order, dictionary, _finest(workers))
        if counts is not None and counts.sum() >= LEAST:
            found[nodes[node]] = partitions(counts.tolist(), workers)
    return found


def _load(
    aggregates: Sequence[WidAggregateExec], feeds: Sequence[Feed], order: SourceNumbers
) -> None:
    """Loads the first blocks of the bounded inputs that keys come from; no consumer waits for
    their results row by row."""
    wanted = {order[s] for n in aggregates for key in n.keys for s, _ in origins(n.input, key)}
    for number in sorted(wanted):
        feed = feeds[number]
        source = feed.source
        if source.relation.bounded and not (feed.lag or source.ahead or feed.gives_bursts):
            with errors_at(source):
                feed.load(None)


def _finest(workers: int) -> int:
    parts = workers
    while 2 * parts <= MOST:
        parts *= 2
    return parts


def _counts(
    node: WidAggregateExec,
    feeds: Sequence[Feed],
    order: SourceNumbers,
    dictionary: Dictionary,
    parts: int,
) -> npt.NDArray[np.int64] | None:
    """Sampled rows per partition; None if keys are computed or their block is missing."""
    keys = [origins(node.input, key) for key in node.keys]
    if not all(keys) or len({len(places) for places in keys}) > 1:
        return None
    types = [key.type for key in node.keys]
    counts = np.zeros(parts, np.int64)
    for places in zip(*keys, strict=True):  # the columns of one input
        loaded = feeds[order[places[0][0]]].pending
        if loaded is None or len({order[source] for source, _ in places}) > 1:
            return None
        columns = [(loaded.data[c][:SAMPLE], loaded.masks[c]) for _, c in places]
        hashed = hash_of(columns, types, dictionary)
        counts += np.bincount(partition_numbers(hashed, parts), minlength=parts)
    return counts
