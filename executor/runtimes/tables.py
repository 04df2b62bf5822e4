"""Builds the tables of the ordered runtime (``kernels.ordered.tables``) for a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.executor.graph.graph import SINK, Edge, Graph
from cql.executor.kernels.lib import condition, mpmc_queue
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    HEADER,
    HOME,
    LATE_ROW_ADDRESS,
    OWN_LATE_ROWS,
)
from cql.executor.kernels.ordered import handover, markers, reorder, tables
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel, Words, value_bytes
from cql.executor.operators.contract import Operator, Parallelism
from cql.executor.operators.flow.hash_split import LISTS
from cql.executor.run.worker_scaling import cores
from cql.executor.runtimes.paths import feeders, paths_of, topological
from cql.executor.runtimes.times import MarkerTime, OperatorTime, Times, WorkerTime
from cql.executor.state.store import BUFFERS
from cql.planner.placement.choose_runtime import depth, power_of_two

#: Morsels that collect small results, for each gathered sink.
COLLECTORS = 4
#: Cells of a pool of free morsels; morsels beyond go to its chain, under a lock.
_POOL = 1 << 12
#: The tables have room for this many workers; unused pages cost no memory.
MOST_WORKERS = 64


_MOST_DEPTH = depth(MOST_WORKERS)
#: The least number of morsels that can wait at a port, and of output morsels of a serial task: a
#: task with several ports holds a morsel back until the feeder of another port has sent the next
#: one.
_LEAST_PLACES = 2
#: Unsuccessful looks for work, of half a microsecond each, before a worker sleeps: waking a worker
#: often takes longer than a short wait (with two workers and _FEW_LOOKS, TPCx-BB 4 took 7% longer).
_LOOKS, _FEW_LOOKS = 400, 50
#: Words of a shared allocation, and the maximal words of an array in one.
_WHOLE, _PART = 1 << 15, 1 << 12
#: Maximal number of markers: the first morsels are markers.
_MARKED = 1 << 14


def looks(workers: int, cores: int, *, live: bool) -> int:
    """The number of looks for work before a worker sleeps: few if inputs may pause (``live``), or
    if other workers need its core."""
    return _FEW_LOOKS if live or workers > cores else _LOOKS


#: The output morsels of all partitions of a task together have room for the rows of so many whole
#: ones; each has room for _LEAST_ROWS at least.
_TOGETHER, _LEAST_ROWS = 16, 1024


def _at_once(made: int, size: int) -> int:
    """The number of morsels to make when one is missing; ``made`` exist already, and ``size``
    inputs are worked on at once. Several, since a request to Python takes longer than making a
    morsel."""
    return max(size - made, min(made // 8 + 1, 32))


class Table:
    """Allocates arrays that kernels reach by address, and keeps them alive. Small arrays are parts
    of shared allocations."""

    def __init__(self) -> None:
        self._kept: list[npt.NDArray[np.int64]] = []
        self._free: Words = np.zeros(0, np.int64)

    def words(self, n: int) -> Words:
        """An array of ``n`` zeros that shares no cache line with another array."""
        size = n + -n % mpmc_queue.CACHE_LINE
        if size > _PART:
            return self._fresh(size)[:n]
        if size > self._free.size:
            self._free = self._fresh(_WHOLE)
        found, self._free = self._free[:n], self._free[size:]
        return found

    def _fresh(self, n: int) -> Words:
        raw = np.zeros(n + mpmc_queue.CACHE_LINE, np.int64)
        self._kept.append(raw)
        return raw[-raw.ctypes.data // 8 % mpmc_queue.CACHE_LINE :]

    def ring(self, size: int) -> int:
        """The address of an empty ring for ``size`` values, a power of two."""
        ring, cells = self.words(mpmc_queue.RING), self.words(mpmc_queue.CELL * size)
        mpmc_queue.open_ring(ring.ctypes.data, cells.ctypes.data, size)
        return int(ring.ctypes.data)


class Tasks:
    """The tables of a graph; ``plan`` is the header. ``resize`` is called with the bytes before and
    after whenever morsels are made or freed. ``timed``: measures ``times``. The number of
    ``workers`` can ``change``. ``slots``: the number of inputs of a task that are worked on at
    once, rounded up to a power of two, at most 256; 0: ``choose_runtime.depth`` of the workers."""

    #: For tests: the default of ``slots``.
    slots: ClassVar[int] = 0

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Schema],
        *,
        ones: int,
        morsel_rows: int,
        workers: int,
        gather: Mapping[int, int],
        live: bool,
        resize: Callable[[int, int, str], None],
        timed: bool,
        slots: int = 0,
    ) -> None:
        self.graph = graph
        requested = slots or self.slots
        self._slots = power_of_two(requested) if requested else 0
        self.order = topological(graph)
        self.place = {k: s for s, k in enumerate(self.order)}  # operator → task
        self.morsels: dict[int, Morsel] = {}  # all morsels and views by address; no fragments
        self._ones, self._rows, self._resize = ones, morsel_rows, resize
        self._had = 0  # the greatest number of workers so far
        self._live = live
        self._views: list[tuple[int, Schema]] = []  # pools of views, with their schemas
        self._lanes: dict[int, Words] = {}  # by task
        self._lists: dict[int, Words] = {}
        self._merged: dict[int, int] = {}  # by task: the number of morsels to merge outputs into
        self._ports_of: dict[int, Words] = {}
        self._gather = {k: rows for k, rows in gather.items() if rows > 0}
        self._table = table = Table()
        count = len(self.order)
        self.plan = table.words(tables.PLAN)
        plan = self.plan
        self._tasks = table.words(tables.TASK * count)
        self._workers = table.words(tables.WORKER * MOST_WORKERS)
        plan[tables.TASKS] = count
        plan[tables.FIRST_TASK] = self._tasks.ctypes.data
        plan[tables.FIRST_WORKER] = self._workers.ctypes.data
        plan[tables.TIMED] = timed
        ring, cells = plan[tables.SINK :], table.words(mpmc_queue.CELL * _POOL)
        mpmc_queue.open_ring(ring.ctypes.data, cells.ctypes.data, _POOL)
        condition.make_bed(plan[tables.SLEEPING :].ctypes.data)
        places = table.words(2 * morsel_rows * MOST_WORKERS)
        stride = 2 * count - 2 * count % -mpmc_queue.CACHE_LINE
        lengths = table.words(stride * MOST_WORKERS)
        crew, each = self._workers.reshape(MOST_WORKERS, -1), np.arange(MOST_WORKERS)
        crew[:, tables.AT] = -1
        crew[:, tables.SEED] = 88172645463325252 + 7919 * each
        crew[:, tables.PLACES] = places.ctypes.data + 16 * morsel_rows * each
        keyed = [o for o in graph.operators if o.parallelism is Parallelism.KEYED]
        parts = [len(o.instances) for o in keyed]
        merging = tables.MERGING_WORDS * max(parts, default=0)
        merging += -merging % mpmc_queue.CACHE_LINE
        nodes = table.words(merging * MOST_WORKERS)
        crew[:, tables.TOURNAMENT] = nodes.ctypes.data + 8 * merging * each
        crew[:, tables.LENGTHS] = lengths.ctypes.data + 8 * stride * each
        # By worker: the sampled lengths of worklists.
        self._lengths: list[Words] = list(lengths.reshape(MOST_WORKERS, -1)[:, : 2 * count])
        for s in range(count):
            self._task(s)
        self._connect(inputs)
        self._marks: Words = np.zeros(0, np.int64)
        if timed and self.entries:
            self._mark()
        self.change(workers)

    @property
    def address(self) -> int:
        return int(self.plan.ctypes.data)

    def task(self, s: int) -> Words:
        return self._tasks[tables.TASK * s : tables.TASK * (s + 1)]

    def worker(self, w: int) -> Words:
        return self._workers[tables.WORKER * w : tables.WORKER * (w + 1)]

    def lane(self, s: int, lane: int) -> Words:
        return self._lanes[s][tables.LANE * lane : tables.LANE * (lane + 1)]

    def times(self) -> Times | None:
        if not self.plan[tables.TIMED]:
            return None
        workers = [self.worker(w) for w in range(self._had)]
        return Times(
            tuple(self._time_of(self.place[k]) for k in range(len(self.order))),
            tuple(WorkerTime(int(w[tables.BUSY]), int(w[tables.ASLEEP])) for w in workers),
            self._marker_time(),
        )

    def _mark(self) -> None:
        """Makes the morsels of the first input markers (ordered-multicore paper, section 7), from
        the operator that receives them to the last operator."""
        first, last = self.place[self.entries[0].target], len(self.order) - 1
        self._marks = self._table.words(markers.MARK * _MARKED)
        plan = self.plan
        plan[tables.MARKS], plan[tables.MARKED] = self._marks.ctypes.data, _MARKED
        plan[tables.MARKED_FROM] = self.task(first).ctypes.data
        plan[tables.MARKED_TO] = self.task(last).ctypes.data

    def _marker_time(self) -> MarkerTime | None:
        """The latency of the markers; None if no marker has left the last operator."""
        marks = self._marks.reshape(-1, markers.MARK)
        entered, left = marks[:, markers.ENTERED], marks[:, markers.LEFT]
        times = (left - entered)[(entered > 0) & (left > 0)]
        if not len(times):
            return None
        p50, p99 = np.percentile(times, (50, 99))
        return MarkerTime(len(times), float(times.mean()), float(p50), float(p99))

    def _time_of(self, s: int) -> OperatorTime:
        words = self.task(s)
        noted = sum(int(self.worker(w)[tables.NOTED]) for w in range(self._had))
        found = self._lengths[: self._had]
        lengths = [(int(worker[2 * s]), int(worker[2 * s + 1])) for worker in found]
        reorder = None
        if words[tables.KIND] != tables.SERIAL_ONE:
            reorder = int(words[tables.HELD_FOR]) / max(int(words[tables.NEXT]), 1)
        return OperatorTime(
            int(words[tables.TIME]),
            int(words[tables.TOOK]),
            int(words[tables.PASSED_ON]),
            sum(total for total, _ in lengths) / max(noted, 1),
            max(longest for _, longest in lengths),
            reorder,
        )

    def input_at(self, s: int, lane: int) -> Morsel:
        """The input morsel that a lane works on; in a partitioned task, a fragment."""
        address, words = int(self.lane(s, lane)[tables.MORSEL]), self.task(s)
        if words[tables.KIND] != tables.PARTITIONED:
            return self.morsels[address]
        view = view_address(address, np.dtype(np.int64), int(words[tables.FRAGMENT]))
        return Morsel(view, [], [], view[:0], None)

    def place_of(self, s: int, ticket: int) -> int:
        """The place, in depth-first order, of the input with this ticket of a task; valid until its
        outputs have left."""
        words = self.task(s)
        slot = reorder.SLOT * (ticket & (int(words[tables.SIZE]) - 1))
        size = slot + reorder.SLOT
        view = view_address(int(words[tables.SLOTS]), np.dtype(np.int64), size)
        return int(view[slot + reorder.OF_MORSEL])

    # -- workers -----------------------------------------------------------------------------------

    def change(self, workers: int) -> None:
        """Changes the number of workers, and the sizes that depend on it. No morsel may be inside,
        and no worker may be at work."""
        self.plan[tables.WORKERS] = self.plan[tables.WANTED] = workers
        self.plan[tables.LOOKS] = looks(workers, cores(), live=self._live)
        self._had = max(self._had, workers)
        size = self._slots or depth(workers)
        places = max(size, _LEAST_PLACES)
        for s in range(len(self.order)):
            words, operator = self.task(s), self.graph.operators[self.order[s]]
            words[tables.SIZE] = places if words[tables.KIND] == tables.SERIAL_ONE else size
            operator.replicate(workers)
            self.bind(s)
            if words[tables.KIND] != tables.SERIAL_ONE:
                words[tables.MOST] = min(int(words[tables.LANES]), workers)
            for port in self.ports(s):
                port[tables.QUEUE_MASK] = places - 1
            if words[tables.KIND] == tables.PARTITIONED:
                self._lists[s][:] = 0  # the beginning of each list depends on SIZE
        for pool, schema in self._views:
            for _ in range(mpmc_queue.held(pool), places):
                self._view(schema, pool)
            for _ in range(places, mpmc_queue.held(pool)):
                self._resize(self.morsels.pop(mpmc_queue.poll(pool)).nbytes, 0, BUFFERS)

    # -- tasks ----------------------------------------------------------------------------------

    def _task(self, s: int) -> None:
        k, table = self.order[s], self._table
        operator, words = self.graph.operators[k], self.task(s)
        kind, lanes = tables.SERIAL_ONE, 1
        parallelism = operator.parallelism
        if parallelism is Parallelism.KEYED:
            kind, lanes = tables.PARTITIONED, len(operator.instances)
        elif parallelism is not Parallelism.SERIAL:
            kind, lanes = tables.STATELESS, MOST_WORKERS
        words[tables.KIND], words[tables.MOST] = kind, 1
        words[tables.NUMBER], words[tables.LANES] = k, lanes
        words[tables.RENUMBERS] = operator.any_instance.numbers_rows
        alone = operator.any_instance.port_alone
        words[tables.ALONE] = -1 if alone is None else alone
        self._lanes[s] = table.words(tables.LANE * lanes)
        words[tables.FIRST_LANE] = self._lanes[s].ctypes.data
        self._lanes[s][tables.CODE :: tables.LANE] = tables.NOT_CALLED
        words[tables.POOL] = table.ring(_POOL)
        words[tables.SLOTS] = table.words(reorder.SLOT * _MOST_DEPTH).ctypes.data
        passes = operator.any_instance.passes_by_reference
        words[tables.BORROWS] = passes or any(d is None for d in self.graph.morsels[k].data)
        if parallelism is Parallelism.KEYED:
            self._partitions(s, operator)
        self.bind(s)

    def _partitions(self, s: int, operator: Operator) -> None:
        """Makes the queues of the partitions of a task and the tables for merging their outputs."""
        words, table = self.task(s), self._table
        parts = len(operator.instances)
        wide = max(len(schema) for schema in self.graph.inputs[self.order[s]])
        size = HEADER + 2 * wide
        size += -size % mpmc_queue.CACHE_LINE
        master = 1 << (parts * _MOST_DEPTH).bit_length()
        words[tables.PARTS], words[tables.FRAGMENT] = parts, size
        words[tables.FRAGMENTS] = table.words(size * parts * _MOST_DEPTH).ctypes.data
        self._lists[s] = table.words((tables.FIRST_SERIAL + _MOST_DEPTH) * parts)
        words[tables.LISTS] = self._lists[s].ctypes.data
        words[tables.MASTER] = table.words(master).ctypes.data
        words[tables.MASTER_MASK] = master - 1
        words[tables.UNDONE] = table.words(_MOST_DEPTH).ctypes.data
        words[tables.OUTPUTS] = table.words(_MOST_DEPTH * parts).ctypes.data
        words[tables.MERGED] = table.ring(_POOL)
        schema = self.graph.schemas[self.order[s]]
        words[tables.ORDER] = operator.order_columns
        words[tables.WIDE] = len(schema) - operator.order_columns
        columns = table.words(2 * len(schema))
        for c, f in enumerate(schema):
            columns[2 * c : 2 * c + 2] = value_bytes(f.type), f.nullable
        words[tables.COLUMNS] = columns.ctypes.data

    def new_merged(self, s: int) -> None:
        """Makes more morsels to merge the outputs of the partitions into."""
        words, schema = self.task(s), self.graph.schemas[self.order[s]]
        plain = Schema(schema.fields[: int(words[tables.WIDE])])
        pool, made = int(words[tables.MERGED]), self._merged.get(s, 0)
        count = _at_once(made, int(words[tables.SIZE]))
        self._merged[s] = made + count
        for _ in range(count):
            morsel = Morsel.allocate(plain, self._rows, ones=self._ones, late_rows=True)
            handover.set_free(pool, self._own(morsel, pool).address)

    def bind(self, s: int) -> None:
        """Enters the address of a task's kernel and the descriptors of its lanes."""
        operator, words = self.graph.operators[self.order[s]], self.task(s)
        first, running = operator.any_instance, operator.instances
        words[tables.ADDRESS] = first.address
        lanes = self._lanes[s][tables.DESCRIPTOR :: tables.LANE]
        lanes[:] = first.descriptor.ctypes.data
        lanes[: len(running)] = [instance.descriptor.ctypes.data for instance in running]

    def new_morsel(self, s: int) -> Morsel:
        """Makes an output morsel of a task, and possibly more, which go to the task's pool."""
        words = self.task(s)
        pool, made = int(words[tables.POOL]), int(words[tables.MORSELS])
        count = 1
        if words[tables.KIND] != tables.SERIAL_ONE:
            count = _at_once(made, int(words[tables.SIZE]))
        model, schema = self.graph.morsels[self.order[s]], self.graph.schemas[self.order[s]]
        owned = frozenset(c for c, data in enumerate(model.data) if data is not None)
        masks = any(m is not None for m in model.masks) and not any(f.nullable for f in schema)
        capacity = int(model.words[CAPACITY])
        if words[tables.KIND] == tables.PARTITIONED:  # each partition may hold one
            shared = _TOGETHER * capacity // int(words[tables.PARTS])
            capacity = min(capacity, max(shared, _LEAST_ROWS))
        words[tables.MORSELS] += count
        morsels = [
            self._own(
                Morsel.allocate(
                    schema, capacity, ones=self._ones, owned=owned, late_rows=True, masks=masks
                ),
                pool,
            )
            for _ in range(count)
        ]
        for more in morsels[1:]:
            handover.set_free(pool, more.address)
        return morsels[0]

    def _own(self, morsel: Morsel, home: int) -> Morsel:
        morsel.words[HOME] = home
        morsel.words[OWN_LATE_ROWS] = morsel.words[LATE_ROW_ADDRESS]
        self._resize(0, morsel.nbytes, BUFFERS)
        self.morsels[morsel.address] = morsel
        return morsel

    # -- edges -------------------------------------------------------------------------------------

    def _connect(self, inputs: Sequence[Schema]) -> None:
        graph, table = self.graph, self._table
        self.collecting: list[tuple[int, Words]] = []  # operator and edge
        self.entries: list[Edge] = [e for e in graph.entries if e is not None]
        feeds = [k for k, e in enumerate(graph.entries) if e is not None]
        self.entries += [edge for _, edge in graph.constants]
        self.schemas = [inputs[k] for k in feeds] + [node.schema for node, _ in graph.constants]
        paths = paths_of(graph, self.entries)
        longest = max(map(len, paths.of_entries), default=0)
        for k, of in enumerate(feeders(graph)):
            ports = {port: -1 if j < 0 else self.place[j] for port, j in of.items()}
            self._ports(self.place[k], ports, longest)
        for k, edges in enumerate(graph.edges):
            self._edges(self.place[k], edges, paths.adds[k])
        records = table.words(tables.INPUT * len(self.entries))
        self.plan[tables.INPUTS] = len(self.entries)
        self.plan[tables.FIRST_INPUT] = records.ctypes.data
        for i, (edge, schema) in enumerate(zip(self.entries, self.schemas, strict=True)):
            record = records[tables.INPUT * i : tables.INPUT * (i + 1)]
            path = paths.of_entries[i]
            visits = table.words(tables.VISIT * len(path) + 1)
            for p, (k, port, path_number) in enumerate(path):
                visits[tables.VISIT * p : tables.VISIT * (p + 1)] = self.place[k], port, path_number
            record[tables.PATH], record[tables.PATHS] = visits.ctypes.data, len(path)
            record[tables.TARGET] = self.place[edge.target]
            record[tables.TARGET_PORT] = edge.port
            record[tables.ENTRY_POOL] = pool = table.ring(2 * _MOST_DEPTH)
            self._views.append((pool, schema))

    def ports(self, s: int) -> list[Words]:
        """The ports of a task."""
        size, ports = tables.PORT_WORDS, self._ports_of[s]
        return [ports[size * port : size * (port + 1)] for port in range(ports.size // size)]

    def _ports(self, s: int, of: dict[int, int], longest: int) -> None:
        words, table = self.task(s), self._table
        count = max(of, default=0) + 1
        self._ports_of[s] = table.words(tables.PORT_WORDS * count)
        words[tables.PORTS], words[tables.FIRST_PORT] = count, self._ports_of[s].ctypes.data
        for port, record in enumerate(self.ports(s)):
            record[tables.QUEUE] = table.words(_MOST_DEPTH).ctypes.data
            record[tables.FROM] = of.get(port, -1)
            operator = self.graph.operators[self.order[s]]
            if operator.parallelism is Parallelism.KEYED:
                columns = len(self.graph.inputs[self.order[s]][port])
                record[tables.SPLIT] = columns - len(LISTS) if operator.reads_lists else -1
        if count > 1:
            turns = max(_MOST_DEPTH, 1 << longest.bit_length())
            words[tables.TURNS] = table.words(turns).ctypes.data
            words[tables.TURNS_MASK] = turns - 1

    def _edges(self, s: int, edges: Sequence[Edge], adds: Sequence[int]) -> None:
        words, table = self.task(s), self._table
        records = table.words(tables.EDGE * len(edges) + 1)
        words[tables.EDGES], words[tables.FIRST_EDGE] = len(edges), records.ctypes.data
        for k, edge in enumerate(edges):
            record = records[tables.EDGE * k : tables.EDGE * (k + 1)]
            to = -1 if edge.target == SINK else self.place[edge.target]
            record[tables.TO_TASK], record[tables.TO_PORT] = to, edge.port
            record[tables.ADDS_PATH] = adds[k]
            if edge.target == SINK and self.order[s] in self._gather:
                self._collectors(s, record)
            if len(edges) > 1:
                record[tables.VIEWS] = pool = table.ring(2 * _MOST_DEPTH)
                self._views.append((pool, self.graph.schemas[self.order[s]]))

    def _collectors(self, s: int, record: Words) -> None:
        """Makes the morsels that collect the small results of a sink, so that fewer morsels go to
        Python."""
        order_columns = int(self.task(s)[tables.ORDER])
        fields = self.graph.schemas[self.order[s]].fields
        schema = Schema(fields[: len(fields) - order_columns])
        sizes = self._table.words(len(schema) + 1)
        sizes[: len(schema)] = [value_bytes(f.type) for f in schema]
        record[tables.COLLECTED] = sizes.ctypes.data
        record[tables.COLLECTED_COLUMNS], record[tables.BY_BLOCK] = len(schema), self._live
        record[tables.COLLECTORS] = pool = self._table.ring(2 * COLLECTORS)
        self.collecting.append((self.order[s], record))
        for _ in range(COLLECTORS):
            rows = self._gather[self.order[s]]
            morsel = Morsel.allocate(schema, rows, ones=self._ones, masks=True)
            mpmc_queue.offer(pool, self._own(morsel, pool).address)

    def _view(self, schema: Schema, pool: int) -> None:
        """Makes a view, a morsel without columns of its own, and adds it to ``pool``."""
        morsel = Morsel.allocate(
            schema, self._rows, ones=self._ones, owned=frozenset(), late_rows=True
        )
        self._own(morsel, pool)
        mpmc_queue.offer(pool, morsel.address)
