"""The values that an aggregate over a changing relation keeps beside the states of its groups, for
DISTINCT and holistic calls. Values enter and leave.

Calls that need the number of different values, or the value at a place of their order, share
*counted* values (a treap per group). Calls that list rows in arrival order share *listed* values
(a chain per group). See ``kernels.lib.treap``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cql.executor.kernels.lib import treap as kernel
from cql.executor.operators.aggregates.holistic import (
    Entries,
    one_or_array,
    results,
    stored,
)
from cql.executor.operators.aggregates.percentiles import between, fraction, places_of
from cql.executor.operators.aggregates.value_log import ordering
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.relations.changelog_operator import Times
from cql.executor.operators.relations.group_index import canonical, grown
from cql.executor.operators.workspace import Workspace
from cql.executor.state.declared import Declared
from cql.executor.state.store import State
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import AggregateCall

Array = npt.NDArray[Any]
#: Values that are written out at a time, about.
_AT_ONCE = 1 << 22


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
    def of(cls, times: Times, owners: Times, groups: int) -> Pairs:
        n = times.size
        owner, row_stop, pair_stop = (np.empty(n, np.int64) for _ in range(3))
        pairs = np.zeros(1, np.int64)
        marked = np.zeros(groups, np.uint8)
        instants = kernel.pairs_of(times, owners, owner, row_stop, pair_stop, marked, pairs)
        return cls(owner[: int(pairs[0])], row_stop, pair_stop, int(instants))


class HeldValues(Declared, ABC):
    """The values of one log. ``take_in`` applies changes to them and returns, by name, arrays for
    the aggregate's kernel."""

    saved_arrays: ClassVar[tuple[str, ...]] = ("_control", "_stale", "_nodes")

    def __init__(self, log: ValueLog, calls: Sequence[AggregateCall], workspace: Workspace) -> None:
        self.log = log
        self.calls = calls
        self.workspace = workspace
        self._control = np.array([-1, 0, 0, 0x2545F4914F6CDD1D], np.int64)
        self._stale = np.zeros(0, np.uint8)
        self._nodes = np.zeros((0, self.width), np.int64)

    @property
    @abstractmethod
    def width(self) -> int: ...

    @property
    def nbytes(self) -> int:
        return self._nodes.nbytes + self._stale.nbytes

    @property
    @abstractmethod
    def largest(self) -> int:
        """The largest number of values that are written out for one group."""

    def grow(self, groups: int) -> None:
        self._stale = grown(self._stale, groups, 1)

    def forget(self, groups: Times) -> None:
        """Drops the values of groups without rows."""
        self._stale[groups] = 1

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        for n in self._coded():
            column = self._nodes[:, n]
            held = column >= 0
            column[held] = change(column[held].astype(np.int32))

    @abstractmethod
    def _coded(self) -> list[int]:
        """The words of a node that hold codes."""

    @abstractmethod
    def take_in(
        self, rows: State, owners: Times, weights: Times, times: Times, sequence: int, pairs: Pairs
    ) -> dict[str, Array]: ...

    def _kept(self, rows: State, weights: Times) -> npt.NDArray[np.uint8]:
        """Returns which rows count (1, else 0), and makes room for their values."""
        kept: npt.NDArray[np.bool_] = rows[f"m{_column(self.log.args[0])}"] != 0
        if self.log.where is not None:
            at = _column(self.log.where)
            kept &= (rows[f"m{at}"] != 0) & (rows[f"c{at}"] != 0)
        wanted = int(self._control[kernel.LIVE]) + int(weights[kept & (weights > 0)].sum())
        if wanted > self._nodes.shape[0]:
            nodes = np.full((max(64, 2 * self._nodes.shape[0], wanted), self.width), -1, np.int64)
            nodes[: self._nodes.shape[0]] = self._nodes
            self._nodes = nodes
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

    saved_arrays: ClassVar[tuple[str, ...]] = (*HeldValues.saved_arrays, "_roots")

    def __init__(
        self, log: ValueLog, calls: Sequence[AggregateCall], workspace: Workspace, *, lists: bool
    ) -> None:
        super().__init__(log, calls, workspace)
        self._lists = lists
        self._roots = np.zeros(0, np.int64)
        self._questions = [
            q for k in log.calls if calls[k].holistic for q in _questions_of(calls[k])
        ]
        kind = log.args[0].type
        self._how = kernel.AS_DOUBLES if kind.is_fraction else kernel.AS_INTEGERS
        if kind.is_coded and log.needs_order:
            self._how = kernel.BY_RANK
        self._values = np.empty(0, np.int64)

    @property
    def width(self) -> int:
        return kernel.PRIORITY + 1

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._roots.nbytes + self._values.nbytes

    @property
    def largest(self) -> int:
        roots = self._roots[self._roots >= 0]
        return int(self._nodes[roots, kernel.TOTAL].max()) if self._lists and roots.size else 0

    def grow(self, groups: int) -> None:
        super().grow(groups)
        self._roots = grown(self._roots, groups, -1)

    def forget(self, groups: Times) -> None:
        super().forget(groups)
        kernel.forget_treaps(self._nodes, self._control, self._roots, groups)

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        """The order of the codes, which is that of the values if no call needs another one, stays
        in a compaction; another dictionary has another order."""
        if not self._coded():
            return
        before = self._nodes[:, kernel.VALUE].copy()
        super().map_codes(change)
        after = self._nodes[np.argsort(before), kernel.VALUE]
        if self._how == kernel.AS_INTEGERS and (after[1:] < after[:-1]).any():
            kernel.order_again(self._nodes, self._control, self._roots, self.log.distinct)

    def _coded(self) -> list[int]:
        return [kernel.VALUE] if self.log.args[0].type.is_coded else []

    def _words(self, rows: State, n: int) -> Array:
        if self.log.args[n].type.is_fraction:
            return canonical(rows[f"c{_column(self.log.args[n])}"])
        return super()._words(rows, n)

    def take_in(
        self, rows: State, owners: Times, weights: Times, times: Times, sequence: int, pairs: Pairs
    ) -> dict[str, Array]:
        n, count, questions = owners.size, pairs.owner.size, self._questions
        kept, words = self._kept(rows, weights), self._words(rows, 0)
        by_rank = self._how == kernel.BY_RANK
        rank = self.workspace.dictionary.rank() if by_rank else np.zeros(1, np.int32)
        shares = np.array([float(p) for p, _ in questions])
        kinds = np.array([q for _, q in questions], np.int64)
        moved, totals = np.empty(n, np.int64), np.empty(count, np.int64)
        fresh = np.empty(count, np.uint8)
        found = np.empty((count, len(questions), kernel.NEAR), np.int64)
        first, place = np.zeros(count + 1, np.int64), np.zeros(2, np.int64)
        while wanted := kernel.count_values(
            self._nodes, self._control, self._roots, self._stale, owners, weights, kept, words,
            self._how, rank, self.log.distinct, pairs.owner, pairs.row_stop, pairs.pair_stop,
            pairs.instants, moved, fresh, totals, shares, kinds, found, self._lists, first,
            self._values, place,
        ):  # fmt: skip
            self._values = grown(self._values, max(2 * self._values.size, wanted))
        number = self.log.number
        made: dict[str, Array] = {f"moved{number}": moved, f"fresh{number}": fresh}
        if self._lists:
            made |= {f"first{number}": first, f"values{number}": self._values}
            self._release()
        at = 0
        for k in self.log.calls:
            if self.calls[k].holistic:
                width = len(_questions_of(self.calls[k]))
                some = (fresh != 0) & (totals > 0)
                made |= self._results(k, totals, found[:, at : at + width], some)
                at += width
        return made

    def _release(self) -> None:
        """Frees the buffer of values if it has become large."""
        if self._values.size > 2 * _AT_ONCE:
            self._values = np.empty(0, np.int64)

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

    saved_arrays: ClassVar[tuple[str, ...]] = (*HeldValues.saved_arrays, "_ends", "_sizes")

    def __init__(
        self, log: ValueLog, calls: Sequence[AggregateCall], workspace: Workspace, *, by_entry: bool
    ) -> None:
        super().__init__(log, calls, workspace)
        self._by_entry = by_entry
        self._ends = np.zeros((0, 2), np.int64)
        self._sizes = np.zeros(0, np.int64)

    @property
    def width(self) -> int:
        return kernel.FIRST + len(self.log.args) + len(self.log.with_null)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._ends.nbytes + self._sizes.nbytes

    @property
    def largest(self) -> int:
        return int(self._sizes.max()) if self._sizes.size else 0

    def grow(self, groups: int) -> None:
        super().grow(groups)
        self._sizes = grown(self._sizes, groups)
        if self._ends.shape[0] < groups:
            ends = np.full((groups, 2), -1, np.int64)
            ends[: self._ends.shape[0]] = self._ends
            self._ends = ends

    def forget(self, groups: Times) -> None:
        super().forget(groups)
        kernel.forget_chains(self._nodes, self._control, self._ends, groups)
        self._sizes[groups] = 0

    def _coded(self) -> list[int]:
        return [kernel.FIRST + n for n, arg in enumerate(self.log.args) if arg.type.is_coded]

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
        owner_of = np.empty(0, np.int64)
        lines = np.empty((0, 2 + len(columns)), np.int64)
        while wanted := kernel.list_values(
            self._nodes, self._control, self._ends, self._sizes, self._stale, owners, weights,
            kept, words, times, sequence, self._by_entry, pairs.owner, pairs.row_stop,
            pairs.pair_stop, pairs.instants, fresh, owner_of, lines, place,
        ):  # fmt: skip
            size, done = max(2 * owner_of.size, wanted), int(place[1])
            owner_of = grown(owner_of, size)
            more = np.empty((size, lines.shape[1]), np.int64)
            more[:done] = lines[:done]
            lines = more
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
        return made


def piece(logs: Sequence[HeldValues], times: Times, first: int) -> int:
    """The end of the piece of changes that begins at ``first``. A piece ends between two instants,
    and writes about ``_AT_ONCE`` values out. If no log writes values out, all changes are one
    piece."""
    most = max((log.largest for log in logs), default=0)
    writes = any(isinstance(log, ListedValues) or log.largest for log in logs)
    if not writes:
        return times.size
    rows = int((most**2 / 4 + _AT_ONCE) ** 0.5 - most / 2) + 1  # rows * (most + rows) is _AT_ONCE
    stop = first + rows
    if stop >= times.size:
        return times.size
    return int(np.searchsorted(times, times[stop - 1], side="right"))


def _questions_of(call: AggregateCall) -> list[tuple[Fraction, int]]:
    """The questions of a call to counted values, (share, kind) each (``kernel.count_values``)."""
    down = 4 * call.order[0][0]
    if call.fn == "mode":
        return [(Fraction(0), 2 | down)]
    return [(fraction(p), int(call.fn == "percentile_disc") | down) for p in call.constants]


def _column(expr: Expr) -> int:
    assert isinstance(expr, Column)
    return expr.index
