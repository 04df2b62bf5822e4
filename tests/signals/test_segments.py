"""Segments against plain arrays: random programs on all memory managers."""

from __future__ import annotations

import random
import threading
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from cql.errors import RunError
from cql.executor.kernels.signals import segments
from cql.executor.kernels.signals.of_segments import values
from cql.executor.operators.signals.segment_store import Manager, Room, SegmentStore, Timebase
from tests.support.signals.programs import STEPS, Program, check_empty, new_store

QUICK, FULL = 100, 5000  # programs for each manager


@pytest.mark.parametrize("manager", Manager)
def test_random_programs(manager: Manager, full: bool, seed: int) -> None:
    store, account = new_store(manager)
    for i in range(FULL if full else QUICK):
        program = Program(random.Random(f"segments {manager} {seed + i}"), store)
        for _ in range(STEPS):
            program.step()
        program.end()
        check_empty(store, account)
    store.close()


@pytest.mark.parametrize("manager", Manager)
def test_threads_share_a_store(manager: Manager, full: bool, seed: int) -> None:
    """Kernels of several threads; only one of them forgets the host's blocks, as in a run."""
    store, account = new_store(manager, Room(1 << 14, 1 << 14, 1 << 14))
    base = store.number_of(Timebase(Fraction(10)))
    common = store.make(base, 0, np.arange(1000, dtype=np.int32))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        choice = random.Random(f"threads {manager} {seed} {number}")
        try:
            for _ in range(300 if full else 40):
                held = [segments.subseg(common, 10 * k, 10) for k in range(20)]
                for a, b in pairwise(held):
                    assert segments.are_adjacent(a, b)
                whole = segments.subseg(common, 0, 0)
                for h in held:
                    whole = segments.append(whole, h)
                passed = segments.pass_on(whole)
                segments.flat(choice.choice((whole, passed)))
                assert values.segment_sum(whole) == 199 * 100
                assert values.segment_max(passed) == 199
                for g in (whole, passed, *held):
                    segments.release(g)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    store.release([common])
    check_empty(store, account)
    store.close()


@pytest.mark.parametrize(
    ("manager", "passed", "cut", "appended"),
    [
        (Manager.COPY_ALWAYS, 8, 4, 16),
        (Manager.REFCOUNT_COPY, 0, 0, 16),
        (Manager.REFCOUNT_REALLOC, 0, 0, 8),
        (Manager.REFCOUNT_LAZY, 0, 0, 0),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_each_manager_copies(manager: Manager, passed: int, cut: int, appended: int) -> None:
    store, account = new_store(manager)
    base = store.number_of(Timebase(Fraction(10)))
    a = store.make(base, 0, np.arange(8, dtype=np.int8))
    b = store.make(base, 8, np.arange(8, dtype=np.int8))
    copied = [store.counts["copied"]]
    p = segments.pass_on(a)
    copied.append(store.counts["copied"])
    c = segments.subseg(a, 2, 4)
    copied.append(store.counts["copied"])
    store.release([p, c])
    joined = segments.append(a, b)
    copied.append(store.counts["copied"])
    assert [y - x for x, y in pairwise(copied)] == [passed, cut, appended]
    # Another has the first one, too: it stays as it is.
    segments.retain(joined)
    more = segments.append(joined, b)
    assert more != joined
    assert (store.length(joined), store.length(more)) == (16, 24)
    lazy = manager is Manager.REFCOUNT_LAZY
    assert store.counts["copied"] - copied[-1] == (0 if lazy else 24)
    store.release([joined, more, b])
    check_empty(store, account)
    store.close()


def test_samples_are_brought_together_once() -> None:
    store, account = new_store(Manager.REFCOUNT_LAZY)
    base = store.number_of(Timebase(Fraction(10)))
    a = store.make(base, 0, np.arange(8, dtype=np.int64))
    b = store.make(base, 8, np.arange(8, dtype=np.int64))
    joined = segments.append(a, b)
    assert store.counts["copied"] == 0
    assert values.segment_sum(joined) == 56
    assert values.segment_max(joined) == 7
    assert store.counts["copied"] == 16 * 8
    store.release([joined, b])
    check_empty(store, account)
    store.close()


def _refusal(program: Program) -> str:
    """Why a step of a program is refused, without the numbers; "" if none is."""
    for _ in range(2 * STEPS):
        try:
            program.step()
        except RunError as error:
            return str(error).partition(":")[0]
    return ""


@pytest.mark.parametrize("manager", Manager)
@pytest.mark.parametrize("room", [Room(6, 999, 999), Room(999, 6, 999), Room(999, 999, 6)], ids=str)
def test_full_tables(manager: Manager, room: Room, full: bool, seed: int) -> None:
    """A full table raises RunError; the segments that there are stay as they were."""
    refused = 0
    for i in range(300 if full else 30):
        store, _ = new_store(manager, room)
        program = Program(random.Random(f"full {manager} {seed + i}"), store)
        found = _refusal(program)
        assert found in ("", "there is no room for more segments of signals")
        refused += bool(found)
        for known in program.known:
            program.check(known)
        store.close()
    assert refused > 5


def test_a_function_without_room_for_its_samples() -> None:
    store, _ = new_store(Manager.REFCOUNT_LAZY, Room(8, 8, 2))
    base = store.number_of(Timebase(Fraction(10)))
    a = store.make(base, 0, np.arange(8, dtype=np.int64))
    b = store.make(base, 8, np.arange(8, dtype=np.int64))
    joined = segments.append(a, b)
    assert values.segment_sum(joined) == 0
    assert values.segment_real_sum(joined) == 0
    assert values.segment_max(joined) == 0
    with pytest.raises(RunError, match="no room"):
        store.check_room()
    assert store.samples(joined).tolist() == [*range(8), *range(8)]
    store.close()


def test_too_many_young_segments() -> None:
    store, _ = new_store(Manager.REFCOUNT_LAZY, Room(4, 4, 4))
    base = store.number_of(Timebase(Fraction(10)))
    a = store.make(base, 0, np.arange(8, dtype=np.int64))
    for _ in range(5):
        segments.retain(a)
        segments.note_young(a, 1)
    with pytest.raises(RunError, match="no room"):
        store.sweep(1)
    assert _references(store, a) == 2
    store.close()


def _references(store: SegmentStore, g: int) -> int:
    return int(store.tables[0][(g - store.tables[0].ctypes.data) // store.tables[0].strides[0], 0])
