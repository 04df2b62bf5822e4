"""On-demand paging (UpStream report, section 7.1): a page leaves the pool when no page in use has a
place left, and returns to it as soon as it is empty. Freed places are used first.

Its twin, preallocated storage, keeps a place per key for ever (section 7.3, "naive").
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.updates.layout import (
    AFTER,
    FREED,
    FRESH,
    IN_USE,
    NEXT_PAGE,
    OPEN_PAGE,
    PAGE_AFTER,
    PAGE_BEFORE,
    PAGE_ROWS,
    PAGES,
    PAGES_USED,
    PLACES_USED,
    RETURNED,
    UNUSED,
    pages_of,
    places_of,
)
from cql.executor.kernels.updates.lists import link_first, unlink_from


@njit("int64(int64[::1])", nogil=True, cache=True)
def free_places(q: Any) -> int:
    """Places that are left without growth of the pool."""
    return int(q[PAGES] * q[PAGE_ROWS] - q[PLACES_USED])


@njit("int64(int64[::1], int64[:, ::1])", nogil=True, cache=True)
def _allocate(q: Any, pages: Any) -> int:
    """PagePool.alloc: a page for use. The pool has one."""
    page = q[RETURNED]
    if page >= 0:
        q[RETURNED] = pages[page, PAGE_AFTER]
    else:
        page = q[UNUSED]
        q[UNUSED] += 1
    pages[page, FREED], pages[page, FRESH], pages[page, IN_USE] = -1, 0, 0
    q[PAGES_USED] += 1
    return int(page)


@njit(inline="always")
def _open(q: Any, pages: Any, page: int) -> None:
    """ELP.add."""
    link_first(q, pages, page, OPEN_PAGE, PAGE_AFTER, PAGE_BEFORE)


@njit(inline="always")
def _close(q: Any, pages: Any, page: int) -> None:
    """Takes a page out of the ELP."""
    unlink_from(q, pages, page, OPEN_PAGE, PAGE_AFTER, PAGE_BEFORE)


@njit(inline="always")
def mem_add(q: Any) -> int:
    """MemAdd: a free place, one that was freed if there is such a place. The pool is not
    exhausted (``free_places``)."""
    pages, places = pages_of(q), places_of(q)
    page = q[NEXT_PAGE]
    if page < 0:
        page = q[OPEN_PAGE]
        if page < 0:
            page = _allocate(q, pages)
            _open(q, pages, page)
        q[NEXT_PAGE] = page
    place = pages[page, FREED]
    if place >= 0:
        pages[page, FREED] = places[place, AFTER]
    else:
        place = page * q[PAGE_ROWS] + pages[page, FRESH]
        pages[page, FRESH] += 1
    pages[page, IN_USE] += 1
    if pages[page, IN_USE] == q[PAGE_ROWS]:
        _close(q, pages, page)
        q[NEXT_PAGE] = -1
    q[PLACES_USED] += 1
    return int(place)


@njit(inline="always")
def mem_rem(q: Any, place: int) -> None:
    """MemRem: frees a place, and its page once the page is empty."""
    pages, places = pages_of(q), places_of(q)
    page = place // q[PAGE_ROWS]
    if pages[page, IN_USE] == q[PAGE_ROWS]:
        _open(q, pages, page)
    places[place, AFTER] = pages[page, FREED]
    pages[page, FREED] = place
    pages[page, IN_USE] -= 1
    q[PLACES_USED] -= 1
    if pages[page, IN_USE] == 0:
        _close(q, pages, page)
        pages[page, PAGE_AFTER] = q[RETURNED]
        q[RETURNED] = page
        q[PAGES_USED] -= 1
        if q[NEXT_PAGE] == page:
            q[NEXT_PAGE] = -1
