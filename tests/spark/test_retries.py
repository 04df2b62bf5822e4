"""Tasks that die, are slow, or run twice count once: rows, ledgers and figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cluster.start import driven, standalone


@pytest.mark.slow
def test_attempts_count_once(tmp_path: Path, full: bool) -> None:
    """On two executors, with speculation, the first attempt of a task dies, races its copy, or
    waits until Spark kills it; by rows, time and key, and in the partitions of a DataFrame; the
    result comes here, through a DataFrame, or into a table."""
    if not full:
        pytest.skip("with --full")
    with standalone(tmp_path / "cluster") as url:
        runs = driven("tests.support.cluster.retries", tmp_path, url)
    assert len(runs) == 12
    assert [(name, wrong) for name, wrong, _ in runs if wrong] == []
    assert [name for name, _, again in runs if not again] == []  # each had a second attempt
    (log,) = (tmp_path / "events").iterdir()
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    ends = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
    copies = [event for event in ends if event["Task Info"]["Speculative"]]
    assert len(copies) >= 8  # of the runs that race or wait
    reasons = {event["Task End Reason"]["Reason"] for event in ends}
    assert {"Success", "TaskKilled"} <= reasons
    assert len(reasons) > 2  # and tasks whose Python died
