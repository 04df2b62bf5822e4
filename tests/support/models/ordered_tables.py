"""Small tables of the ordered runtime (``kernels.ordered.tables``) in the memory of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cql.executor.kernels import morsel_layout as of_morsel
from cql.executor.kernels.lib.mpmc_queue import CELL, RING, offer, open_ring
from cql.executor.kernels.ordered import tables as of
from cql.executor.kernels.ordered.handover import PORT_BITS, push
from cql.executor.kernels.ordered.reorder import SLOT
from cql.executor.kernels.ordered.tables import EDGE, INPUT, LANE, PLAN, PORT_WORDS, TASK, WORKER
from tests.support.models.interleave import Model

#: Words of a morsel, with three columns.
MORSEL = of_morsel.HEADER + 6


def named(module: object, values: Mapping[str, int]) -> dict[int, int]:
    return {getattr(module, name): value for name, value in values.items()}


class Tables:
    """The tables of one query; ``plan`` is the address of the header. Tasks are added one after the
    other; the words of a record are passed by name."""

    def __init__(self, model: Model, count: int, *, workers: int = 0, **header: int) -> None:
        self.model = model
        self.plan = model.words(PLAN)
        self._tasks, self._count = model.words(TASK * count), 0
        self._workers = model.words(WORKER * workers)
        model.run(open_ring, self.plan + 8 * of.SINK, model.words(CELL * 16), 16)
        values = {
            "TASKS": count,
            "FIRST_TASK": self._tasks,
            "FIRST_WORKER": self._workers,
            "WORKERS": workers,
            "WANTED": workers,
            "FIRST_INPUT": model.words(4 * INPUT),
        }
        model.put(self.plan, named(of, {**values, **header}))
        for w in range(workers):
            model.put(self.worker(w), {of.AT: -1})

    def task(
        self,
        kind: int,
        *,
        size: int = 2,
        ports: Sequence[int] = (-1,),
        edges: Sequence[tuple[int, ...]] = (),
        queue: int = 4,
        lanes: int = 1,
        parts: int = 0,
        views: int = 0,
    ) -> int:
        """Adds a task; returns its address. ``ports``: for each port the task that feeds it;
        ``edges``: for each edge the target task, the target port, and the number that the edge adds
        to the PATH_NUMBER of a morsel; ``queue``: places of a port's worklist; ``views``: free
        views of each edge."""
        model = self.model
        address = self._tasks + 8 * TASK * self._count
        values = {
            "KIND": kind,
            "NUMBER": self._count,
            "SIZE": size,
            "SLOTS": model.words(SLOT * size),
            "PORTS": len(ports),
            "FIRST_PORT": model.words(PORT_WORDS * len(ports)),
            "EDGES": len(edges),
            "FIRST_EDGE": model.words(EDGE * len(edges)),
            "LANES": lanes,
            "FIRST_LANE": model.words(LANE * max(lanes, parts)),
            "TURNS": model.words(8),
            "TURNS_MASK": 7,
        }
        self._count += 1
        model.put(address, named(of, values))
        for k, source in enumerate(ports):
            port = {
                "QUEUE": model.words(queue),
                "QUEUE_MASK": queue - 1,
                "FROM": source,
                "SPLIT": 0,
            }
            model.put(self.port(address, k), named(of, port))
        for k, (target, port_number, *adds) in enumerate(edges):
            edge = {"TO_TASK": target, "TO_PORT": port_number, "VIEWS": self.pool(views)}
            edge["ADDS_PATH"] = sum(adds)
            model.put(values["FIRST_EDGE"] + 8 * EDGE * k, named(of, edge))
        if parts:
            self._parts(address, size, parts)
        return address

    def _parts(self, task: int, size: int, parts: int) -> None:
        model, master = self.model, 1 << (parts * size - 1).bit_length()  # the least power of two
        values = {
            "PARTS": parts,
            "FRAGMENT": MORSEL,
            "FRAGMENTS": model.words(MORSEL * parts * size),
            "LISTS": model.words((of.FIRST_SERIAL + size) * parts),
            "MASTER": model.words(master),
            "MASTER_MASK": master - 1,
            "UNDONE": model.words(size),
            "OUTPUTS": model.words(size * parts),
        }
        model.put(task, named(of, values))

    def port(self, task: int, port: int = 0) -> int:
        return self.model.get(task, of.FIRST_PORT) + 8 * PORT_WORDS * port

    def lane(self, task: int, lane: int = 0) -> int:
        return self.model.get(task, of.FIRST_LANE) + 8 * LANE * lane

    def part(self, task: int, part: int) -> int:
        """The queue of a partition."""
        size = self.model.get(task, of.SIZE)
        return self.model.get(task, of.LISTS) + 8 * (of.FIRST_SERIAL + size) * part

    def views(self, task: int, edge: int) -> int:
        return self.model.get(self.model.get(task, of.FIRST_EDGE) + 8 * EDGE * edge, of.VIEWS)

    def worker(self, w: int) -> int:
        return self._workers + 8 * WORKER * w

    def ring(self, size: int, values: Sequence[int] = ()) -> int:
        """Makes a ring of ``size`` cells that holds ``values``; returns its address."""
        ring = self.model.words(RING)
        self.model.run(open_ring, ring, self.model.words(CELL * size), size)
        for value in values:
            self.model.run(offer, ring, value)
        return ring

    def pool(self, n: int) -> int:
        """Makes a ring of ``n`` free morsels; returns its address, or 0 if ``n`` is 0."""
        if n == 0:
            return 0
        ring = self.ring(4)
        for _ in range(n):
            self.model.run(offer, ring, self.morsel(0, HOME=ring, REFERENCES=0))
        return ring

    def morsel(self, serial: int, **words: int) -> int:
        """Makes a morsel with one row; returns its address."""
        address = self.model.words(MORSEL)
        values = {"SERIAL": serial, "ROWS": 1, "WIDTH": MORSEL, "REFERENCES": 1}
        self.model.put(address, named(of_morsel, {**values, **words}))
        return address

    def split_morsel(self, serial: int, rows: Sequence[int], home: int) -> int:
        """Makes a morsel with ``rows[q]`` rows for partition q; returns its address."""
        offsets = [sum(rows[:q]) for q in range(len(rows) + 1)] + [0] * (len(rows) + 1)
        address = self.morsel(serial, ROWS=sum(rows), HOME=home)
        self.model.put(address, {of_morsel.data_word(1): self.list_of(offsets)})
        return address

    def give(self, task: int, morsels: Sequence[int], port: int = 0) -> None:
        """Puts morsels on a worklist before the threads start."""
        for morsel in morsels:
            self.model.run(push, self.plan, self.port(task, port), morsel)

    def turns(self, task: int, turns: Sequence[tuple[int, int]]) -> None:
        """Sets the turns of a task with several ports: pairs of place and port."""
        at = self.model.get(task, of.TURNS)
        self.model.put(at, [place << PORT_BITS | port for place, port in turns])
        self.model.put(task, {of.TURN_PUT: len(turns)})

    def input(
        self, k: int, target: int, port: int, path: Sequence[tuple[int, int]], pool: int
    ) -> None:
        """Sets input ``k``. ``path``: pairs of task and port that its morsels visit."""
        values = {
            "ENTRY_POOL": pool,
            "PATH": self.list_of([word for port in path for word in (*port, 0)]),
            "PATHS": len(path),
            "TARGET": target,
            "TARGET_PORT": port,
        }
        address = self.model.get(self.plan, of.FIRST_INPUT) + 8 * INPUT * k
        self.model.put(address, named(of, values))

    def list_of(self, values: Sequence[int]) -> int:
        """Allocates words with these values; returns their address."""
        address = self.model.words(len(values))
        self.model.put(address, values)
        return address

    def values(self, address: int, n: int) -> list[int]:
        return [self.model.get(address, k) for k in range(n)]
