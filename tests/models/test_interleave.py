"""The model checker finds exactly the faults of small programs whose faults are known."""

from __future__ import annotations

import types
from typing import Any

import pytest

from cql.executor.kernels.lib.atomics import (
    compare_and_swap,
    fetch_add,
    fetch_add_relaxed,
    load,
    load_acquire,
    load_relaxed,
    pause,
    store,
    store_release,
)
from cql.executor.kernels.lib.memory import words
from tests.support.models.interleave import Explored, Model, mutex_lock, mutex_unlock, problem
from tests.support.models.lowered import Change
from tests.support.models.modelled_memory import require

X, Y = 0, 8  # offsets of two words, in bytes


def scenario(*threads: Any, final: Any = None, **options: Any) -> tuple[Model, Any]:
    """Threads over eight words; ``final`` receives the model and the address of the first word."""
    model = Model(**options)
    at = model.words(8)
    for k, thread in enumerate(threads):
        model.start(thread, at, at + 8 * (4 + k))
    return model, lambda: final and final(model, at)


def explored(*threads: Any, **options: Any) -> Explored:
    model, final = scenario(*threads, **options)
    return model.explore(final)


def found(*threads: Any, **options: Any) -> str:
    return problem(scenario(*threads, **options))


# -- values are handed over ------------------------------------------------------------------------


def gives(at: int, mine: int) -> None:
    words(at, 1)[0] = 7
    store_release(at + Y, 1)


def takes(at: int, mine: int) -> None:
    while load_acquire(at + Y) == 0:
        pause()
    require(words(at, 1)[0] == 7, "not there")


def gives_by_adding(at: int, mine: int) -> None:
    words(at, 1)[0] = 7
    fetch_add(at + Y, 1)


def passes_on(at: int, mine: int) -> None:
    fetch_add_relaxed(at + Y, 1)


def takes_the_sum(at: int, mine: int) -> None:
    while load_acquire(at + Y) != 2:
        pause()
    require(words(at, 1)[0] == 7, "not there")


def ends_what_was_released(at: int, mine: int) -> None:
    while load_relaxed(at + Y) != 1:
        pause()
    store_release(at + Y, 2)


def test_release_and_acquire() -> None:
    for mode in ("races", "x86"):
        assert explored(gives, takes, mode=mode).ends == 1


@pytest.mark.parametrize(
    "change",
    [
        Change(gives, "store_release", "store_relaxed"),
        Change(takes, "load_acquire", "load_relaxed"),
        Change(
            gives,
            "words(at, 1)[0] = 7\n    store_release(at + Y, 1)",
            "store_release(at + Y, 1)\n    words(at, 1)[0] = 7",
        ),
        Change(takes, "while load_acquire(at + Y) == 0:", "if load_acquire(at + Y) == 5:"),
    ],
)
def test_races(change: Change) -> None:
    assert "race" in found(gives, takes, changes=[change])


def test_a_release_goes_on_through_changes_of_others() -> None:
    assert explored(gives_by_adding, passes_on, takes_the_sum).ends == 1


def test_a_store_of_another_ends_a_release() -> None:
    assert "race" in found(gives_by_adding, ends_what_was_released, takes_the_sum)


def swaps_in_vain(at: int, mine: int) -> None:
    while compare_and_swap(at + Y, 5, 6) == 0:
        pause()
    require(words(at, 1)[0] == 7, "not there")


def test_a_swap_that_fails_acquires_nothing() -> None:
    assert "race" in found(gives, swaps_in_vain)


# -- stores wait in buffers ------------------------------------------------------------------------


def one_and_other(at: int, mine: int) -> None:
    store_release(at + X, 1)
    words(mine, 1)[0] = load(at + Y) + 1


def other_and_one(at: int, mine: int) -> None:
    store_release(at + Y, 1)
    words(mine, 1)[0] = load(at + X) + 1


def one_was_seen(model: Model, at: int) -> None:
    require(model.get(at, 4) + model.get(at, 5) > 2, "neither saw the other")


def both(old: str, new: str) -> list[Change]:
    return [
        Change(f, old.replace("?", x), new.replace("?", x))
        for f, x in ((one_and_other, "X"), (other_and_one, "Y"))
    ]


STORE = "store_release(at + ?, 1)"


def test_stores_wait_in_buffers() -> None:
    threads = one_and_other, other_and_one
    explored(*threads, final=one_was_seen)
    assert "neither" in found(*threads, final=one_was_seen, mode="x86")
    for ordered in ("store(at + ?, 1)", "exchange(at + ?, 1)", f"{STORE}\n    fence()"):
        changes = both(STORE, ordered)
        explored(*threads, final=one_was_seen, mode="x86", changes=changes)
    one = both(STORE, "store(at + ?, 1)")[:1]
    assert "neither" in found(*threads, final=one_was_seen, mode="x86", changes=one)


