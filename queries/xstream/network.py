"""ChooseReceivers of ``network.cql``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

import cql

RECEIVERS, SOURCES = 5, 16
#: Receivers whose errors have different causes.
CLUSTERS = 3
#: Bits of a packet.
BITS = 256
_PAIRS = np.array(list(combinations(range(RECEIVERS), 2))).T

Matrix = npt.NDArray[np.float64]


@cql.operator(
    {"source": "int"} | {f"w{k}": "double" for k in range(RECEIVERS)},
    state=dict.fromkeys(("sums", "bits"), ("float64", (SOURCES, RECEIVERS, RECEIVERS))),
)
def choose_receivers(state: Any, row: Any, emit: Callable[..., None]) -> None:
    """The weight of each receiver for a source. A receiver of each cluster is chosen; the others
    weigh so little that they count only where the chosen ones say nothing. The row has, for each
    pair of receivers, the correlation of the bits and the number of packets that both have. Older
    windows count half as much as the next one."""
    if not 0 <= row.source < SOURCES:
        raise ValueError(f"a source has a number from 0 to {SOURCES - 1}, not {row.source}")
    sums, bits = state.sums[row.source], state.bits[row.source]
    correlations, packets = np.array(row[2 : 2 + 2 * _PAIRS.shape[1]], float).reshape(2, -1)
    for total, more in ((sums, correlations), (bits, BITS * packets)):
        total /= 2
        for places in (_PAIRS, _PAIRS[::-1]):
            total[tuple(places)] += more
    agreement = np.divide(sums, bits, out=np.zeros_like(sums), where=bits > 0)
    weights = np.ones(RECEIVERS)
    hearing = bits.any(axis=1).nonzero()[0].tolist()
    for cluster in _clusters(agreement, hearing):
        others = [k for k in hearing if k not in cluster]
        best = max(cluster, key=lambda k: float(agreement[k, others].sum()))
        weights[best] += RECEIVERS - CLUSTERS
    emit(row.source, *weights.tolist())


def _clusters(agreement: Matrix, receivers: list[int]) -> list[list[int]]:
    """The receivers whose bits agree most are together: of all pairs of clusters, the one whose
    receivers agree most on average is merged until there are ``CLUSTERS``."""
    found = [[k] for k in receivers]
    while len(found) > CLUSTERS:
        pairs = combinations(range(len(found)), 2)
        a, b = max(pairs, key=lambda p: float(agreement[np.ix_(found[p[0]], found[p[1]])].mean()))
        found[a] += found.pop(b)
    return found
