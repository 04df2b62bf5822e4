"""The benchmarks of signals on few samples: all contenders' answers. No timing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks import figure, harness, segment_managers, signal_figures, signals
from benchmarks.harness import Benchmark, Options
from benchmarks.signal_representations import DETECTION, PIPELINE, Application

SAMPLES = 50_000


def measured(benchmark: Benchmark) -> dict[str, Any]:
    """The record of a run in which every answer was right."""
    console = Console(file=io.StringIO(), width=110)
    try:
        record = harness.measure(benchmark, Options(runs=1, elements=1000, console=console))
    finally:
        benchmark.close()
    harness.show(record, console)
    assert {e["name"]: e["wrong"] for e in record["contenders"] if e["wrong"]} == {}
    return record


@pytest.mark.sampled
@pytest.mark.parametrize("make", [m for m in signals.TABLE_I if m is not signals.network])
def test_table_1(make: Callable[[int], Benchmark]) -> None:
    record = measured(make(SAMPLES))
    assert 0 < SAMPLES - record["rows"] < signals.WINDOW
    assert any(entry["paper"] is not None for entry in record["contenders"])


def test_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 100 packets that are the same."""
    monkeypatch.setattr(signals.packets, "_PIECE", 100)
    air, _ = signals.packets.received(200)
    assert np.array_equal(*np.hsplit(air, 2))
    record = measured(signals.network(250))
    assert record["rows"] == 200
    assert any(entry["paper"] == 241_500 for entry in record["contenders"])


def test_something_passes_each_filter() -> None:
    channels = signals.calls(SAMPLES)
    firsts = np.empty(SAMPLES, np.int64)
    events = signals.kernels.detectaudio(channels, channels.copy(), firsts)
    assert 10 < events < SAMPLES // signals.kernels.SHORT // 5
    for make in (signals.statfilter, signals.silencefilter):
        windows, total = SAMPLES // signals.WINDOW, make(SAMPLES).expected[0]
        assert 0 < total < windows * signals.WINDOW


def test_passchain_has_ten_operators() -> None:
    ours = signals._Ours(signals.PASSCHAIN.format("sum(ch0) AS found"), signals.sound(SAMPLES))
    seen: list[int] = []

    class Spied(signals.Execution):
        def _prepare(self) -> Any:
            reading = super()._prepare()
            seen.append(len(self.graph.operators))
            return reading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signals, "Execution", Spied)
        ours.run_chain()
    # The rewindow below the chain, and the last projection above it.
    assert seen == [signals.CHAIN + 2]


@pytest.mark.parametrize("manager", segment_managers.MANAGERS)
def test_sync_gives_the_same_under_each_manager(manager: str) -> None:
    for batch in (1, 3, 20):
        run = segment_managers.Run(manager, batch * segment_managers.PIECE, SAMPLES)
        assert run.is_right
        assert run.samples > 0


def test_figure_6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_managers, "BATCHES", (1, 30))
    six, copy = segment_managers.figures(SAMPLES)
    assert six.right
    assert list(six.series) == list(segment_managers.MANAGERS)
    for made in (six, copy):
        assert {len(values) for values in made.series.values()} == {len(made.x)}
        assert all(value > 0 for values in made.series.values() for value in values)
        assert json.loads(json.dumps(figure.record_of(made)))["right"]
        figure.show(made, Console(file=io.StringIO(), width=110))


def test_figure_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_figures, "TRIALS", 2)
    for made in signal_figures.figures(SAMPLES):
        assert made.right
        assert list(made.series) == list(signal_figures.SCHEDULERS)
        assert {len(values) for values in made.series.values()} == {len(made.names)}
        assert json.loads(json.dumps(figure.record_of(made)))["errors"].keys() == made.series.keys()
        console = Console(file=io.StringIO(), width=150)
        figure.show(made, console)
        assert "±" in console.file.getvalue()


@pytest.mark.parametrize("application", [PIPELINE, DETECTION], ids=lambda a: a.name)
def test_the_representations_find_something(application: Application) -> None:
    session = application.session(SAMPLES)
    for form in application.forms:
        table, peak = signal_figures.run(session, "depth_first", form)
        assert table.num_rows > 0
        assert peak > 0
