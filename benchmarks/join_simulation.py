"""The in-order window joins under a virtual clock: the real operators, one row at a time.

One server runs all queries. Joining a row takes ``cost`` seconds per live row of the window that it
probes, plus ``overhead`` seconds; all other work takes no time. Rows that arrive while the server
works wait. Concurrent queries take turns, one row each. The *response time* of a row is the time
from its arrival until it has been joined and no later row can produce a result that precedes its
results; then its results leave (in-order paper §4.1, §5.1). With several queries, the response time
of a row is the mean over the queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

import cql
from benchmarks.workloads import Column
from cql.base.model import Schema
from cql.executor.kernels.drive.depth_first import clear_output, start_morsel
from cql.executor.kernels.lib.memory import call_operator, words
from cql.executor.kernels.morsel_layout import DONE, HEADER, NEED, PUNCTUATIONS, ROWS, data_word
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.joins.in_order_join import WindowJoinOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.strings.dictionary import Dictionary
from cql.planner.nodes.physical import WindowJoinExec, walk
from cql.query.query import Query

Seconds = npt.NDArray[np.float64]
#: Rows per output morsel.
_CAPACITY = 1024


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows of two streams in order of arrival: ``port``, event time ``ts`` in microseconds, arrival
    time ``at`` in seconds, ``key``."""

    port: Column
    ts: Column
    at: Seconds
    key: Column

    def __post_init__(self) -> None:
        assert bool((np.diff(self.at) >= 0).all())


@dataclass(frozen=True, slots=True)
class Simulated:
    """``response`` per row in seconds, NaN for rows not finished at the end. ``results`` per query
    as (left time, key, right time, key). ``counters`` of the first query. ``busy`` seconds of the
    server."""

    response: Seconds
    results: list[list[tuple[int, ...]]]
    counters: dict[str, int]
    busy: float


def operators(
    name: str, window: float, *, queries: int, alpha: float, cost: float
) -> list[WindowJoinOperator]:
    """``queries`` running joins of two streams of (ts, k) on equal k within ``window`` seconds.
    ``cost`` is c for Adaptive, in seconds."""
    import pyarrow as pa

    empty = {"ts": pa.array([], pa.timestamp("us")), "k": pa.array([], pa.int64())}
    settings = {"join_operator": name, "join_alpha": f"{alpha:.15f}"}
    settings["join_cost"] = str(max(1, round(cost * 1e9)))
    with cql.connect(spark=False, **settings) as session:
        for stream in ("s", "t"):
            session.create_stream(stream, pa.table(empty), ordered_by="ts")
        query = session.sql(
            "SELECT s.ts AS lt, t.ts AS rt, s.k, t.k FROM s, t"
            f" WHERE s.k = t.k WINDOW {round(window * 1000)} MILLISECONDS"
        )
        assert isinstance(query, Query)
        node = next(n for n in walk(query._plan.root) if isinstance(n, WindowJoinExec))
    workspace = Workspace(Dictionary(), "on", _CAPACITY, 1 << 40)
    return [WindowJoinOperator(f"join#{q}", node, workspace) for q in range(queries)]


def simulate(
    joins: Sequence[WindowJoinOperator],
    arrivals: Arrivals,
    cost: float,
    *,
    overhead: float = 0.0,
    keep_results: bool = False,
) -> Simulated:
    """Runs the joins from the first arrival to the last."""
    node = joins[0].node
    ones = int(joins[0].workspace.ones.ctypes.data)
    outs = [Morsel.allocate(node.schema, _CAPACITY, ones=ones) for _ in joins]
    row = np.zeros((2, 2), np.int64)  # of each input: time, key
    morsels = [
        [_morsel(child.schema, row[p], ones) for p, child in enumerate(node.inputs)] for _ in outs
    ]
    for join in joins:
        join.set("quantum", 1)
    names = (*(f"{word}{port}" for port in range(2) for word in ("gone", "done")), "probed")
    tables = (
        np.array([join.descriptor.ctypes.data for join in joins], np.int64),
        np.array([[morsel.address for morsel in pair] for pair in morsels], np.int64),
        np.array([out.address for out in outs], np.int64),
        np.array([joins[0].slot(name) for name in names], np.int64),
        row,
    )
    arrived = arrivals.port, arrivals.ts, arrivals.at, arrivals.key
    numbers = [np.flatnonzero(arrivals.port == port) for port in range(2)]
    response, left = np.zeros(arrivals.port.size), np.zeros(arrivals.port.size, np.int64)
    control, clock = np.zeros(_WORDS, np.int64), np.zeros(2)
    control[_SHOWS] = keep_results
    over = np.zeros(len(joins), np.bool_)
    results: list[list[tuple[int, ...]]] = [[] for _ in joins]
    while True:
        event = _drive(
            joins[0].address,
            *tables,
            *arrived,
            *numbers,
            np.array([cost, overhead]),
            response,
            left,
            over,
            control,
            clock,
        )
        if event == _OVER:
            break
        query = int(control[_QUERY])
        if event == _NEEDS:
            joins[query].provide(morsels[query][int(arrivals.port[control[_NEXT]])])
        else:
            results[query] += _rows(outs[query], node)
    mean = np.where(left == len(joins), response / len(joins) - arrivals.at, np.nan)
    return Simulated(mean, results, joins[0].counters(), float(clock[1]))


