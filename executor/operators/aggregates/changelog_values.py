"""The values that an aggregate over a changing relation keeps beside the states of its groups, for
DISTINCT and holistic calls. Values enter and leave.

Calls that need the number of different values, or the value at a place of their order, share
*counted* values (a treap per group). Calls that list rows in arrival order share *listed* values
(a chain per group). See ``kernels.relations.value_logs``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.executor.kernels.lib import treap
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.kernels.relations import value_logs as kernel
from cql.executor.operators.aggregates.holistic import (
    Entries,
    one_or_array,
    results,
    stored,
)
from cql.executor.operators.aggregates.percentiles import between, fraction, places_of
from cql.executor.operators.aggregates.value_log import ordering
from cql.executor.operators.relations.group_index import canonical
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.repartition import Places, Taken, Values
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, State, StateStore
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import AggregateCall

Array = npt.NDArray[Any]
Times = npt.NDArray[np.int64]
#: Values that are written out at a time, about.
_AT_ONCE = 1 << 22
#: Values that a buffer has room for between two pieces, at most.
_KEPT = 1 << 16
_NODES = 64
_SEED = 0x2545F4914F6CDD1D


@dataclass(frozen=True, slots=True)
class ValueLog:
    """The values that some calls share. ``calls``: the numbers of these calls. ``listed``: the log
    lists rows in arrival order; else it counts different values. ``needs_order`` (counted): a call
    needs the order of the values. ``distinct``: equal values count once."""

    number: int
    calls: tuple[int, ...]
    args: tuple[Expr, ...]
    where: Expr | None
    with_null: tuple[int, ...]
    listed: bool
    needs_order: bool
    distinct: bool


def value_logs(calls: Sequence[AggregateCall]) -> tuple[ValueLog, ...]:
    """One log for all calls over the same arguments under the same FILTER."""
    shared: dict[tuple[object, ...], list[int]] = {}
    for k, call in enumerate(calls):
        if call.beside:
            listed = call.holistic and call.by_time
            key = (call.args, call.where, ordering(call), listed, call.holistic, call.distinct)
            shared.setdefault(key, []).append(k)
    found = []
    for number, ks in enumerate(shared.values()):
        call = calls[ks[0]]
        null = tuple(n for n in sorted(ordering(call)) if call.args[n].nullable)
        listed = call.holistic and call.by_time
        log = ValueLog(
            number, tuple(ks), call.args, call.where, null, listed, call.holistic, call.distinct
        )
        found.append(log)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The (instant, group) pairs of a piece of changes; within an instant, groups are in the order
    of their first rows. ``owner``: the group of each pair. ``row_stop[i]`` and ``pair_stop[i]``:
    the first row and the first pair behind instant ``i``."""

    owner: Times
    row_stop: Times
    pair_stop: Times
    instants: int

    @classmethod
    def of(cls, times: Times, owners: Times, marked: npt.NDArray[np.uint8]) -> Pairs:
        """``marked``: scratch, 0 for each group."""
        n = times.size
        owner, row_stop, pair_stop = (np.empty(n, np.int64) for _ in range(3))
        pairs = np.zeros(1, np.int64)
        instants = kernel.pairs_of(times, owners, owner, row_stop, pair_stop, marked, pairs)
        return cls(owner[: int(pairs[0])], row_stop, pair_stop, int(instants))


