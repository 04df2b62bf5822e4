"""EngineBench and PASSCHAIN on few rows: every scheduler returns the input rows. No timing."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from benchmarks import engine_bench, figure, harness, offered_load
from benchmarks.harness import Benchmark, Options

SCHEDULERS = ["depth_first", "fifo", "fifo_slice", "run_to_completion"]


def measured(benchmark: Benchmark) -> dict[str, Any]:
    record = harness.measure(benchmark, Options(runs=1, console=Console(file=io.StringIO())))
    assert [e["name"] for e in record["contenders"]] == SCHEDULERS
    assert [e["wrong"] for e in record["contenders"]] == [[]] * 4
    return record


@pytest.mark.parametrize("rows", [1, 7])
def test_engine(rows: int) -> None:
    record = measured(engine_bench.engine(rows, operators=30))
    assert record["rows"] == 30 * engine_bench.SIZES.get(rows, 16)
    assert {(r["fast"], r["goal"]) for r in record["ratios"]} == {
        ("depth_first", None),
        ("depth_first", 3.0),
    }


def test_passchain() -> None:
    assert measured(engine_bench.passchain(64, rows=500))["rows"] == 500


def test_offered_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offered_load, "LOADS", (0.5, 3.0))
    monkeypatch.setattr(offered_load, "ROUNDS", 1)
    for made in offered_load.figures(1000):
        assert made.right
        assert list(made.series) == SCHEDULERS
        assert json.loads(json.dumps(figure.record_of(made)))["right"]
        figure.show(made, Console(file=io.StringIO(), width=110))
