"""A task with several ports reads morsels in the order of their admission, under all schedules of
the threads that fill its ports (``interleave``). Each check must also find a mistake that is put
into the source. ``--full`` runs more workers and morsels."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from cql.executor.kernels.lib.atomics import fetch_add, load_acquire, pause
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.morsel_layout import FOLLOWING, HEADER, PARENT, PORT, SERIAL
from cql.executor.kernels.ordered import tables as of
from cql.executor.kernels.ordered.admission import admit
from cql.executor.kernels.ordered.handover import (
    PATH_BITS,
    is_through,
    next_input,
    next_port,
    place_of,
    release,
)
from cql.executor.kernels.ordered.reorder import _take_in_turn, send, take_input
from cql.executor.kernels.ordered.tables import NEXT, TICKET
from tests.support.models.interleave import Model, Scenario, explored, problem
from tests.support.models.lowered import Change
from tests.support.models.modelled_memory import require
from tests.support.models.ordered_tables import Tables

MODES = pytest.mark.parametrize("mode", ["races", "x86"])


# -- both ports come from tasks -----------------------------------------------------------------


def sends_of_port(plan: int, task: int, lane: int, outputs: int, port: int) -> None:
    """A worker of a stateless task that feeds ``port``; the serial numbers of the task's inputs are
    even for port 0, odd for port 1."""
    while take_input(plan, task, lane) != 0:
        ticket = words(lane, TICKET + 1)[TICKET]
        place = (2 * ticket + port) << PATH_BITS
        send(plan, task, ticket, words(outputs, ticket + 1)[ticket], place)


def reads(plan: int, task: int, seen: int, n: int) -> None:
    k = 0
    while k < n:
        morsel = next_input(plan, task)
        if morsel == 0:
            pause()
        else:
            words(seen, n)[k] = morsel
            k += 1


def ports(senders: int, outputs: list[int], **options: Any) -> Scenario:
    """Two stateless tasks feed a task with two ports; their inputs were admitted alternately.
    ``outputs[k]``: number of outputs of input k. ``senders``: workers of each stateless task."""
    model = Model(**options)
    tables = Tables(model, 3)
    above = [tables.task(of.STATELESS, size=2, edges=[(2, port)], lanes=senders) for port in (0, 1)]
    below = tables.task(of.SERIAL_ONE, ports=[0, 1])
    firsts: list[list[int]] = [[], []]
    expected = []
    for k, n in enumerate(outputs):
        tables.give(above[k % 2], [tables.morsel(k)])
        chain = [tables.morsel(k) for _ in range(n)]
        for one, other in pairwise(chain):
            model.put(one, {FOLLOWING: other})
        firsts[k % 2].append((*chain, 0)[0])
        expected += chain
    tables.turns(below, [(k << PATH_BITS, k % 2) for k in range(len(outputs))])
    for port in (0, 1):
        given = tables.list_of(firsts[port])
        for k in range(senders):
            lane = tables.lane(above[port], k)
            model.start(sends_of_port, tables.plan, above[port], lane, given, port)
    seen = model.words(len(expected))
    model.start(reads, tables.plan, below, seen, len(expected))

    def final() -> None:
        require(tables.values(seen, len(expected)) == expected, "not as they were admitted")

    return model, final


@pytest.mark.sampled
@pytest.mark.slow
@MODES
@pytest.mark.parametrize("outputs", [[1, 1, 1], [2, 0, 1], [0, 1, 2]], ids=str)
def test_ports_are_read_in_turn(outputs: list[int], mode: str, full: bool) -> None:
    explored(ports(1, outputs, mode=mode))
    if full:
        explored(ports(1, [1, *outputs, 1], mode=mode))
        explored(ports(2, outputs[:2], mode=mode))


OVER = "over = is_through(plan, p[FROM], place)"
BEFORE = f"        {OVER}\n"
MISTAKES = {
    "looks before it asks whether all has come": (
        next_port,
        f"{BEFORE}        if waiting(port) > 0:\n",
        f"        came = waiting(port)\n        {OVER}\n        if came > 0:\n",
    ),
    "whatever waits is taken": (next_port, "place_of(morsel) <= place", "place_of(morsel) >= 0"),
    "through when its last output is not": (is_through, ") > place", ") >= place"),
    "through while inputs wait": (
        is_through,
        "return 1 if load_acquire(task + 8 * NEXT) == given else 0",
        "return 1 if load_acquire(task + 8 * NEXT) <= given else 0",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str) -> None:
    assert problem(ports(1, [1, 1, 1, 1], mode="values", changes=[Change(*MISTAKES[mistake])]))


# -- morsels arrive on several paths, in turns -----------------------------------------------------


def forked(n: int, **options: Any) -> Scenario:
    """A task that feeds both ports of another task receives each serial number on two paths."""
    model = Model(**options)
    tables = Tables(model, 2)
    above = tables.task(of.STATELESS, size=4, edges=[(1, 0, 0), (1, 1, 1)], views=n)
    below = tables.task(of.SERIAL_ONE, ports=[0, 0])
    morsels = [tables.morsel(k // 2, PATH_NUMBER=k % 2 * 2) for k in range(n)]
    places = [k // 2 << PATH_BITS | k % 2 * 2 for k in range(n)]
    tables.give(above, morsels)
    tables.turns(below, [(place + port, port) for place in places for port in (0, 1)])
    model.start(passes_on, tables.plan, above, tables.lane(above), n)
    seen = model.words(2 * n)
    model.start(reads, tables.plan, below, seen, 2 * n)

    def final() -> None:
        found = [(model.get(v, PARENT), model.get(v, PORT)) for v in tables.values(seen, 2 * n)]
        require(
            found == [(morsel, port) for morsel in morsels for port in (0, 1)], "not depth first"
        )

    return model, final


@MODES
def test_ways_are_read_in_turn(mode: str, full: bool) -> None:
    explored(forked(4 if full else 3, mode=mode))


def test_ways_that_nobody_tells_apart() -> None:
    assert problem(forked(3, changes=[Change(place_of, " | u[PATH_NUMBER]", "")]))


# -- one port is an input --------------------------------------------------------------------------


def admits(plan: int, morsels: int, n: int) -> None:
    for k in range(n):
        while admit(plan, k % 2, words(morsels, n)[k], 0) == 0:
            pause()


def passes_on(plan: int, task: int, lane: int, n: int) -> None:
    k = 0
    while k < n:
        morsel = take_input(plan, task, lane)
        if morsel == 0:
            pause()
        else:
            send(plan, task, k, morsel, place_of(morsel))
            k += 1


def reads_serials(plan: int, task: int, seen: int, n: int) -> None:
    k = 0
    while k < n:
        morsel = next_input(plan, task)
        if morsel == 0:
            pause()
        else:
            words(seen, n)[k] = words(morsel, HEADER)[SERIAL]
            release(morsel)
            k += 1


def admitting(n: int, **options: Any) -> Scenario:
    """Morsels of two inputs are admitted alternately. The morsels of one input go to the reading
    task directly, the morsels of the other input go through a task that passes them on."""
    model = Model(**options)
    tables = Tables(model, 2)
    above = tables.task(of.STATELESS, edges=[(1, 1)])
    below = tables.task(of.SERIAL_ONE, ports=[-1, 0])
    for k, (target, port, path) in enumerate(((1, 0, [(1, 0)]), (0, 0, [(1, 1)]))):
        tables.input(k, target, port, path, tables.pool(2))
    morsels = tables.list_of([tables.morsel(k) for k in range(n)])
    model.start(admits, tables.plan, morsels, n)
    model.start(passes_on, tables.plan, above, tables.lane(above), n // 2)
    seen = model.words(n)
    model.start(reads_serials, tables.plan, below, seen, n)

    def final() -> None:
        require(tables.values(seen, n) == list(range(n)), "not as they were admitted")

    return model, final


@pytest.mark.slow
@MODES
def test_ports_of_inputs_are_read_in_turn(mode: str, full: bool) -> None:
    explored(admitting(5 if full else 4 if mode == "x86" else 3, mode=mode))


def test_a_turn_is_told_after_its_morsel_has_come() -> None:
    comes = "    push(plan, port_at(task_at(plan, i[TARGET]), i[TARGET_PORT]), entry)\n"
    told = "    fetch_add(plan + 8 * ADMITTED, 1)\n"
    changes = [Change(admit, comes, ""), Change(admit, told, comes + told)]
    assert problem(admitting(3, changes=changes))


# -- several workers read two ports ----------------------------------------------------------------


def works_alone_or_beside(
    plan: int, task: int, lane: int, seen: int, busy: int, total: int
) -> None:
    """A worker of a stateless task. ``busy`` counts those that are at a morsel of port 0, and 16
    for each at one of port 1, beside which nobody may be."""
    while load_acquire(task + 8 * NEXT) < total:
        morsel = take_input(plan, task, lane)
        if morsel == 0:
            pause()
            continue
        ticket, port = words(lane, TICKET + 1)[TICKET], words(morsel, HEADER)[PORT]
        before = fetch_add(busy, 16 if port == 1 else 1)
        require(before == 0 if port == 1 else before < 16, "beside what must be alone")
        words(seen, total)[ticket] = morsel
        fetch_add(busy, -16 if port == 1 else -1)
        send(plan, task, ticket, 0, place_of(morsel))


def alone(threads: int, came_to: list[int], **options: Any) -> Scenario:
    """Workers of a stateless task with two ports take its inputs, of which input k is at port
    ``came_to[k]``; those of port 1 must be worked on alone."""
    model = Model(**options)
    tables = Tables(model, 1)
    task = tables.task(of.STATELESS, size=4, ports=[-1, -1], lanes=threads)
    model.put(task, {of.ALONE: 1})
    morsels = [tables.morsel(k, PORT=port) for k, port in enumerate(came_to)]
    for morsel, port in zip(morsels, came_to, strict=True):
        tables.give(task, [morsel], port)
    tables.turns(task, [(k << PATH_BITS, port) for k, port in enumerate(came_to)])
    seen, busy = model.words(len(morsels)), model.words(1)
    for k in range(threads):
        lane = tables.lane(task, k)
        model.start(works_alone_or_beside, tables.plan, task, lane, seen, busy, len(morsels))

    def final() -> None:
        require(tables.values(seen, len(morsels)) == morsels, "not as they were admitted")

    return model, final


@pytest.mark.sampled
@pytest.mark.slow
@MODES
@pytest.mark.parametrize("came_to", [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]], ids=str)
def test_morsels_of_a_table_are_worked_on_alone(came_to: list[int], mode: str, full: bool) -> None:
    explored(alone(2, came_to, mode=mode))
    if full:
        explored(alone(3, came_to, mode=mode))


BAD_TURNS = {
    "two take at once": (
        _take_in_turn,
        "exchange(task + 8 * TAKING, 1) != 0",
        "load(task + 8 * TAKING) != 0",
    ),
    "before all before it are through": (_take_in_turn, "through < n:", "through < 0:"),
    "the next one before it is through": (_take_in_turn, "through >= s[OPEN]", "through >= 0"),
}


@pytest.mark.parametrize("mistake", BAD_TURNS)
def test_mistakes_of_turns(mistake: str) -> None:
    assert problem(alone(2, [0, 1, 0], mode="values", changes=[Change(*BAD_TURNS[mistake])]))
