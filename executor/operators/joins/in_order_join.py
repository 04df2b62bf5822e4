"""The in-order window joins as running operators: they manage the memory of rows, keys and waiting
results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.executor.codegen.kernel_builder import NEED_KIND, NEED_ROOM
from cql.executor.kernels.joins.in_order_join import NEED_RESULTS
from cql.executor.kernels.joins.oop_join import NONE, index_keys
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, NEVER
from cql.executor.morsel.morsel import Morsel, stored_dtype
from cql.executor.operators.joins import in_order_join_kernel
from cql.executor.operators.joins.in_order_join_kernel import AHEAD, NEED_KEYS, SYNCHRONOUS
from cql.executor.operators.joins.in_order_join_layout import Directory, Input
from cql.executor.operators.stage.kernel_operator import GeneratedOperator, fitting
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.store import Role
from cql.planner.nodes.physical import JoinOperator, WindowJoinExec, sources
from cql.planner.nodes.watermarks import NO_BOUND

_ROWS, _KEYS = 1 << 10, 1 << 10
#: Places of a hash index per key of its capacity.
_PLACES = 2
_UNLIMITED = 1 << 62
#: Counters of the largest numbers of rows and of results held at a time.
_PEAKS = ("peak_join_windows", "peak_input_queues", "peak_hold_buffer")


class WindowJoinOperator(GeneratedOperator):
    """State per input: a ring of ``room`` rows (a power of two). A row has its time, the first and
    the last result that wait for it, the next row of the same key, and the entry of that key.
    State per directory: the words of its keys, per key the first and the last row of each input,
    and the index over the keys. State per waiting result: its members and the next result."""

    def __init__(self, name: str, node: WindowJoinExec, workspace: Workspace) -> None:
        code = in_order_join_kernel.write(node)
        super().__init__(name, workspace, code.kernel)
        self.node = node
        self.inputs, self.directories = code.inputs, code.directories
        for one in self.inputs:
            self._take_rows(one, _ROWS)
            for word in ("watermark", "punctuated"):
                self.set(f"{word}{one.port}", NEVER)
            others = [o.port for o in self.inputs if o is not one]
            for other in others:
                self.set(f"reach{one.port}_{other}", node.reach(one.port, other))
            far = max(node.reach(one.port, other) for other in others)
            self.set(f"far{one.port}", min(max(0, far), NO_BOUND))
            self.set(f"time{one.port}", one.time)
            self.set(f"out_time{one.port}", NONE if one.out_time is None else one.out_time)
        for made in self.directories:
            self._take_keys(made, _KEYS)
        self._take_results(_ROWS)
        self.set("punctuated", NEVER)
        self.set("free", NONE)
        self.set("quantum", _UNLIMITED)
        self.set("rows", _ROWS)
        self.set("ports", len(self.inputs))
        self.set("time column", len(node.columns) if node.time else NONE)
        self._set_rule()

    def _set_rule(self) -> None:
        """Sets the rule by which the kernel joins rows ahead of the other inputs."""
        node = self.node
        ahead = node.operator is JoinOperator.FILTER_ORDER
        self.set("mode", AHEAD if ahead else SYNCHRONOUS)
        self.set("adaptive", node.operator is JoinOperator.ADAPTIVE)
        self.set("measures", node.cost is None)
        self._set_real("alpha", node.alpha)
        self._set_real("cost", (node.cost or 0.0) * node.second)
        self._set_real("step", node.second / 1e9)

    # -- room --------------------------------------------------------------------------------------

    def _of_rows(self, one: Input) -> dict[str, np.dtype[Any]]:
        """The arrays with one value per row of an input: name → dtype."""
        p = one.port
        found: dict[str, np.dtype[Any]] = {f"t{p}": np.dtype(np.int64)}
        found |= {f"{end}{p}": np.dtype(np.int32) for end in ("oldest", "newest")}
        for c in one.kept:
            if c == one.time and not one.separate_times:
                continue
            found[f"c{p}_{c}"] = stored_dtype(one.schema[c].type.storage)
            if one.schema[c].nullable:
                found[f"m{p}_{c}"] = np.dtype(np.uint8)
        for made in self.directories:
            if p in made.members:
                found[f"next{made.number}_{p}"] = np.dtype(np.int64)
                found[f"entry{made.number}_{p}"] = np.dtype(np.int32)
        return found

    def _of_keys(self, made: Directory) -> dict[str, np.dtype[Any]]:
        k = made.number
        names = [f"key{k}_{w}" for w in range(made.words)]
        names += [f"{end}{k}_{p}" for p in made.members for end in ("first", "last")]
        return dict.fromkeys(names, np.dtype(np.int64))

    def _take_rows(self, one: Input, room: int) -> None:
        """Resizes the ring of an input to ``room`` rows. Rows keep their numbers, so their places
        in the ring change."""
        p, before = one.port, self.get(f"room{one.port}")
        numbers = self._numbers(one)
        for name, dtype in self._of_rows(one).items():
            old = self.fresh(name, room, dtype)
            if old.size:
                self.state[name][numbers & (room - 1)] = old[numbers & (before - 1)]
        self.set(f"room{p}", room)

    def _numbers(self, one: Input) -> npt.NDArray[np.int64]:
        """The numbers of the rows in the ring of an input."""
        return np.arange(self.get(f"keep{one.port}"), self.get(f"tail{one.port}"))

    def _take_keys(self, made: Directory, room: int) -> None:
        k = made.number
        for name, dtype in self._of_keys(made).items():
            self.resize(name, room, dtype)
        self.set(f"keys{k}", room)
        self.fresh(f"index{k}", _PLACES * room, np.int64, Role.DERIVED)
        self.set(f"imask{k}", _PLACES * room - 1)
        self._index(made)

    def _take_results(self, room: int) -> None:
        self.resize("following", room, np.int32)
        for one in self.inputs:
            self.resize(f"member{one.port}", room, np.int64)
        self.set("pool", room)

    def _index(self, made: Directory) -> None:
        index = self.state[f"index{made.number}"]
        index[:] = 0
        words = [self.state[f"key{made.number}_{w}"] for w in range(made.words)]
        index_keys(np.ascontiguousarray(words), self.get(f"count{made.number}"), index)

    def rebuild(self) -> None:
        for made in self.directories:
            self._take_keys(made, self.get(f"keys{made.number}"))

    def _forget_keys(self, made: Directory) -> int:
        """Removes the keys without rows; returns the number of keys that stay."""
        k, count = made.number, self.get(f"count{made.number}")
        firsts = [self.state[f"first{k}_{p}"][:count] for p in made.members]
        stay = np.flatnonzero(np.logical_or.reduce([first != NONE for first in firsts]))
        place = np.full(count, NONE, np.int32)
        place[stay] = np.arange(stay.size, dtype=np.int32)
        for p in made.members:
            one = self.inputs[p]
            numbers = np.arange(self.get(f"head{p}"), self.get(f"done{p}"))
            linked = numbers & (self.get(f"room{p}") - 1)
            entries = self.state[f"entry{k}_{one.port}"]
            entries[linked] = place[entries[linked]]
        for name in self._of_keys(made):
            self.state[name][: stay.size] = self.state[name][stay]
        self.set(f"count{k}", stay.size)
        return int(stay.size)

    def _set_real(self, name: str, value: float) -> None:
        self.set(name, int(np.float64(value).view(np.int64)))

    # -- called by the runtime ---------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        detail, rows = int(morsel.words[DETAIL]), int(morsel.words[DETAIL_ROW])
        assert detail & NEED_KIND == NEED_ROOM, detail
        number = detail & ~NEED_KIND
        if number >= NEED_KEYS:
            made = self.directories[number - NEED_KEYS]
            room = fitting(2 * self._forget_keys(made), self.get(f"keys{made.number}"), _KEYS)
            self._take_keys(made, room)
        elif number == NEED_RESULTS:
            self._take_results(fitting(2 * self.get("top"), self.get("pool"), _ROWS))
        else:
            one = self.inputs[number]
            wanted = self._numbers(one).size + rows
            self._take_rows(one, fitting(wanted, self.get(f"room{number}"), _ROWS))

    def counters(self) -> dict[str, int]:
        """``rows_in`` = ``held`` (in windows) + ``queued`` + ``purged`` + the rows left out."""
        head, done, tail = (
            [self.get(f"{word}{one.port}") for one in self.inputs]
            for word in ("head", "done", "tail")
        )
        found = self.counted()
        found |= {"held": sum(done) - sum(head), "queued": sum(tail) - sum(done)}
        found |= {"purged": sum(head), "held_results": self.get("held")}
        return found | {name: self.get(name) for name in _PEAKS}

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, the number of its rows that arrived below the bound that the port got
        while it was idle."""
        names = (", ".join(s.name for s in sources(child)) for child in self.node.inputs)
        return [(n, self.get(f"too_late_{p}")) for p, n in enumerate(names)]

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        for one in self.inputs:
            there = self._numbers(one) & (self.get(f"room{one.port}") - 1)
            for c in one.kept:
                if one.schema[c].type.is_coded:
                    yield Codes(self.state[f"c{one.port}_{c}"], there)
        for made in self.directories:
            count = self._forget_keys(made)
            self._index(made)
            for number, part in zip(made.sets, made.parts, strict=True):
                port, c = self.node.keys[number][0]
                if self.inputs[port].schema[c].type.is_coded:
                    words = self.state[f"key{made.number}_{part.word}"]
                    yield Codes(words[:count], shift=part.shift)

    def recoded(self) -> None:
        super().recoded()
        for made in self.directories:
            self._index(made)
