"""The fixed denominators: the machine's bandwidth, and hand-written kernels for the same work.

"Bare kernel" always means these kernels, never slower ones written for an occasion. They are
copies, unchanged down to their layout, compiled by the same numba. They have advantages that no
engine has: they know the schema, the window width and the sizes of hash table and output; their
output buffers are allocated before the clock starts, and they check nothing.
"""

# ruff: noqa: E501, E701, E702, E741, N802, N806
# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numba as nb
import numpy as np
from numba import njit

from benchmarks.workloads import (
    BAND,
    FINE,
    RANGE,
    SLIDE,
    T0,
    WIDTH,
    Answer,
    Column,
    Workload,
    checksum,
    sums,
)

#: The design's rate for kernel ``kA`` on one thread that reads 40 GB/s.
DESIGN_Q4_ROWS_PER_S = 187e6
DESIGN_READ_GB_PER_S = 40.0


# fmt: off
@njit(fastmath=True, nogil=True)
def ksum(a):
    s = 0.0
    for i in range(a.size): s += a[i]
    return s
@njit(nogil=True)
def ksumi(a):
    s0 = 0
    for i in range(a.size): s0 += a[i]
    return s0
@njit(nogil=True)
def kcopy(a, b):
    for i in range(a.size): b[i] = a[i]
@njit(fastmath=True, nogil=True)
def ktriad(a, b, c, s):
    for i in range(a.size): a[i] = b[i] + s * c[i]