def _morsel(schema: Schema, row: Column, ones: int) -> Morsel:
    """A morsel of one row whose values lie in ``row``."""
    morsel = Morsel.allocate(schema, 1, ones=ones, owned=frozenset())
    for i in range(len(row)):
        morsel.words[data_word(i)] = row[i:].ctypes.data
    return morsel


def _rows(out: Morsel, node: WindowJoinExec) -> list[tuple[int, ...]]:
    n = int(out.words[ROWS])
    columns = [data[:n].tolist() for data in out.data if data is not None]
    assert len(columns) == len(node.schema)
    return list(zip(*columns, strict=True))


_OVER, _NEEDS, _RESULTS = range(3)
# Words of the driver: the current arrival and query, the number of queries done with the arrival,
# whether the arrival has begun, whether the query's output was taken, whether results are kept.
_NEXT, _QUERY, _FULFILLED, _BEGUN, _TAKEN, _SHOWS, _WORDS = range(7)


@njit(cache=True)
def _drive(
    address: int,
    descriptors: Any,
    morsels: Any,
    outs: Any,
    slots: Any,
    row: Any,
    port: Any,
    ts: Any,
    at: Any,
    key: Any,
    number0: Any,
    number1: Any,
    costs: Any,
    response: Any,
    left: Any,
    over: Any,
    control: Any,
    clock: Any,
) -> int:
    """Continues from arrival ``control[_NEXT]``; call it again after any event but _OVER.
    ``response`` accumulates the times at which rows leave, ``left`` counts the queries that a row
    has left. ``clock``: the time at which the server is free, and its busy time, in seconds."""
    width = HEADER + 8
    queries = descriptors.size
    while control[_NEXT] < port.size:
        i = control[_NEXT]
        p = port[i]
        if control[_BEGUN] == 0:
            row[p, 0], row[p, 1] = ts[i], key[i]
            clock[0] = max(clock[0], at[i])
            for q in range(queries):
                morsel = words(morsels[q, p], width)
                start_morsel(morsel, p, outs[q])
                morsel[ROWS], morsel[PUNCTUATIONS] = 1, 0
                clear_output(words(outs[q], width))
                over[q] = False
            control[_BEGUN], control[_FULFILLED], control[_QUERY], control[_TAKEN] = 1, 0, 0, 0
        while control[_FULFILLED] < queries:
            q = control[_QUERY]
            if control[_TAKEN] != 0:
                control[_TAKEN] = 0
                clear_output(words(outs[q], width))
                control[_QUERY] = (q + 1) % queries
                continue
            if over[q]:
                control[_QUERY] = (q + 1) % queries
                continue
            d = words(descriptors[q], slots.max() + 1)
            gone0, done0, gone1, done1 = d[slots[0]], d[slots[1]], d[slots[2]], d[slots[3]]
            probed = d[slots[4]]
            code = call_operator(address, descriptors[q], morsels[q, p])
            joined = d[slots[1]] - done0 + d[slots[3]] - done1
            before = clock[0]
            taken = costs[0] * (d[slots[4]] - probed) + costs[1] * joined
            clock[0] += taken
            clock[1] += taken
            for k in range(gone0, d[slots[0]]):
                response[number0[k]] += clock[0] if k >= done0 else before
                left[number0[k]] += 1
            for k in range(gone1, d[slots[2]]):
                response[number1[k]] += clock[0] if k >= done1 else before
                left[number1[k]] += 1
            if code == NEED:
                return _NEEDS
            if code == DONE:
                over[q] = True
                control[_FULFILLED] += 1
            control[_TAKEN] = 1
            if control[_SHOWS] != 0 and words(outs[q], width)[ROWS] > 0:
                return _RESULTS
        control[_NEXT] += 1
        control[_BEGUN] = 0
    return _OVER
