"""Network monitoring of the XStream paper with numpy alone, for ``benchmarks.signals``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.workloads import Answer, sums
from queries.xstream import network
from queries.xstream.make_packets import RATE, SYNC_WORD, capture
from queries.xstream.network import BITS, RECEIVERS, SOURCES, choose_receivers

__all__ = ["RATE", "choose_receivers", "packets_of", "received", "text", "whole"]

#: Microseconds, which are bits: from a packet to the end of its session, and of a window.
_GAP, _WINDOW = 16, 50_000
#: Bits around a packet that are taken, and those of them that are compared.
_BEFORE, _AROUND, _ALIGNED = 36, 296, 288
_MOST_DELAY = 4
#: Where a packet can begin in the bits that are compared.
_FIRST, _LAST = 10, 22
#: Packets that are made; more are the same again.
_PIECE = 5_000

Bits = npt.NDArray[np.int8]


def text() -> str:
    """The query."""
    return Path(network.__file__).with_suffix(".cql").read_text("utf-8")


def whole(packets: int) -> int:
    """As many of ``packets`` as are whole pieces."""
    return packets - packets % _PIECE if packets > _PIECE else packets


def received(packets: int) -> tuple[Bits, pa.Table]:
    """The bits of each receiver, and what the receivers hear of ``packets`` packets: a number that
    is whole pieces."""
    pieces = max(packets // _PIECE, 1)
    made = capture(packets // pieces)
    length = made.air.shape[1]
    times = made.heard["ts"].cast(pa.int64()).to_numpy()
    later = np.arange(pieces)[:, None] * length + times
    columns = {
        "ts": pa.array(later.ravel(), pa.timestamp("us", "UTC")),
        "receiver": np.tile(made.heard["receiver"].to_numpy(), pieces),
        "source": np.tile(made.heard["source"].to_numpy(), pieces),
    }
    return np.tile(made.air, pieces), pa.table(columns)


def packets_of(air: Bits, heard: pa.Table) -> Answer:
    """The packets that are rebuilt from what receivers heard."""
    state = SimpleNamespace(
        sums=np.zeros((SOURCES, RECEIVERS, RECEIVERS)),
        bits=np.zeros((SOURCES, RECEIVERS, RECEIVERS)),
    )
    times = heard["ts"].cast(pa.int64()).to_numpy()
    sources = heard["source"].to_numpy()
    known = [(_ends(times[sources == k]), k) for k in np.unique(sources).tolist()]
    rebuilt = []
    for window in range(int(times[-1] + _GAP) // _WINDOW + 1):
        for ends, source in known:
            bounds = np.searchsorted(ends, (window * _WINDOW, (window + 1) * _WINDOW))
            inside = ends[slice(*bounds)]
            if len(inside):
                votes = _votes(_aligned(air, inside), state, source)
                rebuilt.append((inside, votes))
    ends, votes = (np.concatenate(parts) for parts in zip(*rebuilt, strict=True))
    return answer(ends, votes)


def answer(known: Any, votes: Any) -> Answer:
    """The number of packets, and sums of their times and of the votes for their bits."""
    return sums(known, (votes @ np.arange(1, BITS + 1)).astype(np.int64))


def _ends(times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The ends of the sessions of a source."""
    ends: npt.NDArray[np.int64] = times[np.append(np.diff(times) > _GAP, True)] + _GAP
    return ends


def _aligned(air: Bits, known: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """For each packet and receiver, the bits that are aligned with those of the first receiver that
    has the packet."""
    copies = air[:, (known - _BEFORE)[:, None] + np.arange(_AROUND)].swapaxes(0, 1).astype(float)
    first = copies.any(axis=2).argmax(axis=1)
    reference = copies[np.arange(len(copies)), first]
    sums = [
        np.einsum(
            "ni,nri->nr",
            reference[:, max(-lag, 0) : _AROUND - max(lag, 0)],
            copies[:, :, max(lag, 0) : _AROUND - max(-lag, 0)],
        )
        for lag in range(-_MOST_DELAY, _MOST_DELAY + 1)
    ]
    starts = np.argmax(sums, axis=0)
    return np.take_along_axis(copies, starts[:, :, None] + np.arange(_ALIGNED), axis=2)


def _votes(copies: npt.NDArray[np.float64], state: Any, source: int) -> npt.NDArray[np.float64]:
    """The votes for the bits of the packets of a window."""
    has = copies.any(axis=2).astype(float)
    pairs = np.triu_indices(RECEIVERS, 1)
    correlations = np.einsum("nri,nsi->rs", copies, copies, optimize=True)[pairs]
    weights: list[float] = []
    row = _Row((None, source, *correlations, *(has.T @ has)[pairs]))
    choose_receivers.function(state, row, lambda _, *given: weights.extend(given))
    votes = np.einsum("r,nri->ni", weights, copies)
    found = [votes[:, k : k + len(SYNC_WORD)] @ SYNC_WORD for k in range(_FIRST, _LAST + 1)]
    starts = _FIRST + np.argmax(found, axis=0)
    return np.take_along_axis(votes, starts[:, None] + np.arange(BITS), axis=1)


class _Row(tuple[Any, ...]):
    """A row of the operator's table."""

    @property
    def source(self) -> Any:
        return self[1]