# -- threads that wait -----------------------------------------------------------------------------


def locks(at: int, mine: int) -> None:
    mutex_lock(at + X)
    mutex_lock(at + Y)
    words(at, 3)[2] += 1
    mutex_unlock(at + Y)
    mutex_unlock(at + X)


def locks_too(at: int, mine: int) -> None:
    mutex_lock(at + X)
    mutex_lock(at + Y)
    words(at, 3)[2] += 1
    mutex_unlock(at + Y)
    mutex_unlock(at + X)


def test_deadlocks() -> None:
    explored(locks, locks_too, final=lambda m, at: require(m.get(at, 2) == 2, "lost"))
    crossed = Change(
        locks_too,
        "mutex_lock(at + X)\n    mutex_lock(at + Y)",
        "mutex_lock(at + Y)\n    mutex_lock(at + X)",
    )
    assert "wait for ever" in found(locks, locks_too, changes=[crossed])


def waits(at: int, mine: int) -> None:
    while load_acquire(at + X) == 0:
        pause()


def sets_and_clears(at: int, mine: int) -> None:
    store_release(at + X, 1)
    store_release(at + X, 0)


def test_waiting_for_ever() -> None:
    assert "no end" in found(waits)
    assert "no end" in found(waits, sets_and_clears)


# -- all states ------------------------------------------------------------------------------------


def adds_badly(at: int, mine: int) -> None:
    store(at + X, load(at + X) + 1)


def test_a_lost_update() -> None:
    def final(model: Model, at: int) -> None:
        require(model.get(at) == 2, "lost")

    assert found(adds_badly, adds_badly, final=final) == "lost"


def adds(at: int, mine: int) -> None:
    words(mine, 1)[0] = fetch_add(at + X, 1)


def adds_blindly(at: int, mine: int) -> None:
    fetch_add(at + X, 1)


def test_every_state_is_counted_once() -> None:
    """Two threads with one step each: the states form a square whose last corner is two states,
    because the memory shows which thread was first."""
    assert explored(adds, adds, mode="values") == Explored(states=5, steps=4, ends=2)
    three = explored(adds, adds, adds, mode="values")
    assert three.ends == 6
    assert explored(adds_blindly, adds_blindly, mode="values") == Explored(1, 0, 1)


def goes_too_far(at: int, mine: int) -> None:
    words(at, 2)[2] = 1


def reads_nowhere(at: int, mine: int) -> None:
    words(0, 9)[7] += 1


def test_addresses_are_checked() -> None:
    assert "word 2 of 2" in found(goes_too_far)
    assert "address 56" in found(reads_nowhere)


# -- lowered source gives the results of the original ----------------------------------------------


def all_forms(at: int, n: int) -> int:
    x = words(at, 8)
    total = first = 0
    for k in range(2, n, 2):
        if load(at + 8 * k) > 3 and (k != 4 or load(at) == 1):
            total += load(at + 8 * k) - load(at) * 2
            continue
        if not load(at + 8) < k:
            break
        x[k] = x[k + 1] = load(at + 8 * k) + (load(at) if k > 2 else 9)
        first, total = total, first + x[k]
    while True:
        total += 1
        if total & 7 == load(at) & 7 or total > 60:
            return total + helped(at, first)
        for k in (1, 2):
            x[k] += k


def helped(at: int, first: int) -> int:
    value = fetch_add(at + 24, 5) if first & 1 else load(at + 16)
    more: Any = words(at, 8)[2:][1]
    return -first if value == 9 else value + more


@pytest.mark.parametrize("seed", range(20))
def test_lowered_source_means_the_same(seed: int) -> None:
    values = [(seed * 7 + k * k * 3) % 11 for k in range(8)]
    model = Model()
    at = model.words(8)
    model.put(at, values)
    answer = model.run(all_forms, at, 6)
    memory = list(values)
    native: dict[str, Any] = {
        "range": range,
        "words": lambda a, n: memory,
        "load": lambda a: memory[a // 8],
        "store": lambda a, v: memory.__setitem__(a // 8, v),
    }

    def add(a: int, v: int) -> int:
        memory[a // 8] += v
        return memory[a // 8] - v

    native["fetch_add"] = add
    native["helped"] = types.FunctionType(helped.__code__, native)
    assert answer == types.FunctionType(all_forms.__code__, native)(0, 6)
    assert [model.get(at, k) for k in range(8)] == memory
