"""Queries 1 to 4 of TPCx-BB as hand-written one-thread kernels, specialised for the numbers of
``tpcxbb``: rows in time order, dense users and items, click types as codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from benchmarks.bare import Bare
from benchmarks.tpcxbb import BUY, CART, CHECKOUT, ITEMS, KINDS, USERS, VIEW
from benchmarks.workloads import SECOND, Column, checksum

_HOUR = 3600 * SECOND
_DAY = 24 * _HOUR
#: Bits of an item number; a count takes the remaining bits of a word.
_BITS = 14
_LOW = (1 << _BITS) - 1
#: Slots of the tables of pairs and of tickets (powers of two).
_PLACES, _TICKETS = 1 << 20, 1 << 22
assert ITEMS <= _LOW


@njit(nogil=True, inline="always")
def _hash(k: Any) -> Any:
    k = np.uint64(k) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((k ^ (k >> np.uint64(29))) >> np.uint64(20))


@njit(nogil=True)
def _count(keys: Any, counts: Any, used: Any, n: Any, key: Any) -> Any:
    """Counts a pair of items; returns the number of distinct pairs."""
    p = _hash(key) & (keys.size - 1)
    while counts[p] != 0 and keys[p] != key:
        p = (p + 1) & (keys.size - 1)
    if counts[p] == 0:
        keys[p], used[n] = key, p
        n += 1
    counts[p] += 1
    return n


@njit(nogil=True)
def _leave(keys: Any, counts: Any, used: Any, n: Any, most: Any, end: Any, out: Any, j: Any) -> Any:
    """Emits the most frequent pairs in their order; the table is empty afterwards."""
    heap, size = np.empty(most, np.int64), 0  # a min-heap of the most frequent pairs
    for u in range(n):
        p = used[u]
        word = (counts[p] << (2 * _BITS)) | ((1 << (2 * _BITS)) - 1 - keys[p])
        counts[p] = 0
        if size == most and word <= heap[0]:
            continue
        at = size
        if size < most:
            size += 1
            while at > 0 and heap[(at - 1) >> 1] > word:
                heap[at] = heap[(at - 1) >> 1]
                at = (at - 1) >> 1
        else:
            at = 0
            while 2 * at + 1 < size:
                child = 2 * at + 1
                child += child + 1 < size and heap[child + 1] < heap[child]
                if heap[child] >= word:
                    break
                heap[at] = heap[child]
                at = child
        heap[at] = word
    ordered = np.sort(heap[:size])
    for k in range(size - 1, -1, -1):
        pair = (1 << (2 * _BITS)) - 1 - (ordered[k] & ((1 << (2 * _BITS)) - 1))
        out[0, j], out[1, j] = pair >> _BITS, pair & _LOW
        out[2, j], out[3, j] = ordered[k] >> (2 * _BITS), end
        j += 1
    return j


@njit(nogil=True)
def _q1(ts: Any, ticket: Any, store: Any, item: Any, out: Any) -> Any:
    keys, counts = np.empty(_PLACES, np.int64), np.zeros(_PLACES, np.int64)
    used = np.empty(_PLACES, np.int32)
    last = np.full(_TICKETS, -1, np.int32)  # latest row of a ticket's slot
    before = np.empty(ts.size, np.int32)
    n = j = 0
    end = (ts[0] // _HOUR + 1) * _HOUR
    for i in range(ts.size):
        if store[i] > 10:
            continue
        t = ts[i]
        if t >= end:
            j = _leave(keys, counts, used, n, 100, end, out, j)
            n, end = 0, (t // _HOUR + 1) * _HOUR
        p = _hash(ticket[i]) & (_TICKETS - 1)
        other = last[p]
        last[p], before[i] = i, other
        while other >= 0 and t - ts[other] <= _HOUR // 4:
            if ticket[other] == ticket[i] and item[other] != item[i]:
                a, b = min(item[i], item[other]), max(item[i], item[other])
                n = _count(keys, counts, used, n, (a << _BITS) | b)
            other = before[other]
    return _leave(keys, counts, used, n, 100, end, out, j)


@njit(nogil=True)
def _q2(ts: Any, user: Any, item: Any, out: Any) -> Any:
    last, of = np.full(USERS + 1, -1, np.int64), np.empty(USERS + 1, np.int32)
    number, size = np.full(ts.size, -1, np.int32), np.zeros(ts.size + 1, np.int32)
    ends = np.empty(ts.size, np.int64)
    made = 0
    for i in range(ts.size):  # the session of each row, and the end of the session
        u = user[i]
        if u == 0 or item[i] == 0:
            continue
        if last[u] < 0 or ts[i] - last[u] > _HOUR:
            of[u] = made
            made += 1
        last[u], number[i], ends[of[u]] = ts[i], of[u], ts[i] + _HOUR
        size[of[u]] += 1
    begins = np.cumsum(size[: made + 1]) - size[: made + 1]
    items, filled = np.empty(ts.size, np.int64), begins.copy()
    for i in range(ts.size):
        if number[i] >= 0:
            items[filled[number[i]]] = item[i]
            filled[number[i]] += 1
    keys, counts = np.empty(_PLACES, np.int64), np.zeros(_PLACES, np.int64)
    used = np.empty(_PLACES, np.int32)
    hours = (ends[:made] - 1) // _HOUR
    n = j = 0
    hour = hours.min()
    for s in np.argsort(hours, kind="mergesort"):
        if hours[s] != hour:
            j = _leave(keys, counts, used, n, 30, (hour + 1) * _HOUR, out, j)
            n, hour = 0, hours[s]
        seen = np.sort(items[begins[s] : begins[s] + size[s]])
        for a in range(seen.size):
            if a > 0 and seen[a] == seen[a - 1]:
                continue
            for b in range(a + 1, seen.size):
                if seen[b] != seen[b - 1]:
                    n = _count(keys, counts, used, n, (seen[a] << _BITS) | seen[b])
    return _leave(keys, counts, used, n, 30, (hour + 1) * _HOUR, out, j)


@njit(nogil=True)
def _leave_30(keys: Any, counts: Any, used: Any, n: Any, end: Any, out: Any, j: Any) -> Any:
    """Emits, for each item bought, the 30 items that were viewed most often."""
    words = np.empty(n, np.int64)
    for u in range(n):
        p = used[u]
        bought, viewed = keys[p] >> _BITS, keys[p] & _LOW
        words[u] = (bought << 40) | (((1 << 20) - 1 - counts[p]) << _BITS) | viewed
        counts[p] = 0
    words.sort()
    place = 0
    for k in range(n):
        bought = words[k] >> 40
        place = place + 1 if k > 0 and bought == words[k - 1] >> 40 else 0
        if place < 30:
            views = (1 << 20) - 1 - ((words[k] >> _BITS) & ((1 << 20) - 1))
            out[0, j], out[1, j], out[2, j], out[3, j] = bought, words[k] & _LOW, views, end
            j += 1
    return j


@njit(nogil=True)
def _q3(ts: Any, user: Any, item: Any, kind: Any, out: Any) -> Any:
    keys, counts = np.empty(_PLACES, np.int64), np.zeros(_PLACES, np.int64)
    used = np.empty(_PLACES, np.int32)
    when, what = np.full((USERS + 1, 5), -(1 << 62), np.int64), np.zeros((USERS + 1, 5), np.int64)
    place = np.zeros(USERS + 1, np.int64)
    n = j = 0
    end = (ts[0] // _DAY + 1) * _DAY
    for i in range(ts.size):
        u = user[i]
        if u == 0:
            continue
        if kind[i] == VIEW:
            when[u, place[u]], what[u, place[u]] = ts[i], item[i]
            place[u] = (place[u] + 1) % 5
        elif kind[i] == BUY:
            if ts[i] >= end:
                j = _leave_30(keys, counts, used, n, end, out, j)
                n, end = 0, (ts[i] // _DAY + 1) * _DAY
            for k in range(5):
                if ts[i] - when[u, k] <= 10 * _DAY:
                    n = _count(keys, counts, used, n, (item[i] << _BITS) | what[u, k])
    return _leave_30(keys, counts, used, n, end, out, j)


@njit(nogil=True)
def _q4(ts: Any, user: Any, kind: Any, pages: Any, many: Any) -> Any:
    first = ts[0] // _HOUR
    last, seen = np.full(USERS + 1, -1, np.int64), np.zeros(USERS + 1, np.int64)
    left = np.zeros(USERS + 1, np.bool_)  # with a cart
    paid = np.zeros(USERS + 1, np.bool_)
    for i in range(ts.size + USERS + 1):
        u = user[i] if i < ts.size else i - ts.size  # at the end all sessions close
        if u == 0:
            continue
        if last[u] >= 0 and (i >= ts.size or ts[i] - last[u] > _HOUR):
            if left[u] and not paid[u]:
                hour = (last[u] + _HOUR - 1) // _HOUR - first
                pages[hour] += seen[u]
                many[hour] += 1
            seen[u], left[u], paid[u] = 0, False, False
        if i < ts.size:
            last[u] = ts[i]
            seen[u] += 1
            left[u] |= kind[i] == CART
            paid[u] |= kind[i] == CHECKOUT
    return first


def q1(sales: pa.Table) -> Bare:
    columns = [_integers(sales[c]) for c in ("ts", "ticket_number", "store_sk", "item_sk")]
    out = np.empty((4, 100 * _windows(columns[0], _HOUR)), np.int64)
    return Bare(lambda: _q1(*columns, out), lambda n: checksum(*out[:, :n]))


def q2(clicks: pa.Table) -> Bare:
    ts, user, item, _ = _clicks(clicks)
    out = np.empty((4, 30 * _windows(ts, _HOUR)), np.int64)
    return Bare(lambda: _q2(ts, user, item, out), lambda n: checksum(*out[:, :n]))


def q3(clicks: pa.Table) -> Bare:
    ts, user, item, kind = _clicks(clicks)
    out = np.empty((4, 5 * int((kind == BUY).sum()) + 1), np.int64)
    return Bare(lambda: _q3(ts, user, item, kind, out), lambda n: checksum(*out[:, :n]))


def q4(clicks: pa.Table) -> Bare:
    ts, user, _, kind = _clicks(clicks)

    def run() -> tuple[Column, Column, Column]:
        pages, many = np.zeros((2, _windows(ts, _HOUR)), np.int64)
        first = _q4(ts, user, kind, pages, many)
        hours = np.flatnonzero(many)
        return pages[hours] / many[hours], many[hours], (first + hours + 1) * _HOUR

    return Bare(run, lambda made: checksum(made[0].view(np.int64), *made[1:]))


def _windows(ts: Column, width: int) -> int:
    """An upper bound on the number of windows; the last one may hold sessions that end an hour
    later."""
    return int(ts[-1] // width - ts[0] // width) + 3


def _clicks(clicks: pa.Table) -> list[Column]:
    """The columns of the clicks as integers; unknown users and items are 0."""
    names = clicks["click_type"].combine_chunks()
    codes = pa.compute.index_in(names, pa.array(KINDS)).to_numpy().astype(np.int8)
    return [*(_integers(clicks[c]) for c in ("ts", "user_sk", "item_sk")), codes]


def _integers(column: pa.ChunkedArray) -> Column:
    return np.ascontiguousarray(column.cast("int64").fill_null(0).to_numpy())
