"""The tables of an update queue, walked in Python: every list is linked in both directions, no
place is in two hands, and the words that count are what the lists hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.kernels.updates import layout
from cql.executor.operators.updates.queue_state import QueueState, Storage


@dataclass
class Walked:
    """``order`` and ``by_age``: the places (windows: the keys) of the queue of keys; ``cutters``:
    how many of ``order`` cut in. ``held``: of each key, the event times in its window buffer.
    ``resting``: the places of the rows whose keys rest."""

    order: list[int]
    by_age: list[int]
    cutters: int
    ready: list[int]
    idle: list[int]
    active: list[int]
    held: dict[int, list[int]]
    resting: list[int] = field(default_factory=list)

    @property
    def held_places(self) -> list[int]:
        """The places of all rows that wait, of a queue without windows."""
        return [*self.order, *self.resting]


def _list(
    table: list[list[int]], first: int, after: int, before: int, last: int | None = None
) -> list[int]:
    found: list[int] = []
    previous, at = -1, first
    while at >= 0:
        assert len(found) <= len(table), "a list that has no end"
        assert table[at][before] == previous
        found.append(at)
        previous, at = at, table[at][after]
    assert last is None or last == previous
    return found


def table(state: QueueState, name: str) -> list[list[int]]:
    array = state.store.arrays.get(name)
    found: list[list[int]] = [] if array is None else array.tolist()
    return found


def walk(state: QueueState) -> Walked:
    q: list[int] = state.words.tolist()
    nodes = table(state, "places" if state.windows is None else "nodes")
    order = _list(nodes, q[layout.HEAD], layout.AFTER, layout.BEFORE, q[layout.TAIL])
    by_age = _list(nodes, q[layout.OLDEST], layout.YOUNGER, layout.OLDER, q[layout.YOUNGEST])
    assert sorted(order) == sorted(by_age)
    assert len(order) == q[layout.RESIDENTS]
    cutters = order.index(q[layout.LAST_CUTTER]) + 1 if q[layout.LAST_CUTTER] >= 0 else 0
    walked = Walked(order, by_age, cutters, [], [], [], {})
    if state.windows is None:
        ends = q[layout.FIRST_RESTING], layout.YOUNGER, layout.OLDER, q[layout.LAST_RESTING]
        walked.resting = _list(nodes, *ends)
        assert len(walked.resting) == q[layout.RESTING]
        floors = [nodes[place][layout.FLOOR] for place in walked.resting]
        assert floors == sorted(floors)
        _check_rests(state, walked)
        _check_cells(state, walked.held_places)
        _check_pages(state, _places_in_use(state, walked.held_places))
    else:
        _walk_windows(state, walked)
        _check_pages(state, _check_buffers(state, walked))
    return walked


def _check_rests(state: QueueState, walked: Walked) -> None:
    """The keys that rest are lists in the order in which they are due, and no others have rows that
    wait for that."""
    q: list[int] = state.words.tolist()
    rests, items = table(state, "rests"), table(state, "items")
    assert q[layout.ITEMS] == len(items)
    dues, resting = list[int](), list[int]()
    for number, item in enumerate(items):
        ends = item[layout.FIRST_REST], layout.REST_AFTER, layout.REST_BEFORE
        mine = _list(rests, *ends, item[layout.LAST_REST])
        assert all(rests[key][layout.REFRESH] == number for key in mine)
        times = [rests[key][layout.DUE] for key in mine]
        assert times == sorted(times)
        dues, resting = dues + times, resting + mine
    assert q[layout.NEXT_DUE] == min(dues, default=NEVER)
    for number, rest in enumerate(rests[: q[layout.KEYS]]):
        assert (rest[layout.DUE] != NEVER) == (number in resting)
    places = table(state, "places")
    waiting = {places[place][layout.OWNER] for place in walked.resting}
    assert waiting <= set(resting)
    assert not set(resting) & {places[place][layout.OWNER] for place in walked.order}


def _check_cells(state: QueueState, order: list[int]) -> None:
    q: list[int] = state.words.tolist()
    cells, places = table(state, "cells"), table(state, "places")
    waiting = dict[int, int]()
    for place in order:
        owner = places[place][layout.OWNER]
        waiting[owner] = waiting.get(owner, 0) + 1
    for number, cell in enumerate(cells[: q[layout.KEYS]]):
        assert cell[layout.WAITING] == waiting.get(number, 0)
        if cell[layout.WAITING]:
            assert cell[layout.SINCE] != NEVER
        if state.scheduler.value >= layout.FIFO and cell[layout.WAITING]:
            place = cell[layout.EP] * q[layout.PAGE_ROWS] + cell[layout.DL]
            assert places[place][layout.OWNER] == number
            assert place in order
        elif state.storage is Storage.PAGED:
            assert cell[layout.EP] == -1
        newest = cell[layout.NEWEST_PLACE]
        assert newest == -1 or places[newest][layout.OWNER] == number
        flight = cell[layout.IN_FLIGHT]
        assert flight == -1 or q[layout.DELIVERED] <= flight < q[layout.TAKEN]


def _places_in_use(state: QueueState, order: list[int]) -> set[int]:
    """The places of residents, and those that keys keep (PREALLOCATED)."""
    used = set(order)
    assert len(used) == len(order)
    if state.storage is Storage.PREALLOCATED and state.scheduler.value >= layout.FIFO:
        rows = int(state.words[layout.PAGE_ROWS])
        cells = table(state, "cells")[: int(state.words[layout.KEYS])]
        kept = [c[layout.EP] * rows + c[layout.DL] for c in cells if c[layout.EP] >= 0]
        assert len(kept) == len(set(kept))
        used |= set(kept)
    return used


def _check_pages(state: QueueState, used: set[int]) -> None:
    q: list[int] = state.words.tolist()
    rows = q[layout.PAGE_ROWS]
    places, pages = table(state, "places"), table(state, "pages")
    assert len(used) == q[layout.PLACES_USED]
    open_pages = _list(pages, q[layout.OPEN_PAGE], layout.PAGE_AFTER, layout.PAGE_BEFORE)
    returned, page = [], q[layout.RETURNED]
    while page >= 0:
        assert page not in returned
        returned.append(page)
        page = pages[page][layout.PAGE_AFTER]
    assert q[layout.UNUSED] <= q[layout.PAGES]
    in_use = sorted(set(range(q[layout.UNUSED])) - set(returned))
    assert len(in_use) == q[layout.PAGES_USED]
    for page in in_use:
        freed, place = set[int](), pages[page][layout.FREED]
        while place >= 0:
            assert place // rows == page
            assert place not in freed
            freed.add(place)
            place = places[place][layout.AFTER]
        fresh = pages[page][layout.FRESH]
        assert fresh <= rows
        mine = set(range(page * rows, page * rows + fresh)) - freed
        assert mine == {p for p in used if p // rows == page}
        assert 0 < len(mine) == pages[page][layout.IN_USE]  # an empty page goes back at once
        assert (page in open_pages) == (len(mine) < rows)
    assert set(open_pages) <= set(in_use)
    assert q[layout.NEXT_PAGE] == -1 or q[layout.NEXT_PAGE] in open_pages


# -- windows ---------------------------------------------------------------------------------------


def _walk_windows(state: QueueState, walked: Walked) -> None:
    q: list[int] = state.words.tolist()
    buffers, cells = table(state, "buffers"), table(state, "cells")
    links = layout.LINK_AFTER, layout.LINK_BEFORE
    walked.ready = _list(buffers, q[layout.READY_HEAD], *links, q[layout.READY_TAIL])
    walked.idle = _list(buffers, q[layout.IDLE_HEAD], *links)
    walked.active = _list(buffers, q[layout.ACTIVE_HEAD], layout.ACTIVE_AFTER, layout.ACTIVE_BEFORE)
    for number, buffer in enumerate(buffers[: q[layout.KEYS]]):
        assert (buffer[layout.STATE] == layout.READY) == (number in walked.ready)
        assert (buffer[layout.STATE] == layout.IDLE) == (number in walked.idle)
        assert buffer[layout.ACTIVE] == (number in walked.active)
        waits = cells[number][layout.WAITING] != 0
        assert (number in walked.order) == (waits and buffer[layout.STATE] == layout.NONE)
        assert waits == (cells[number][layout.SINCE] != NEVER)


def _check_buffers(state: QueueState, walked: Walked) -> set[int]:
    """Fills ``held``, and returns the blocks in use."""
    assert state.windows is not None
    q: list[int] = state.words.tolist()
    rows = state.windows.block_rows
    buffers, blocks = table(state, "buffers"), table(state, "blocks")
    events: Any = state.store.arrays.get("events")
    used = set[int]()
    for number, buffer in enumerate(buffers[: q[layout.KEYS]]):
        links = layout.BLOCK_AFTER, layout.BLOCK_BEFORE
        mine = _list(blocks, buffer[layout.FIRST_BLOCK], *links, buffer[layout.LAST_BLOCK])
        assert not used & set(mine)
        used |= set(mine)
        held, at = [], []
        for block in mine:
            begin, end = blocks[block][layout.DEQUEUED], blocks[block][layout.ENQUEUED]
            assert 0 <= begin < end <= rows
            held += events[block * rows + begin : block * rows + end].tolist()
            at += [(block, i) for i in range(begin, end)]
        assert held == sorted(held)
        if buffer[layout.STATE] in (layout.READY, layout.IDLE) and buffer[layout.DF_BLOCK] >= 0:
            assert (buffer[layout.DF_BLOCK], buffer[layout.DF_ROW]) in at
        if held:
            walked.held[number] = held
    assert sum(len(h) for h in walked.held.values()) == q[layout.ROWS_HELD]
    return used
