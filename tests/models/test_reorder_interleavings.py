"""Outputs leave in the order of their inputs (figures 2 and 4 of the ordered-multicore paper),
under all schedules of a few workers (``interleave``). Each check must also find a mistake that is
put into the source. ``--full`` runs more workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from cql.executor.kernels.lib.atomics import load_acquire, pause, store_release
from cql.executor.kernels.lib.memory import call_operator, words
from cql.executor.kernels.lib.mpmc_queue import offer
from cql.executor.kernels.morsel_layout import (
    CURSOR,
    DONE,
    FOLLOWING,
    HEADER,
    OUT,
    OUTPUT_FULL,
    ROWS,
    SEQUENCE,
    SERIAL,
)
from cql.executor.kernels.ordered import tables as of
from cql.executor.kernels.ordered.handover import next_input, release
from cql.executor.kernels.ordered.reorder import (
    _send_chain,
    _send_ready,
    park,
    send,
    send_early,
    send_pending,
    take_input,
    take_lane,
)
from cql.executor.kernels.ordered.tables import FLAG, NEXT, NOBODY, TICKET, lane_at
from cql.executor.kernels.ordered.worker import _work_on, advance
from tests.support.models.interleave import Model, Scenario, explored, problem
from tests.support.models.lowered import Change
from tests.support.models.modelled_memory import require
from tests.support.models.ordered_tables import Tables


def sends(plan: int, task: int, lane: int, outputs: int) -> None:
    """A worker of a stateless task; stops when it can take no input."""
    while take_input(plan, task, lane) != 0:
        ticket = words(lane, TICKET + 1)[TICKET]
        send(plan, task, ticket, words(outputs, ticket + 1)[ticket], ticket)


def sends_and_looks_again(plan: int, task: int, lane: int, outputs: int, total: int) -> None:
    """Works on the task, as a worker that ``choose`` sends there again, until all inputs have
    left."""
    while load_acquire(task + 8 * NEXT) < total:
        if load_acquire(task + 8 * FLAG) == 0:
            send_pending(plan, task)
        sends(plan, task, lane, outputs)
        pause()


def works(plan: int, worker: int, task: int, first: int, total: int) -> None:
    """Works on the task, as a worker that ``choose`` sends there again and again."""
    me = words(worker, of.WORKER)
    while load_acquire(task + 8 * NEXT) < total:
        if load_acquire(task + 8 * FLAG) == 0:
            send_pending(plan, task)
        me[of.ON] = take_lane(task, first, 1)
        if me[of.ON] == NOBODY:
            pause()
            continue
        me[of.BUDGET], me[of.DONE_HERE] = 1, 0
        _work_on(plan, worker, task)
        if me[of.ON] != NOBODY:
            store_release(lane_at(task, me[of.ON]) + 8 * of.OWNED, 0)
        pause()


def gives_rows(address: int, descriptor: int, morsel: int) -> int:
    """Replaces the operator: an input has as many outputs as it has rows, of a row each."""
    u = words(morsel, HEADER)
    o = words(u[OUT], HEADER)
    if u[ROWS] == 0:
        return DONE
    o[ROWS], o[SERIAL], o[SEQUENCE] = 1, u[SERIAL], u[CURSOR]
    u[CURSOR] += 1
    return DONE if u[CURSOR] == u[ROWS] else OUTPUT_FULL


def reads_rows(plan: int, task: int, seen: int, n: int) -> None:
    k = 0
    while k < n:
        morsel = next_input(plan, task)
        if morsel != 0:
            u = words(morsel, HEADER)
            words(seen, n)[k] = 16 * u[SERIAL] + u[SEQUENCE]
            release(morsel)
            k += 1
        else:
            pause()


def parking(
    threads: int, outputs: list[int], *, size: int, room: int, changes: Sequence[Change] = ()
) -> Callable[..., Scenario]:
    """Workers of a stateless task whose inputs hold an output morsel each before they are next in
    order. They write ``outputs[k]`` morsels for input k, one after the other."""

    def made(**options: Any) -> Scenario:
        soon = Change(advance, ">= MOST_CHAINED", ">= 1")
        replaced = {id(call_operator): gives_rows}
        model = Model(replaced=replaced, changes=[soon, *changes], **options)
        tables = Tables(model, 2, workers=threads)
        task = tables.task(of.STATELESS, size=size, edges=[(1, 0)], queue=4, lanes=threads)
        below = tables.task(of.SERIAL_ONE, ports=[0], queue=room)
        free = tables.ring(8)
        for _ in range(sum(outputs)):
            model.run(offer, free, tables.morsel(0, HOME=free, REFERENCES=0))
        model.put(task, {of.MOST: threads, of.ADDRESS: 1, of.POOL: free})
        used = tables.ring(8)
        inputs = [tables.morsel(k, ROWS=n, HOME=used) for k, n in enumerate(outputs)]
        tables.give(task, inputs)
        expected = [16 * k + j for k, n in enumerate(outputs) for j in range(n)]
        narrow = room < len(expected)
        seen = model.words(len(expected))
        for w in range(threads):
            model.start(works, tables.plan, tables.worker(w), task, w, len(outputs))
        if narrow:
            model.start(reads_rows, tables.plan, below, seen, len(expected))

        def final() -> None:
            if not narrow:
                model.run(reads_rows, tables.plan, below, seen, len(expected))
            require(tables.values(seen, len(expected)) == expected, "not in order")

        return model, final

    return made


CASES_OF_PARKING: dict[str, dict[str, Any]] = {
    "the second waits for the first": {"threads": 2, "outputs": [1, 2], "size": 2, "room": 4},
    "no room": {"threads": 1, "outputs": [3], "size": 1, "room": 1},
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["races", "x86"])
@pytest.mark.parametrize("case", CASES_OF_PARKING)
def test_inputs_with_many_outputs_are_parked(case: str, mode: str) -> None:
    explored(parking(**CASES_OF_PARKING[case])(mode=mode))


BAD_PARKING = {
    "sent before its turn": (
        send_early,
        "if load_acquire(task + 8 * NEXT) != at[TICKET]:",
        "if 1 > 2:",
    ),
    "a lane is given up while its input is parked": (_work_on, "            me[ON] = NOBODY\n", ""),
    "parked before the lane is written": (
        park,
        "    words(slot, SLOT)[FIRST] = number\n    store_release(slot, PARKED + ticket)",
        "    store_release(slot, PARKED + ticket)\n    words(slot, SLOT)[FIRST] = number",
    ),
    "two workers continue with it": (
        take_lane,
        "compare_and_swap(slot, stamp, 0) == stamp",
        "load(slot) == stamp",
    ),
    "nobody continues with it": (
        take_lane,
        "load_acquire(slot) == stamp",
        "load(slot) == 1 + stamp",
    ),
    "two workers are at a lane": (
        take_lane,
        "compare_and_swap(lane_at(task, free) + 8 * OWNED, 0, 1) == 0",
        "load(lane_at(task, free) + 8 * OWNED) == 0",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("mistake", BAD_PARKING)
def test_mistakes_of_parking(mistake: str) -> None:
    changes = [Change(*BAD_PARKING[mistake])]
    assert problem(
        parking(**CASES_OF_PARKING["the second waits for the first"], changes=changes)(mode="races")
    )


def sends_one(plan: int, task: int, ticket: int, outputs: int) -> None:
    send(plan, task, ticket, words(outputs, ticket + 1)[ticket], ticket)


def reads(plan: int, task: int, seen: int, n: int) -> None:
    k = 0
    while k < n:
        morsel = next_input(plan, task)
        if morsel != 0:
            words(seen, n)[k] = morsel
            k += 1
        else:
            pause()


def reordering(
    threads: int,
    outputs: list[int],
    *,
    size: int,
    taken: bool = False,
    room: int = 8,
    locked: int = 0,
    **options: Any,
) -> Scenario:
    """Workers send the outputs of some inputs (``outputs[k]`` of input k) through a reorder buffer
    of ``size`` slots to a task whose worklist has ``room`` places. ``taken``: worker k has already
    taken input k."""
    model = Model(**options)
    inside = len(outputs) if taken else 0
    tables = Tables(model, 2, LOCKED=locked, INSIDE=inside, TIMED=1)
    task = tables.task(of.STATELESS, size=size, edges=[(1, 0)], queue=4, lanes=threads)
    below = tables.task(of.SERIAL_ONE, ports=[0], queue=room)
    if not taken:
        tables.give(task, [tables.morsel(k) for k in range(len(outputs))])
    chains = [[tables.morsel(k) for _ in range(n)] for k, n in enumerate(outputs)]
    for chain in chains:
        for one, other in pairwise(chain):
            model.put(one, {FOLLOWING: other})
    firsts = tables.list_of([(*chain, 0)[0] for chain in chains])
    expected = [morsel for chain in chains for morsel in chain]
    seen = model.words(len(expected))
    narrow = room < len(expected)
    for k in range(threads):
        lane = tables.lane(task, k)
        if taken:
            model.start(sends_one, tables.plan, task, k, firsts)
        elif narrow:
            model.start(sends_and_looks_again, tables.plan, task, lane, firsts, len(outputs))
        else:
            model.start(sends, tables.plan, task, lane, firsts)
    if narrow:
        model.start(reads, tables.plan, below, seen, len(expected))

    def final() -> None:
        left = tables.values(seen, len(expected)) if narrow else []
        left += [model.run(next_input, tables.plan, below) for _ in range(room)]
        require(left == [*expected, *[0] * (len(left) - len(expected))], f"left: {left}")
        require(model.get(tables.plan, of.INSIDE) == len(expected), "not as many are inside")

    return model, final


CASES: dict[str, dict[str, Any]] = {
    "one slot": {"threads": 2, "outputs": [1, 1], "size": 1},
    "two slots": {"threads": 2, "outputs": [1, 2, 0, 1], "size": 2},
    "three at once": {"threads": 3, "outputs": [1, 1, 1], "size": 4, "taken": True},
    "no room": {"threads": 1, "outputs": [2, 1], "size": 2, "room": 1},
}
NO_ROOM_FOR_TWO = {"threads": 2, "outputs": [1, 1], "size": 2, "room": 1}
LONG: dict[str, dict[str, Any]] = {
    "no room for two workers": {"threads": 2, "outputs": [2, 1], "size": 2, "room": 1},
    "three workers": {"threads": 3, "outputs": [1, 0, 2], "size": 2},
    "three workers, one slot": {"threads": 3, "outputs": [1, 1, 1], "size": 1},
    "four at once": {"threads": 4, "outputs": [1, 1, 1, 1], "size": 4, "taken": True},
    "six inputs": {"threads": 2, "outputs": [1, 1, 0, 2, 1, 1], "size": 2, "room": 16},
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("locked", [0, 1], ids=["figure 4", "figure 2"])
@pytest.mark.parametrize("mode", ["races", "x86"])
def test_outputs_leave_in_order(mode: str, locked: int, full: bool) -> None:
    for case in (*CASES.values(), *(LONG.values() if full else ())):
        explored(reordering(**case, locked=locked, mode=mode))
    if mode == "x86":
        explored(reordering(**NO_ROOM_FOR_TWO, locked=locked, mode=mode))


AGAIN = "if now == 0 and load(task + 8 * NEXT) == n:\n            return sent"
MISTAKES = {
    "no second look": ("two slots", "values", send_pending, AGAIN, "return sent"),
    "a stamp that waits in the buffer": (
        "two slots",
        "x86",
        send,
        "store(slot",
        "store_release(slot",
    ),
    "stamped before it is there": (
        "two slots",
        "races",
        send,
        "    at[FIRST], at[OF_MORSEL] = first, place\n",
        "    store(slot, ticket + 1)\n    at[FIRST], at[OF_MORSEL] = first, place\n",
    ),
    "a stamp without release": ("one slot", "races", send, "store(slot", "store_relaxed(slot"),
    "the flag is looked at, then set": (
        "three at once",
        "values",
        send_pending,
        "if exchange(task + 8 * FLAG, 1) != 0:\n            return sent",
        "if load(task + 8 * FLAG) != 0:\n            return sent\n"
        "        store(task + 8 * FLAG, 1)",
    ),
    "the slot is given up before its outputs left": (
        "two slots",
        "races",
        _send_ready,
        "while load_acquire(_slot(s, n)) == n + 1 and _leave(plan, task, _slot(s, n)) != 0:",
        "while load_acquire(_slot(s, n)) == n + 1:\n"
        "        store_release(task + 8 * NEXT, n + 1)\n"
        "        _leave(plan, task, _slot(s, n))",
    ),
    "more are taken than there are slots": ("one slot", "values", take_input, "+ s[SIZE]", "+ 2"),
    "what had no room is forgotten": (
        "no room",
        "values",
        _send_chain,
        "if push_downstream(plan, task, morsel) == 0:\n            return sent",
        "push_downstream(plan, task, morsel)",
    ),
    "what has left leaves again": (
        "no room",
        "values",
        _send_chain,
        "chain[0] = following",
        "pass",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str) -> None:
    case, mode, *change = MISTAKES[mistake]
    assert problem(reordering(**CASES[case], mode=mode, changes=[Change(*change)]))


def test_the_lock_of_figure_2_is_needed() -> None:
    change = Change(send, "lock(task + 8 * FLAG)", "pass")
    assert problem(reordering(**CASES["three at once"], locked=1, changes=[change]))
