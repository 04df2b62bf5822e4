"""Network monitoring (``queries/xstream/network.cql``): packets that are rebuilt from copies with
wrong bits, as a plain model does it, under several runtimes and from a checkpoint."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import cql
from cql.errors import RunError
from cql.session.session import Session
from queries.xstream.make_packets import JITTER, RATE, SLIP, SPACE, SYNC_WORD, Capture, capture
from queries.xstream.network import BITS, CLUSTERS, RECEIVERS
from tests.support.paths import QUERIES
from tests.support.run_checkpoints import plan_of, stop_and_continue
from tests.support.runtimes import RUNTIMES, apply

TEXT = (QUERIES / "xstream" / "network.cql").read_text("utf-8")
#: Microseconds, which are bits: from a packet to the end of its session, and of a window.
GAP, WINDOW = 16, 50_000
#: Bits around a packet that are taken, and those of them that are compared.
BEFORE, AROUND, ALIGNED = 36, 296, 288
Samples = np.ndarray[Any, np.dtype[Any]]
#: The time and the source of a packet, and the votes for its bits.
Rebuilt = tuple[int, int, list[float]]


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False, functions=QUERIES / "xstream" / "network.py") as made:
        made.on_notice = lambda text: None  # under the ordered runtime: it runs depth first
        yield made


def _declare(session: Session, made: Capture) -> None:
    air = pa.table({f"r{k}": samples for k, samples in enumerate(made.air)})
    session.create_stream("air", air, rate=RATE, replace=True)
    session.create_stream("heard", made.heard, ordered_by="ts", replace=True)


def _found(session: Session) -> list[Rebuilt]:
    query: Any = session.sql(TEXT)
    table = query.to_arrow().sort_by("known")
    known = table["known"].cast(pa.int64()).to_pylist()
    return list(zip(known, table["source"].to_pylist(), table["bits"].to_pylist(), strict=True))


def _expected(made: Capture) -> list[Rebuilt]:
    """The packets by plain Python over numpy's arrays."""
    found: list[Rebuilt] = []
    sums, bits = (np.zeros((2, RECEIVERS, RECEIVERS)) for _ in range(2))
    packets = [(known, source, _aligned(made.air, known)) for known, source in _packets(made)]
    for window in sorted({known // WINDOW for known, _, _ in packets}):
        for source in range(2):
            inside = [p for p in packets if p[0] // WINDOW == window and p[1] == source]
            if not inside:
                continue
            sums[source] /= 2
            bits[source] /= 2
            for _, _, copies in inside:
                has = copies.any(axis=1)
                sums[source] += copies @ copies.T
                bits[source] += BITS * np.outer(has, has)
            weights = _weights(sums[source], bits[source])
            found += [(known, source, _rebuilt(weights @ copies)) for known, _, copies in inside]
    return sorted(found)


def _packets(made: Capture) -> Iterator[tuple[int, int]]:
    """The end of the session of each packet, and its source."""
    last: dict[int, int] = {}
    for row in made.heard.to_pylist():
        at, source = round(row["ts"].timestamp() * 1e6), row["source"]
        if source in last and at - last[source] > GAP:
            yield last[source] + GAP, source
        last[source] = at
    for source, at in last.items():
        yield at + GAP, source


def _aligned(air: Samples, known: int) -> Samples:
    """The copies of a packet, aligned with the first one."""
    copies = air[:, known - BEFORE : known - BEFORE + AROUND].astype(int)
    lead = next(copy for copy in copies if copy.any())
    most = 2 * SLIP
    starts = [most + _delay(lead, copy, most) for copy in copies]
    return np.array([c[at : at + ALIGNED] for c, at in zip(copies, starts, strict=True)])


def _delay(x: Samples, y: Samples, most: int) -> int:
    sums = np.correlate(y, x, "full")[len(x) - 1 - most : len(x) + most]
    return int(sums.argmax()) - most


def _weights(sums: Samples, bits: Samples) -> list[int]:
    """3 for one receiver of each cluster, 1 for the others."""
    pairs = [(a, b) for a in range(RECEIVERS) for b in range(RECEIVERS) if a != b]
    agreement = {(a, b): sums[a, b] / bits[a, b] if bits[a, b] else 0.0 for a, b in pairs}
    hearing = sorted({a for a, b in pairs if bits[a, b]})
    clusters = [(k,) for k in hearing]
    while len(clusters) > CLUSTERS:
        likeness = [
            (np.mean([agreement[a, b] for a in one for b in other]), -k, one, other)
            for k, (one, other) in enumerate(combinations(clusters, 2))
        ]
        _, _, one, other = max(likeness)
        clusters[clusters.index(one)] = one + other
        clusters.remove(other)
    weights = [1] * RECEIVERS
    for cluster in clusters:
        scores = [sum(agreement[k, j] for j in hearing if j not in cluster) for k in cluster]
        weights[cluster[int(np.argmax(scores))]] = 3
    return weights


def _rebuilt(votes: Samples) -> list[float]:
    """The votes from the sync word on."""
    first = BEFORE - GAP - JITTER - 3 * SLIP
    sums = [
        int(votes[k : k + len(SYNC_WORD)] @ SYNC_WORD)
        for k in range(first, first + 2 * (JITTER + SLIP) + 1)
    ]
    start = first + int(np.argmax(sums))
    return [float(v) for v in votes[start : start + BITS]]


def _exact(found: list[Rebuilt], made: Capture) -> float:
    """The share of packets whose bits are all right."""
    right = [
        np.array_equal(np.array(votes) > 0, made.sent[known // SPACE - 1] > 0)
        for known, _, votes in found
    ]
    return sum(right) / len(made.sent)


def _without(made: Capture, receiver: int) -> Capture:
    """As if a receiver heard nothing."""
    air = made.air.copy()
    air[receiver] = 0
    heard = made.heard.filter(pc.not_equal(made.heard["receiver"], receiver))
    return made._replace(air=air, heard=heard)


def test_packets(session: Session, seed: int, full: bool) -> None:
    made = capture(600)
    _declare(session, made)
    found = _found(session)
    assert found == _expected(made)
    assert len(found) == 600
    assert _exact(found, made) > 0.9 > 0.7 > made.exact.mean(axis=0).max()

    for k in range(100 if full else len(RUNTIMES)):
        choice = random.Random(f"network {seed + k}")
        made = capture(150, seed + k)
        if k % 2:
            made = _without(made, choice.randrange(RECEIVERS))
        apply(session, RUNTIMES[k % len(RUNTIMES)], {"morsel_rows": choice.choice((7, 100, 4096))})
        _declare(session, made)
        found = _found(session)
        assert found == _expected(made), k
        assert len(found) >= 149  # all receivers may miss a packet
        assert _exact(found, made) > made.exact.mean(axis=0).max()


def test_chosen_receivers_are_of_different_clusters(session: Session) -> None:
    """More packets are exact than by the majority of all receivers."""
    made = capture(600)
    by_all = [(k, s, _rebuilt(_aligned(made.air, k).sum(axis=0))) for k, s in _packets(made)]
    _declare(session, made)
    assert _exact(by_all, made) < _exact(_found(session), made) - 0.1


def test_too_many_sources(session: Session) -> None:
    made = capture(10)
    heard = made.heard.set_column(2, "source", pa.array([16] * len(made.heard), pa.int32()))
    _declare(session, made._replace(heard=heard))
    with pytest.raises(RunError, match="a source has a number from 0 to 15, not 16"):
        _found(session)


def test_a_run_goes_on_from_a_checkpoint(session: Session) -> None:
    session.sql("SET morsel_rows = 100")
    _declare(session, capture(200))
    choice = random.Random(1)
    assert stop_and_continue(plan_of(session, TEXT), dict(session.settings), choice, stops=2)
