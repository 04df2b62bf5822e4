"""Runs over signals that stop between two morsels, and continue from a checkpoint with another
segment store: the segments, the rows and the ledgers are those of a run that never stopped."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cql.errors import RunError
from cql.executor.kernels.order.row_slab import HELD
from cql.executor.kernels.signals import kept, layout
from cql.executor.operators.signals import saved_segments
from cql.executor.operators.signals.runs import Runs
from cql.executor.operators.signals.segment_store import Manager, Room, Timebase
from cql.executor.state.checkpoint import to_ipc
from tests.support.catalog_tools import blocks_of_eight
from tests.support.paths import ROOT
from tests.support.run_checkpoints import RUNTIMES, plan_of, run, stop_and_continue
from tests.support.signals import random_queries
from tests.support.signals.programs import check_empty, new_store
from tests.support.signals.random_queries import QUERIES, WINDOWS, signal_case, signal_session

QUICK, FULL = 3, 300  # cases of each query


@pytest.mark.parametrize("shape", range(len(QUERIES)))
def test_runs_continue(shape: int, seed: int, full: bool) -> None:
    """Each part of a run is under another runtime."""
    for k in range(FULL if full else QUICK):
        case = signal_case(shape, seed + k)
        choice = random.Random(f"signal checkpoint {case.seed}")
        with (
            blocks_of_eight() if choice.random() < 0.7 else nullcontext(),
            signal_session(case) as session,
        ):
            plans = []
            for runtime in RUNTIMES:
                session.set("runtime", runtime)
                session.set("workers", choice.choice((1, 2)))
                plans.append((plan_of(session, case.text), dict(session.settings)))
            try:
                stop_and_continue(*choice.choice(plans), choice, stops=3, others=plans)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{case.describe()}") from error


def test_the_cases_keep_segments() -> None:
    """Their checkpoints have segments of both operators, and ranges that wait."""
    found = {"rewindow": 0, "sync": 0, "held": 0}
    for shape in (0, *range(len(WINDOWS), len(QUERIES))):
        for k in range(12):
            case = signal_case(shape, k)
            with blocks_of_eight(), signal_session(case) as session:
                session.sql("SET morsel_rows = 1")
                plan = plan_of(session, case.text)
                whole = run(plan, session.settings)
                saved = run(plan, session.settings, stop=whole.morsels // 2).saved
            for key, one in {} if saved is None else dict(saved.operators).items():
                name = key.split(" ")[-1]
                if name in found:
                    found[name] += one.parts["segments"].arrays["samples"].size > 0
                if name == "sync":
                    found["held"] += int(one.words[HELD]) > 0
    assert min(found.values()) > 3, found


@pytest.mark.parametrize(("shape", "case_seed"), [(0, 11), (len(WINDOWS) + 1, 15)])
def test_in_a_new_process(shape: int, case_seed: int, tmp_path: Path) -> None:
    case = signal_case(shape, case_seed)
    with blocks_of_eight(), signal_session(case) as session:
        plan = plan_of(session, case.text)
        whole = run(plan, session.settings)
        assert whole.rows[0]
        before = run(plan, session.settings, stop=whole.morsels // 2)
    assert before.saved is not None
    (tmp_path / "run.arrow").write_bytes(to_ipc(before.saved))
    subprocess.run(
        [sys.executable, "-m", random_queries.__name__, str(shape), str(case_seed), str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        check=True,
    )
    rows, ledgers = ast.literal_eval((tmp_path / "rest").read_text("utf-8"))
    assert [[*a, *b] for a, b in zip(before.rows, rows, strict=True)] == whole.rows
    assert ledgers == whole.ledgers


@pytest.mark.parametrize("manager", Manager, ids=lambda m: m.name)
@pytest.mark.parametrize("kind", [*layout.KINDS, "V16"])
def test_segments_in_another_store(kind: str, manager: Manager) -> None:
    """Segments and timebases have other numbers there."""
    store, account = new_store(manager)
    bases = [Timebase(Fraction(44_100), -5), Timebase(Fraction(30_000, 1001), 10**18)]
    known = []
    for k, n in enumerate((7, 0, 3)):
        samples = np.frombuffer(np.arange(2 * n).tobytes(), kind)[:n]
        known.append((bases[k % 2], 100 * k, samples))
    made = [store.make(store.number_of(base), start, s) for base, start, s in known]
    saved = saved_segments.save(store, [kept.number_of(store.address, g) for g in made])
    store.release(made)
    check_empty(store, account)

    other, account = new_store(Manager.REFCOUNT_LAZY)
    other.number_of(Timebase(Fraction(8_000), 3))
    taken = [other.make(0, 0, np.zeros(1)) for _ in range(5)]
    found = saved_segments.restore(other, saved)
    assert found == [5, 6, 7]
    for number, (base, start, samples) in zip(found, known, strict=True):
        g = kept.address_of(other.address, number)
        assert (other.timebase(g), other.start(g)) == (base, start)
        assert other.samples(g).dtype == samples.dtype
        assert other.samples(g).tolist() == samples.tolist()
        taken.append(g)
    other.release(taken)
    check_empty(other, account)


def test_a_store_that_is_too_small() -> None:
    store, _ = new_store(Manager.REFCOUNT_LAZY)
    base = store.number_of(Timebase(Fraction(10)))
    made = [store.make(base, 0, np.zeros(3)) for _ in range(4)]
    saved = saved_segments.save(store, [kept.number_of(store.address, g) for g in made])
    small, _ = new_store(Manager.REFCOUNT_LAZY, Room(2, 2, 2))
    with pytest.raises(RunError, match="there is no room for more segments"):
        saved_segments.restore(small, saved)


@pytest.mark.parametrize("tolerance", [None, 20_000_000])
def test_runs_go_on_from_their_words(tolerance: int | None) -> None:
    """After each block, also before the first sample and behind a gap of many years."""
    rate, second = Fraction(10), 1_000_000
    times = np.array([5, 5.1, 5.2, 9, 9.1, 3, 9.2, 2e9, 2e9 + 0.1]) * second
    blocks = times.astype(np.int64).reshape(-1, 3)
    whole, parts = (Runs(rate, tolerance) for _ in range(2))
    for block in blocks:
        valid = np.array([True, block[0] < 6 * second, True])
        parts = Runs(rate, tolerance).continued(parts.words)
        assert parts.of(3, block, valid) == whole.of(3, block, valid)
    assert parts.words == whole.words
    assert (whole.gaps, whole.overlapping, whole.missing, whole.samples) == (3, 1, 2, 6)
