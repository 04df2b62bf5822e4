"""Packets that five receivers of a radio network hear, for ``network.cql``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queries.xstream.network import BITS, RECEIVERS

#: Bits a second.
RATE = 1_000_000
#: Bits by which a receiver hears a packet earlier or later, and microseconds by which it says so.
SLIP, JITTER = 2, 4
#: The first bits of each packet: as samples, a one is 1 and a zero is -1.
SYNC_WORD = np.array([1 if bit == "1" else -1 for bit in f"{0xD391F02B:032b}"], np.int8)
#: The receivers that hear the same interference, for packets of each source.
TOGETHER = (((0, 1, 2), (3,), (4,)), ((0,), (1,), (2, 3, 4)))
#: Of packets: a share that interference meets at a cluster, and one that a receiver misses. Of
#: bits: a share that is wrong at one receiver.
_INTERFERENCE, _LOSS, _WRONG = 0.25, 0.05, 0.0005
#: Microseconds in which one packet is sent.
SPACE = 400


class Capture(NamedTuple):
    """``air``: the samples of each receiver, a row for each; 0 is silence. ``heard``: a row for
    each packet that a receiver hears, with the time, the receiver and the source. ``sent``: the
    bits of each packet as samples. ``exact``: for each packet, the receivers that hear it without
    an error."""

    air: npt.NDArray[np.int8]
    heard: pa.Table
    sent: npt.NDArray[np.int8]
    exact: npt.NDArray[np.bool_]


def capture(packets: int, seed: int = 1) -> Capture:
    """What the receivers hear of ``packets`` packets."""
    rng = np.random.default_rng(seed)
    starts = SPACE * np.arange(1, packets + 1) + rng.integers(0, SPACE - BITS - 60, packets)
    sources = rng.integers(0, len(TOGETHER), packets)
    sent = rng.choice(np.array([-1, 1], np.int8), (packets, BITS))
    sent[:, : len(SYNC_WORD)] = SYNC_WORD

    wrong = rng.random((packets, RECEIVERS, BITS)) < _WRONG
    for number, source in enumerate(sources):
        for cluster in TOGETHER[source]:
            if rng.random() < _INTERFERENCE:
                begin, length = rng.integers(0, BITS), rng.integers(24, 64)
                met = np.arange(BITS) - begin
                wrong[number, list(cluster)] ^= (
                    (met >= 0) & (met < length) & (rng.random(BITS) < 0.5)
                )
    received = rng.random((packets, RECEIVERS)) >= _LOSS
    bits = np.where(wrong, -sent[:, None], sent[:, None]) * received[:, :, None]

    air = np.zeros((RECEIVERS, SPACE * (packets + 3)), np.int8)
    slips = rng.integers(-SLIP, SLIP + 1, (packets, RECEIVERS))
    at = (starts[:, None] + slips)[:, :, None] + np.arange(BITS)
    for number in range(RECEIVERS):
        air[number, at[:, number]] = bits[:, number]

    packet, receiver = received.nonzero()
    times = starts[packet] + rng.integers(-JITTER, JITTER + 1, len(packet))
    order = times.argsort(kind="stable")
    columns = {
        "ts": pa.array(times[order], pa.timestamp("us", "UTC")),
        "receiver": receiver[order].astype(np.int32),
        "source": sources[packet][order].astype(np.int32),
    }
    return Capture(air, pa.table(columns), sent, received & ~wrong.any(axis=2))
