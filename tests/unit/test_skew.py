"""The number of partitions that follows from a sample of keys."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from cql.executor.run.partition_sizing import partitions
from cql.planner.placement.cost import Cost
from cql.session.session import Session


@pytest.mark.parametrize(
    ("counts", "workers", "expected"),
    [
        ([10, 10, 10, 10, 10, 10, 10, 10], 2, (2, 0.5)),
        ([10, 10, 10, 10, 10, 10, 10, 10], 4, (4, 0.25)),
        ([30, 10, 20, 10, 0, 5, 15, 10], 2, (4, 0.4)),  # two partitions would hold 70 and 30
        ([30, 0, 30, 0, 0, 20, 0, 20], 2, (2, 0.6)),  # even enough: 1.2 times a worker's share
        ([80, 0, 0, 0, 5, 5, 5, 5], 2, (2, 0.8)),  # one key is too heavy
        ([50, 20, 10, 0, 5, 5, 5, 5], 2, (8, 0.5)),  # finer partitions shrink the largest
        ([0, 0, 0, 0], 2, (2, 0.0)),
        ([5, 5, 5, 5, 5, 5], 3, (3, 1 / 3)),
        ([5, 5, 90], 3, (3, 0.9)),
    ],
)
def test_the_fewest_that_are_even(
    counts: list[int], workers: int, expected: tuple[int, float]
) -> None:
    found = partitions(counts, workers)
    assert (found.parts, found.largest) == pytest.approx(expected)
    assert found.rows == sum(counts)


@pytest.mark.auto_runtime
@pytest.mark.parametrize("skew", ["even", "one key", "few keys"])
def test_a_run_is_split_by_what_its_keys_say(
    seed: int, skew: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample is the whole input here, so the measured partitions are those of the run."""
    monkeypatch.setattr(Cost, "split", lambda cost, workers: cost.keyed)  # a cheap query splits
    r, rows = random.Random(seed), 4_000
    heavy = {"even": 0.0, "one key": 0.7, "few keys": 0.0}[skew]
    names = [None, *(f"n{k}" for k in range(3 if skew == "few keys" else 500))]
    key = [
        (7, "n0") if r.random() < heavy else (r.choice((1, 2)), r.choice(names))
        for _ in range(rows)
    ]
    table = pa.table(
        {
            "ts": pa.array(range(rows), pa.int64()),
            "k": pa.array([k for k, _ in key], pa.int32()),
            "name": pa.array([name for _, name in key], pa.string()),
            "x": pa.array([r.choice((0.0, -0.0, 0.5, None)) for _ in key], pa.float64()),
        }
    )
    session = Session(False)
    session.create_stream("s", table, ordered_by="ts", unit="seconds")
    session.set("workers", 2)
    found = {}
    for runtime in ("depth_first", "ordered"):
        session.set("runtime", runtime)
        run = session.sql("SELECT k, name, x, count(*) AS n FROM s GROUP BY k, name, x")
        found[runtime] = run.to_arrow()
    assert found["ordered"].equals(found["depth_first"])
    (entry,) = (m for m in run.metrics() if "partitions" in m)
    many = f"{entry['partitions']} partitions: the largest had {entry['largest']:.0%} of 4,000 rows"
    assert entry["why_partitions"].startswith(many)
    if skew == "one key":
        assert entry["largest"] > 0.15
    else:
        assert entry["largest"] <= 0.6