def par(f, arrs, k):
    n = arrs[0].size; th = []
    for q in range(k):
        t = threading.Thread(target=f, args=tuple(a[q * n // k:(q + 1) * n // k] for a in arrs)); t.start(); th.append(t)
    for t in th: t.join()

# ---- packets: tumbling 10 s count(*) group by (src,dst); open-addressing hash, ordered input: one live window, flushed at the boundary
@njit(nogil=True, inline="always")
def hsh(k):
    k = nb.uint64(k) * nb.uint64(0x9E3779B97F4A7C15)
    return k ^ (k >> nb.uint64(29))
@njit(nogil=True)
def kA(src, dst, ts, width, cap, o_w, o_s, o_d, o_c):
    mask = cap - 1; keys = np.zeros(cap, np.int64); cnt = np.zeros(cap, np.int32); used = np.empty(cap, np.int32); nu = 0
    n = ts.size; no = 0; wend = (ts[0] // width + 1) * width
    for i in range(n):
        t = ts[i]
        if t >= wend:
            for u in range(nu):
                h = used[u]; o_w[no] = wend - width; o_s[no] = nb.int32(keys[h] >> 32); o_d[no] = nb.int32(keys[h]); o_c[no] = cnt[h]; no += 1; cnt[h] = 0
            nu = 0; wend = (t // width + 1) * width
        k = (nb.int64(src[i]) << 32) | (nb.int64(dst[i]) & 0xFFFFFFFF)
        h = nb.int64(hsh(k) >> nb.uint64(20)) & mask
        while cnt[h] != 0 and keys[h] != k: h = (h + 1) & mask
        if cnt[h] == 0: keys[h] = k; used[nu] = h; nu += 1
        cnt[h] += 1
    for u in range(nu):
        h = used[u]; o_w[no] = wend - width; o_s[no] = nb.int32(keys[h] >> 32); o_d[no] = nb.int32(keys[h]); o_c[no] = cnt[h]; no += 1
    return no

# ---- links: sliding via panes (1 min) then 5-pane combine; streaming order with late C is irrelevant to pane adds
@njit(nogil=True)
def kB(ts, ln, src, t0, slide, npan, ng, key, cap, cnt, sm, mn, mx):
    mask = cap - 1; kk = np.full(cap, -1, np.int64); kid = np.empty(cap, np.int32); nk = 0
    for i in range(ts.size):
        p = (ts[i] - t0) // slide
        k = nb.int64(src[i]); h = nb.int64(hsh(k) >> nb.uint64(20)) & mask
        while kk[h] != k and kk[h] != -1: h = (h + 1) & mask
        if kk[h] == -1: kk[h] = k; kid[h] = nk; key[nk] = k; nk += 1
        g = kid[h]; l = ln[i]
        cnt[p, g] += 1; sm[p, g] += l
        if l < mn[p, g]: mn[p, g] = l
        if l > mx[p, g]: mx[p, g] = l
    return nk
@njit(nogil=True)
def kB1(ts, t0, slide, cnt):
    for i in range(ts.size): cnt[(ts[i] - t0) // slide] += 1

# ---- bids
@njit(nogil=True)
def kq1(a, b, p, t, oa, ob, op, ot):
    for i in range(p.size): oa[i] = a[i]; ob[i] = b[i]; op[i] = p[i] * 908 // 1000; ot[i] = t[i]
@njit(nogil=True)
def kq1p(p, op):
    for i in range(p.size): op[i] = nb.int64(nb.uint64(p[i] * 908) // nb.uint64(1000))
@njit(nogil=True)
def kq2(a, p, oa, op):
    n = 0
    for i in range(a.size):
        x = nb.uint32(a[i])
        if x % nb.uint32(123) == 0: oa[n] = a[i]; op[n] = p[i]; n += 1
    return n
@njit(nogil=True)
def kC(s1, d1, p1, q1, t1, s2, d2, p2, q2, t2, band, width, t0, nw, cap):
    mask = cap - 1
    keyA = np.zeros(cap, np.int64); keyB = np.zeros(cap, np.int64); used = np.zeros(cap, np.uint8)
    head = np.full((2, cap), -1, np.int32); tail = np.full((2, cap), -1, np.int32)
    nx1 = np.full(t1.size, -1, np.int32); nx2 = np.full(t2.size, -1, np.int32)
    out = np.zeros(nw, np.int64); i = 0; j = 0
    while i < t1.size or j < t2.size:
        if j >= t2.size or (i < t1.size and t1[i] <= t2[j]):
            a = (nb.int64(s1[i]) << 32) | nb.int64(nb.uint32(d1[i])); b = (nb.int64(p1[i]) << 32) | nb.int64(nb.uint32(q1[i])); side = 0; t = t1[i]
        else:
            a = (nb.int64(d2[j]) << 32) | nb.int64(nb.uint32(s2[j])); b = (nb.int64(q2[j]) << 32) | nb.int64(nb.uint32(p2[j])); side = 1; t = t2[j]
        h = nb.int64(hsh(nb.int64(hsh(a)) + b) >> nb.uint64(20)) & mask
        while used[h] == 1 and (keyA[h] != a or keyB[h] != b): h = (h + 1) & mask
        if used[h] == 0: used[h] = 1; keyA[h] = a; keyB[h] = b
        if side == 0:
            x = head[1, h]
            while x >= 0 and t2[x] < t - band: x = nx2[x]          # purge
            head[1, h] = x
            if x < 0: tail[1, h] = -1
            c = 0
            while x >= 0: c += 1; x = nx2[x]
            out[(t - t0) // width] += c
            if tail[0, h] >= 0: nx1[tail[0, h]] = i
            else: head[0, h] = i
            tail[0, h] = i; i += 1
        else:
            x = head[0, h]
            while x >= 0 and t1[x] < t - band: x = nx1[x]
            head[0, h] = x
            if x < 0: tail[0, h] = -1
            while x >= 0: out[(t1[x] - t0) // width] += 1; x = nx1[x]
            if tail[1, h] >= 0: nx2[tail[1, h]] = j
            else: head[1, h] = j
            tail[1, h] = j; j += 1
    return out
# fmt: on


# ----------------------------------------------------------------- bandwidth


def bandwidth(elements: int = 1 << 27, names: tuple[str, ...] | None = None) -> dict[str, float]:
    """GB/s (median of 5) of reading, copying (both directions counted) and the triad over float64
    and int64 arrays of ``elements`` (1 GiB each by default), on one thread and on two; ``names``
    selects measures."""
    n = elements
    triads = names is None or any(name.startswith("triad") for name in names)
    a, b, c = np.ones(n), np.zeros(n), np.ones(n if triads else 0)
    measures: Mapping[str, tuple[int, Callable[[int], None]]] = {
        "read float64": (8 * n, lambda k: par(ksum, [a], k)),
        "read int64": (8 * n, lambda k: par(ksumi, [a.view(np.int64)], k)),
        "copy": (16 * n, lambda k: par(kcopy, [a, b], k)),
        "np.copyto": (16 * n, lambda k: par(lambda x, y: np.copyto(y, x), [a, b], k)),
        "triad": (24 * n, lambda k: par(lambda x, y, z: ktriad(x, y, z, 3.0), [a, b, c], k)),
    }
    found: dict[str, float] = {}
    for name, (size, run) in measures.items():
        for threads in (1, 2):
            full = f"{name}, {threads} thread{'s' * (threads > 1)}"
            if names is None or full in names:
                found[full] = size / 1e9 / _median_seconds(run, threads)
    return found


def _median_seconds(run: Callable[[int], None], threads: int) -> float:
    run(threads)
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        run(threads)
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


# ----------------------------------------------------------------- the kernels on a workload


class Bare:
    """A kernel with its buffers: ``run`` is timed, ``answer`` converts the result for checking."""

    def __init__(self, run: Callable[[], Any], answer: Callable[[Any], Answer]) -> None:
        self.run = run
        self.answer = answer


def q4(workload: Workload) -> Bare:
    src, dst, ts = (workload.columns[c] for c in ("srcIP", "destIP", "ts"))
    room = 700_000
    out = [np.empty(room, t) for t in (np.int64, np.int32, np.int32, np.int64)]
    return Bare(
        lambda: kA(src, dst, ts, WIDTH, 1 << 18, *out),
        lambda n: checksum(*(column[:n] for column in out)),
    )


def links_count(workload: Workload) -> Bare:
    """Windows of 5 minutes that slide by 1 minute: 16 panes, then 20 sums."""
    ts = workload.columns["ts"]

    def run() -> tuple[Column, Column]:
        c = np.zeros(16, np.int64)
        kB1(ts, T0, SLIDE, c)
        p = np.concatenate([np.zeros(4, np.int64), c, np.zeros(4, np.int64)])
        return T0 + (np.arange(20) - 4) * SLIDE, np.array([p[i : i + 5].sum() for i in range(20)])

    return Bare(run, lambda made: checksum(*made))


def links_groups(workload: Workload) -> Bare:
    """The windows of ``links_count`` by address, with sum, minimum and maximum."""
    ts, length, src = (workload.columns[c] for c in ("ts", "len", "srcIP"))

    def run() -> list[Column]:
        panes = 16
        nk, key, cnt, sm, mn, mx = _panes(ts, length, src, SLIDE, panes)
        out = []
        for w in range(-4, panes):
            a, b = max(0, w), min(panes, w + 5)
            c = cnt[a:b, :nk].sum(0)
            g = np.nonzero(c)[0]
            least, most = mn[a:b, :nk].min(0)[g], mx[a:b, :nk].max(0)[g]
            start = np.full(len(g), T0 + w * SLIDE)
            out.append((start, key[:nk][g], c[g], sm[a:b, :nk].sum(0)[g], least, most))
        return [np.concatenate(column) for column in zip(*out, strict=True)]

    return Bare(run, lambda made: checksum(*made))


def links_fine(workload: Workload) -> Bare:
    """Windows of 5 minutes that slide by 5 seconds, count and sum by address. The panes come from
    the kernel of ``links_groups``, which computes minimum and maximum as well. A running total adds
    each new pane and subtracts each pane that leaves the window."""
    ts, length, src = (workload.columns[c] for c in ("ts", "len", "srcIP"))
    panes, over = int((ts.max() - T0) // FINE) + 1, RANGE // FINE

    def run() -> list[Column]:
        nk, key, cnt, sm, _, _ = _panes(ts, length, src, FINE, panes)
        c, s = np.zeros((2, nk), np.int64)
        out = []
        for w in range(1 - over, panes):
            if (entering := w + over - 1) < panes:
                c += cnt[entering, :nk]
                s += sm[entering, :nk]
            if w > 0:
                c -= cnt[w - 1, :nk]
                s -= sm[w - 1, :nk]
            g = np.nonzero(c)[0]
            out.append((np.full(len(g), T0 + w * FINE), key[:nk][g], c[g], s[g]))
        return [np.concatenate(column) for column in zip(*out, strict=True)]

    return Bare(run, lambda made: checksum(*made))


def _panes(ts: Column, length: Column, src: Column, slide: int, panes: int) -> tuple[Any, ...]:
    """The number of addresses, the addresses, and count, sum, minimum, maximum by pane and
    address."""
    cnt = np.zeros((panes, 1024), np.int64)
    sm = cnt.copy()
    mn, mx = np.full((panes, 1024), 2**31 - 1, np.int64), np.full((panes, 1024), -1, np.int64)
    key = np.empty(1024, np.int64)
    nk = kB(ts, length, src, T0, slide, panes, 1024, key, 1 << 12, cnt, sm, mn, mx)
    return nk, key, cnt, sm, mn, mx


def q7(workload: Workload) -> Bare:
    """The kernel never forgets a key, and knows the number of keys."""
    names = ("srcIP", "destIP", "srcPort", "destPort", "ts")
    left, right = ([workload.columns[f"{side}_{c}"] for c in names] for side in "lr")
    windows = int((left[-1].max() - T0) // WIDTH) + 1
    keys = len(np.unique(np.stack(left[:-1] + right[:-1]).reshape(8, -1), axis=1).T)
    room = 1 << int(2 * keys).bit_length()
    return Bare(
        lambda: kC(*left, *right, BAND, WIDTH, T0, windows, room),
        lambda counts: checksum(T0 + np.arange(windows) * WIDTH, counts),
    )


def q1(workload: Workload) -> Bare:
    """Writes every column of the output."""
    a, b, p, t = _bid_columns(workload)
    oa, ob, op, ot = (np.empty(len(a), np.int64) for _ in range(4))
    return Bare(lambda: kq1(a, b, p, t, oa, ob, op, ot), lambda _: sums(oa, op, ob, ot))


def q1_by_reference(workload: Workload) -> Bare:
    """Writes only the price; the other output columns are the input's."""
    a, b, p, t = _bid_columns(workload)
    op = np.empty(len(a), np.int64)
    return Bare(lambda: kq1p(p, op), lambda _: sums(a, op, b, t))


def q2(workload: Workload) -> Bare:
    a, _, p, _ = _bid_columns(workload)
    oa, op = np.empty(len(a), np.int64), np.empty(len(a), np.int64)
    return Bare(lambda: kq2(a, p, oa, op), lambda n: checksum(oa[:n], op[:n]))


def _bid_columns(workload: Workload) -> tuple[Column, Column, Column, Column]:
    a, b, p, t = (workload.columns[c] for c in ("auction", "bidder", "price", "ts"))
    return a, b, p, t