class HeldValues(Stateful, ABC):
    """The values of one log, in arrays of an operator's ``store``: the ``nodes``, WIDTH words each,
    and their ``control`` (``kernels.lib.treap``); ``stale``: per group, whether its values have
    changed since they were last reported. ``take_in`` applies changes to the values and returns,
    by name, arrays for the aggregate's kernel."""

    #: The arrays with so many words per group, and the value of a word without values.
    of_group: ClassVar[Mapping[str, tuple[int, int]]]

    def __init__(
        self, log: ValueLog, calls: Sequence[AggregateCall], workspace: Workspace, store: StateStore
    ) -> None:
        self.log = log
        self.calls = calls
        self.workspace = workspace
        self._store = store
        store.resize(self.name("control"), treap.RANDOM + 1, np.int64)
        self._of("control")[:] = -1, 0, 0, _SEED
        self._more_nodes(_NODES)

    def name(self, array: str) -> str:
        """The name of an array in the store."""
        return f"{array} of values {self.log.number}"

    def _of(self, array: str) -> Array:
        return self._store.arrays[self.name(array)]

    @property
    @abstractmethod
    def width(self) -> int: ...

    @property
    def _nodes(self) -> Array:
        return self._of("nodes").reshape(-1, self.width)

    def _more_nodes(self, size: int) -> None:
        name = self.name("nodes")
        old = len(self._store.arrays.get(name, ()))
        self._store.resize(name, size * self.width, np.int64, clears=False)
        self._of("nodes")[old:] = -1

    @property
    @abstractmethod
    def writes_out(self) -> bool:
        """Whether it writes all values of a group out."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The largest number of values that are written out for one group."""

    def grow(self, known: int, size: int) -> None:
        """Makes room for ``size`` groups, of which ``known`` may have values."""
        for array, (width, empty) in self.of_group.items():
            dtype = np.uint8 if array == "stale" else np.int64
            self._store.resize(self.name(array), size * width, dtype, clears=False)
            self._of(array)[known * width :] = empty

    @property
    def words(self) -> list[int]:
        """The words of the log for the native operator (``value_logs.WORDS``)."""
        nodes, control, stale = map(self._of, ("nodes", "control", "stale"))
        roots, sizes = self._of_groups()
        return [
            *(nodes.ctypes.data, len(nodes) // self.width, self.width, control.ctypes.data),
            *(roots.ctypes.data, 0 if sizes is None else sizes.ctypes.data, stale.ctypes.data),
        ]

    @abstractmethod
    def _of_groups(self) -> tuple[Array, Array | None]:
        """Where the nodes of each group begin, and their numbers if the log lists values."""

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        for n in self._coded():
            column = self._nodes[:, n]
            yield Codes(column, column >= 0)

    @abstractmethod
    def _coded(self) -> list[int]:
        """The words of a node that hold codes."""

    # -- other partitions ------------------------------------------------------------------------

    @property
    def space(self) -> str:
        """The space of the nodes (``state.repartition``)."""
        return f"value {self.log.number}"

    #: The words of a node that are numbers of nodes.
    links: ClassVar[tuple[int, ...]]

    def layout(self, group: str) -> dict[str, Values]:
        """To what the arrays belong; ``group`` is the space of the groups."""
        refers = dict.fromkeys(self.links, self.space)
        found = {self.name("nodes"): Values(self.space, self.width, refers, -1)}
        for array, (width, empty) in self.of_group.items():
            refers = dict.fromkeys(range(width), self.space) if empty < 0 else {}
            found[self.name(array)] = Values(group, width, refers, empty)
        return found

    def take(self, k: int, saved: Snapshot, groups: Places, taken: Taken) -> None:
        """Takes the nodes of ``groups`` in old snapshot ``k``."""
        nodes = saved.arrays[self.name("nodes")].reshape(-1, self.width).copy()
        used = np.zeros(len(nodes), np.uint8)
        self._mark(nodes, saved, groups, used)
        taken.take(k, self.space, np.flatnonzero(used), len(nodes))

    @abstractmethod
    def _mark(self, nodes: Array, saved: Snapshot, groups: Places, used: Array) -> None: ...

    def size(self, taken: Taken) -> int:
        """The number of nodes that a new partition has room for."""
        return max(_NODES, taken.count(self.space))

    def controls(self, saved: Snapshot, taken: Taken) -> State:
        """The control of a new partition, whose first nodes are those that it has taken."""
        control, nodes = saved.arrays[self.name("control")].copy(), taken.count(self.space)
        control[[treap.FREE, treap.USED, treap.LIVE]] = -1, nodes, nodes
        return {self.name("control"): control}

    # -- a piece ---------------------------------------------------------------------------------

    @abstractmethod
    def take_in(
        self, rows: State, owners: Times, weights: Times, times: Times, sequence: int, pairs: Pairs
    ) -> dict[str, Array]: ...

    def _buffer(self, array: str, size: int, dtype: npt.DTypeLike = np.int64) -> Array:
        """A buffer with room for at least ``size`` values; its values stay."""
        name, old = self.name(array), self._store.arrays.get(self.name(array))
        if old is None or len(old) < size:
            size = size if old is None else max(2 * len(old), size)
            self._store.resize(name, size, dtype, Role.SCRATCH, clears=False)
        return self._of(array)

    def _release(self, *arrays: str) -> None:
        """Frees buffers that have become large."""
        for array in arrays:
            old = self._of(array)
            if len(old) > _KEPT:
                inner = np.dtype((old.dtype, old.shape[1:]))
                self._store.resize(self.name(array), 0, inner, Role.SCRATCH)

    def _kept(self, rows: State, weights: Times) -> npt.NDArray[np.uint8]:
        """Returns which rows count (1, else 0), and makes room for their values."""
        kept = np.ones(weights.size, np.bool_)
        for n, arg in enumerate(self.log.args):
            if n not in self.log.with_null:
                kept &= rows[f"m{_column(arg)}"] != 0
        if self.log.where is not None:
            at = _column(self.log.where)
            kept &= (rows[f"m{at}"] != 0) & (rows[f"c{at}"] != 0)
        wanted = int(self._of("control")[treap.LIVE]) + int(weights[kept & (weights > 0)].sum())
        if wanted > len(self._nodes):
            self._more_nodes(max(2 * len(self._nodes), wanted))
        return kept.astype(np.uint8)

    def _words(self, rows: State, n: int) -> Array:
        arg = self.log.args[n]
        values, valid = rows[f"c{_column(arg)}"], rows[f"m{_column(arg)}"] != 0
        if arg.type.is_fraction:
            bits = values.astype(np.float64).view(np.int64)
            return np.where(valid, canonical(values) if self.log.distinct else bits, 0)
        return np.where(valid, values, 0).astype(np.int64)


class CountedValues(HeldValues):
    """State: the different values of each group in order, with the multiplicity of each."""

    of_group: ClassVar = {"roots": (1, -1), "stale": (1, 1)}
    links: ClassVar = (treap.LEFT, treap.RIGHT)

    def __init__(
        self,
        log: ValueLog,
        calls: Sequence[AggregateCall],
        workspace: Workspace,
        store: StateStore,
        *,
        lists: bool,
    ) -> None:
        super().__init__(log, calls, workspace, store)
        self._lists = lists
        self._questions = [
            q for k in log.calls if calls[k].holistic for q in _questions_of(calls[k])
        ]
        kind = log.args[0].type
        self._how = treap.AS_DOUBLES if kind.is_fraction else treap.AS_INTEGERS
        if kind.is_coded and log.needs_order:
            self._how = treap.BY_RANK

    @property
    def width(self) -> int:
        return treap.PRIORITY + 1

    @property
    def writes_out(self) -> bool:
        return self._lists

    @property
    def largest(self) -> int:
        roots = self._of("roots")
        used = roots[roots >= 0]
        return int(self._nodes[used, treap.TOTAL].max()) if self._lists and used.size else 0

    def _of_groups(self) -> tuple[Array, Array | None]:
        return self._of("roots"), None

    def _mark(self, nodes: Array, saved: Snapshot, groups: Places, used: Array) -> None:
        treap.mark_treaps(nodes, saved.arrays[self.name("roots")][groups], used)

    def codes(self) -> Iterator[Codes]:
        if self._orders_codes:
            self._order = np.argsort(self._nodes[:, treap.VALUE])
        return super().codes()

    def recoded(self) -> None:
        """The order of the codes, which is that of the values if no call needs another one, stays
        in a compaction; another dictionary has another order."""
        super().recoded()
        if self._orders_codes:
            after = self._nodes[self._order, treap.VALUE]
            if (after[1:] < after[:-1]).any():
                control, roots = self._of("control"), self._of("roots")
                treap.order_again(self._nodes, control, roots, self.log.distinct)

    @property
    def _orders_codes(self) -> bool:
        return self._how == treap.AS_INTEGERS and bool(self._coded())

    def _coded(self) -> list[int]:
        return [treap.VALUE] if self.log.args[0].type.is_coded else []

    def _words(self, rows: State, n: int) -> Array:
        if self.log.args[n].type.is_fraction:
            return canonical(rows[f"c{_column(self.log.args[n])}"])
        return super()._words(rows, n)

    def take_in(
        self, rows: State, owners: Times, weights: Times, times: Times, sequence: int, pairs: Pairs
    ) -> dict[str, Array]:
        n, count, questions = owners.size, pairs.owner.size, self._questions
        kept, words = self._kept(rows, weights), self._words(rows, 0)
        by_rank = self._how == treap.BY_RANK
        rank = self.workspace.dictionary.rank() if by_rank else np.zeros(1, np.int32)
        shares = np.array([float(p) for p, _ in questions])
        kinds = np.array([q for _, q in questions], np.int64)
        moved, totals = np.empty(n, np.int64), np.empty(count, np.int64)
        fresh = np.empty(count, np.uint8)
        found = np.empty((count, len(questions), kernel.NEAR), np.int64)
        first, place = np.zeros(count + 1, np.int64), np.zeros(2, np.int64)
        values = self._buffer("values", _NODES)
        while wanted := kernel.count_values(
            self._nodes, self._of("control"), self._of("roots"), self._of("stale"), owners,
            weights, kept, words, self._how, rank, self.log.distinct, pairs.owner, pairs.row_stop,
            pairs.pair_stop, pairs.instants, moved, fresh, totals, shares, kinds, found,
            self._lists, first, values, place,
        ):  # fmt: skip
            values = self._buffer("values", wanted)
        number = self.log.number
        made: dict[str, Array] = {f"moved{number}": moved, f"fresh{number}": fresh}
        if self._lists:
            made |= {f"first{number}": first, f"values{number}": values}
            self._release("values")
        at = 0
        for k in self.log.calls:
            if self.calls[k].holistic:
                width = len(_questions_of(self.calls[k]))
                some = (fresh != 0) & (totals > 0)
                made |= self._results(k, totals, found[:, at : at + width], some)
                at += width
        return made

    def _results(self, k: int, totals: Times, found: Array, some: Array) -> dict[str, Array]:
        call = self.calls[k]
        values = stored(np.ascontiguousarray(found[some]), call.type.element or call.type)
        if call.fn == "mode":
            out = np.zeros(some.size, values.dtype)
            out[some] = values[:, 0, 0]
            return {f"res{k}": out, f"res{k}_ok": some}
        counts = totals[some]
        low, share = places_of(call, counts)
        lines = np.arange(counts.size)
        columns = np.zeros((some.size, len(call.constants)), values.dtype)
        for c, p in enumerate(map(fraction, call.constants)):
            about = np.trunc(float(p) * (counts - 1)).astype(np.int64) - 1
            if call.fn != "percentile":
                about = np.trunc(float(p) * counts).astype(np.int64) - 2
            at = low[c] - about
            near = values[lines, c, at]
            if call.fn == "percentile":
                near = between(near, values[lines, c, at + (share[c] > 0)], share[c])
            columns[some, c] = near
        out, valid = one_or_array(call, columns, some, self.workspace.dictionary)
        return {f"res{k}": out, f"res{k}_ok": valid}


class ListedValues(HeldValues):
    """State: the rows of each group in arrival order. ``by_entry``: a change that takes a row out
    carries the time at which the row entered."""

    of_group: ClassVar = {"ends": (2, -1), "sizes": (1, 0), "stale": (1, 1)}
    links: ClassVar = (treap.NEXT,)

    def __init__(
        self,
        log: ValueLog,
        calls: Sequence[AggregateCall],
        workspace: Workspace,
        store: StateStore,
        *,
        by_entry: bool,
    ) -> None:
        super().__init__(log, calls, workspace, store)
        self._by_entry = by_entry

    @property
    def width(self) -> int:
        return treap.FIRST + len(self.log.args) + len(self.log.with_null)

    @property
    def writes_out(self) -> bool:
        return True

    @property
    def largest(self) -> int:
        return int(self._of("sizes").max())

    def _of_groups(self) -> tuple[Array, Array | None]:
        return self._of("ends"), self._of("sizes")

    def _mark(self, nodes: Array, saved: Snapshot, groups: Places, used: Array) -> None:
        heads = saved.arrays[self.name("ends")].reshape(-1, 2)[groups, 0]
        treap.mark_chains(nodes[:, treap.NEXT].copy(), heads.copy(), used)

    def _coded(self) -> list[int]:
        return [treap.FIRST + n for n, arg in enumerate(self.log.args) if arg.type.is_coded]

    def take_in(
        self, rows: State, owners: Times, weights: Times, times: Times, sequence: int, pairs: Pairs
    ) -> dict[str, Array]:
        kept, count = self._kept(rows, weights), pairs.owner.size
        columns = [self._words(rows, n) for n in range(len(self.log.args))]
        columns += [rows[f"m{_column(self.log.args[n])}"] for n in self.log.with_null]
        words = np.empty((owners.size, len(columns)), np.int64)
        for n, column in enumerate(columns):
            words[:, n] = column
        fresh, place = np.empty(count, np.uint8), np.zeros(2, np.int64)
        line = np.dtype((np.int64, (2 + len(columns),)))
        owner_of, lines = self._buffer("owners", _NODES), self._buffer("lines", _NODES, line)
        while wanted := kernel.list_values(
            self._nodes, self._of("control"), self._of("ends").reshape(-1, 2), self._of("sizes"),
            self._of("stale"), owners, weights, kept, words, times, sequence, self._by_entry,
            pairs.owner, pairs.row_stop, pairs.pair_stop, pairs.instants, fresh, owner_of, lines,
            place,
        ):  # fmt: skip
            owner_of, lines = self._buffer("owners", wanted), self._buffer("lines", wanted, line)
        n, args = int(place[1]), len(self.log.args)
        of = {c: 2 + args + i for i, c in enumerate(self.log.with_null)}
        entries = Entries(
            count,
            owner_of[:n],
            tuple(np.ascontiguousarray(lines[:n, 2 + c]) for c in range(args)),
            tuple(lines[:n, of[c]] != 0 if c in of else None for c in range(args)),
            np.ascontiguousarray(lines[:n, 0]),
            np.ascontiguousarray(lines[:n, 1]),
        )
        made: dict[str, Array] = {f"fresh{self.log.number}": fresh}
        for k in self.log.calls:
            values, valid = results(self.calls[k], entries, self.workspace.dictionary)
            made |= {f"res{k}": values, f"res{k}_ok": valid}
        self._release("owners", "lines")
        return made


def rows_at_once(logs: Sequence[HeldValues]) -> int:
    """The number of rows that ``take_in`` may get at a time, so that it writes about ``_AT_ONCE``
    values out; INFINITY if no log writes values out."""
    if not any(log.writes_out for log in logs):
        return INFINITY
    most = max(log.largest for log in logs)
    # rows * (most + rows) is _AT_ONCE
    return int((most**2 / 4 + _AT_ONCE) ** 0.5 - most / 2) + 1


def _questions_of(call: AggregateCall) -> list[tuple[Fraction, int]]:
    """The questions of a call to counted values, (share, kind) each (``kernel.count_values``)."""
    down = 4 * call.order[0][0]
    if call.fn == "mode":
        return [(Fraction(0), 2 | down)]
    return [(fraction(p), int(call.fn == "percentile_disc") | down) for p in call.constants]


def _column(expr: Expr) -> int:
    assert isinstance(expr, Column)
    return expr.index
