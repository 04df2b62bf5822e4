"""The changelog of a relation, applied by key: what a table with a PRIMARY KEY takes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.catalog.upsert import key_numbers
from cql.errors import RunError

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Net:
    """The effect of so many ``changes``: ``rows`` replace those of their keys, and the keys
    ``gone`` have no row any more."""

    changes: int
    rows: pa.Table
    gone: pa.Table


class _TwiceError(RunError):
    """A key has two rows at the instant ``time`` (storage units)."""

    time: int


class KeyedChanges:
    """Adds up changes with columns ``schema`` (``_time``, ``_weight``, then the relation's own)
    by the columns ``key``.

    An instant counts as a whole: ``take`` holds back the newest one while its changes may still
    come. State is the keys that have a row in the relation, and the changes held back."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], what: str) -> None:
        self._schema = schema
        self._key = list(key)
        self._what = what
        self._pending: list[pa.RecordBatch] = []
        self._fresh = False
        self._there = pa.schema([schema.field(name) for name in key]).empty_table()

    def add(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._fresh = True

    @property
    def waits(self) -> bool:
        """Whether some changes are held back."""
        return bool(self._pending)

    def clear(self) -> None:
        self._pending = []

    def take(self, last: int | None, *, final: bool) -> Net | None:
        """The effect of the instants that are complete, or None if there is none. Changes after
        the instant ``last`` wait; with ``final`` they do not count. The newest instant is complete
        when no change has been added since the last call.

        Raises RunError if two rows of a key are in the relation at one instant."""
        changes = pa.Table.from_batches(self._pending, self._schema)
        if not changes.num_rows:
            return None
        times = _integers(changes.column(0))
        fresh, self._fresh = self._fresh, False
        newest = int(times.max())
        end = newest if final or not fresh else newest - 1
        end = end if last is None else min(end, last)
        try:
            return self._taken(changes, times, end, final)
        except _TwiceError as error:
            if final or error.time < newest:
                raise
            return self._taken(changes, times, newest - 1, final)

    def _taken(self, changes: pa.Table, times: Numbers, end: int, final: bool) -> Net | None:
        now = times <= end
        net = None
        if now.any():
            net = self._net(changes.filter(pa.array(now)), times[now])
        later = changes.filter(pa.array(~now))
        self._pending = [] if final else later.to_batches()
        return net

    def _net(self, changes: pa.Table, times: Numbers) -> Net:
        before, count = self._there.num_rows, changes.num_rows
        keys = pa.concat_tables([self._there, changes.select(self._key)])
        every = key_numbers(keys.columns)
        numbers = every[before:]
        weights = _integers(changes.column(1))
        rows = np.zeros(every.max(initial=-1) + 1, np.int64)  # of each key in the relation
        rows[every[:before]] = 1

        order = np.lexsort((np.arange(count), times, numbers))
        key, time = numbers[order], times[order]
        total = np.cumsum(weights[order])
        first = np.flatnonzero(np.diff(key, prepend=-1))
        base = total[first] - weights[order][first]
        total -= np.repeat(base, np.diff(first, append=count))
        total += rows[key]
        ends = np.flatnonzero((np.diff(key, append=-1) != 0) | (np.diff(time, append=0) != 0))
        bad = ends[total[ends] > 1]
        if bad.size:
            at = bad[np.argmin(time[bad])]
            raise self._twice(changes, int(order[at]), int(time[at]))
        last = np.flatnonzero(np.diff(key, append=-1))
        rows[key[last]] = total[last]

        entered = self._entered(changes, weights)
        touched = np.zeros(rows.size, np.bool_)
        touched[numbers] = True
        sample = np.zeros(keys.num_rows, np.bool_)  # one row of each key
        sample[np.unique(every, return_index=True)[1]] = True
        there = rows[every] > 0
        self._there = keys.filter(pa.array(sample & there)).combine_chunks()
        gone = keys.filter(pa.array(sample & ~there & touched[every]))
        here = entered & (rows[numbers] > 0)
        own = changes.select(range(2, changes.num_columns)).filter(pa.array(here))
        return Net(count, own, gone)

    def _entered(self, changes: pa.Table, weights: Numbers) -> npt.NDArray[np.bool_]:
        """Marks one change for each row of which more copies enter than leave."""
        same = key_numbers(changes.columns[2:])
        net = np.zeros(same.max(initial=-1) + 1, np.int64)
        np.add.at(net, same, weights)
        came = np.flatnonzero(weights > 0)
        latest = np.full(net.size, -1, np.int64)
        latest[same[came]] = came
        found = np.zeros(same.size, np.bool_)
        found[latest[net > 0]] = True
        return found

    def _twice(self, changes: pa.Table, at: int, time: int) -> _TwiceError:
        values = ", ".join(f"{name} = {changes.column(name)[at]}" for name in self._key)
        error = _TwiceError(
            f"{self._what}: at {changes.column(0)[at]} the query has two rows with {values}",
            hint=f"the PRIMARY KEY is ({', '.join(self._key)}): group by these columns alone, or"
            " make a table with a key that the query's rows differ in",
        )
        error.time = time
        return error


def _integers(column: pa.ChunkedArray) -> Numbers:
    kind = pa.int32() if column.type.bit_width == 32 else pa.int64()
    found: Numbers = column.cast(kind).to_numpy().astype(np.int64)
    return found
