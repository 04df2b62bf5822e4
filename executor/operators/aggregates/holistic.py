"""Holistic aggregates: from the log of a window's values to one result per group.

The kernel logs the values of a window's rows (``value_log.Log``). When punctuation has closed the
window, the kernel requests the results of all its groups once, before the groups leave. Windows
share the logs of their panes, which are read in place ("Holistic aggregates share one value log per
pane", design §5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.base.types import DataType
from cql.base.uninterruptible import load_module
from cql.executor.operators.aggregates.percentiles import percentiles
from cql.executor.strings import arrays
from cql.executor.strings.dictionary import ARRAYS, RESULTS, Dictionary
from cql.planner.nodes.logical import AggregateCall

Array = npt.NDArray[Any]
#: The average number of entries of a group up to which each group is sorted by itself.
_SMALL = 256


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a window's log, as one array per column. ``group``: the number of each entry's
    group, below ``groups``. ``words``: each argument. ``valid``: whether it is not NULL, None if it
    never is NULL. ``time`` and ``sequence``: None if no call needs the order."""

    groups: int
    group: Array
    words: tuple[Array, ...]
    valid: tuple[Array | None, ...]
    time: Array | None
    sequence: Array | None

    def take(self, at: Array) -> Entries:
        return Entries(
            self.groups,
            self.group[at],
            tuple(w[at] for w in self.words),
            tuple(None if v is None else v[at] for v in self.valid),
            None if self.time is None else self.time[at],
            None if self.sequence is None else self.sequence[at],
        )

    @property
    def counts(self) -> Array:
        return np.bincount(self.group, minlength=self.groups)


def results(call: AggregateCall, entries: Entries, dictionary: Dictionary) -> tuple[Array, Array]:
    """The result of each group in its type's storage, and whether it is not NULL."""
    if call.distinct:
        entries = first_of_each_value(entries)
    match call.fn:
        case "percentile" | "percentile_disc":
            return _percentiles(call, entries, dictionary)
        case "mode":
            return _mode(call, _sorted(call, entries, dictionary))
        case "array_agg":
            return _array(call, _sorted(call, entries, dictionary), dictionary)
        case "string_agg":
            return _joined(call, _sorted(call, entries, dictionary), dictionary)
        case "time_weighted_avg":
            return _time_weighted(call, entries)
    raise AssertionError(call.fn)


# -- order ---------------------------------------------------------------------------------------


def _sorted(call: AggregateCall, entries: Entries, dictionary: Dictionary) -> Entries:
    """The entries sorted by group, then by the arguments of the call's ORDER BY, then by (window
    attribute, arrival)."""
    first = len(call.args) - len(call.order)
    keys: list[Array] = []
    for n, (descending, nulls_first) in enumerate(call.order, first):
        key = _key(entries.words[n], call.args[n].type, dictionary)
        keys.append(_turned(key, entries.valid[n], descending, nulls_first))
    if entries.time is not None and entries.sequence is not None:
        keys += [entries.time, entries.sequence]
    return entries.take(_order(entries, keys))


def _key(words: Array, kind: DataType, dictionary: Dictionary) -> Array:
    """Sort keys of the values: NaN is the largest number, texts sort by their bytes."""
    if kind.is_text:
        return dictionary.rank()[words]
    return words.view(np.float64) if kind.is_fraction else words


def _turned(key: Array, valid: Array | None, descending: bool, nulls_first: bool) -> Array:
    if not descending and valid is None:
        return key
    _, places = np.unique(key, return_inverse=True)
    places = -places if descending else places
    if valid is None:
        return places
    beyond = -key.size - 1 if nulls_first else key.size + 1
    return np.where(valid, places, beyond)


def first_of_each_value(entries: Entries) -> Entries:
    """DISTINCT: the first of equal values in a group, by (window attribute, arrival)."""
    keys = [entries.words[0]]
    if entries.time is not None and entries.sequence is not None:
        keys += [entries.time, entries.sequence]
    ordered = entries.take(_order(entries, keys))
    return ordered.take(np.flatnonzero(_begins(ordered)))


def _order(entries: Entries, keys: Sequence[Array]) -> Array:
    """The numbers of the entries, sorted by group, then by keys."""
    group, whole = entries.group, all(key.dtype.kind != "f" for key in keys)
    if whole and group.size <= _SMALL * entries.groups and np.all(group[1:] >= group[:-1]):
        words = np.array(keys, np.int64).reshape(len(keys), group.size)
        kernel = load_module("cql.executor.kernels.relations.segment_sort")
        places: Array = kernel.sort_in_groups(np.ascontiguousarray(group), words)
        return places
    return np.lexsort((*reversed(keys), group))


def _begins(entries: Entries) -> Array:
    """Which entries differ from the one before in value or group; the entries are sorted."""
    begins = np.ones(entries.group.size, np.bool_)
    begins[1:] = np.diff(entries.group) != 0
    begins[1:] |= np.diff(entries.words[0]) != 0
    return begins


# -- results -------------------------------------------------------------------------------------


def _percentiles(
    call: AggregateCall, entries: Entries, dictionary: Dictionary
) -> tuple[Array, Array]:
    words, some = percentiles(call, entries.groups, entries.group, entries.words[0])
    columns = stored(np.ascontiguousarray(words), call.type.element or call.type)
    return one_or_array(call, columns, some, dictionary)


def one_or_array(
    call: AggregateCall, columns: Array, some: Array, dictionary: Dictionary
) -> tuple[Array, Array]:
    """The result of each group: one value, or an array of several. ``columns`` has a row for each
    group; ``some``: which groups have values."""
    element = call.type.element
    if element is None:
        return columns[:, 0], some
    made = columns[some]
    counts = np.full(made.shape[0], made.shape[1])
    codes = dictionary.encode_results(arrays.entries_of(made.reshape(-1), counts, element), ARRAYS)
    out = np.full(some.size, -1, np.int32)
    out[some] = codes
    return out, some


def _mode(call: AggregateCall, entries: Entries) -> tuple[Array, Array]:
    """The most frequent value; among several, the first in the order of the call."""
    starts = np.flatnonzero(_begins(entries))
    length = np.diff(np.append(starts, entries.group.size))
    group = entries.group[starts]
    best = np.lexsort((np.arange(starts.size), -length, group))
    head = np.ones(best.size, np.bool_)
    head[1:] = np.diff(group[best]) != 0
    chosen = starts[best[head]]
    values = stored(entries.words[0], call.type)
    out = np.full(entries.groups, -1 if call.type.is_coded else 0, values.dtype)
    out[entries.group[chosen]] = values[chosen]
    return out, entries.counts > 0


def _array(call: AggregateCall, entries: Entries, dictionary: Dictionary) -> tuple[Array, Array]:
    """An array of the values; without values an array of no elements, as in Spark."""
    element, counts = call.type.element, entries.counts
    assert element is not None
    if element.is_coded:
        texts = dictionary.decode(entries.words[0].astype(np.int32), None, pa.binary())
        made = arrays.entries_of_coded(texts, counts)
    else:
        made = arrays.entries_of(stored(entries.words[0], element), counts, element)
    return dictionary.encode_results(made, ARRAYS), np.ones(counts.size, np.bool_)


def _joined(call: AggregateCall, entries: Entries, dictionary: Dictionary) -> tuple[Array, Array]:
    counts, arrow = entries.counts, call.type.to_arrow()
    texts = dictionary.decode(entries.words[0].astype(np.int32), None, arrow)
    lists = pa.ListArray.from_arrays(pa.array(arrays.offsets_of(counts)), texts)
    separator = call.constants[0].value
    out = dictionary.encode_results(pc.binary_join(lists, pa.scalar(separator, arrow)), RESULTS)
    return np.where(counts > 0, out, -1), counts > 0


def _time_weighted(call: AggregateCall, entries: Entries) -> tuple[Array, Array]:
    """The integral over the times between the first and the last entry of a group, divided by that
    time; the value of a group with one time. Of entries at the same time the last one counts."""
    assert entries.time is not None
    assert entries.sequence is not None
    keys = [entries.words[1], entries.time, entries.sequence]
    entries = entries.take(_order(entries, keys))
    ends = np.ones(entries.group.size, np.bool_)
    ends[:-1] = (np.diff(entries.group) != 0) | (np.diff(entries.words[1]) != 0)
    entries = entries.take(np.flatnonzero(ends))
    group, times, values = entries.group, entries.words[1], entries.words[0].view(np.float64)
    before = np.flatnonzero(group[1:] == group[:-1])
    # unsigned, a difference of two words cannot overflow
    lengths = np.diff(times)[before].view(np.uint64).astype(np.float64)
    heights = values[before]
    counts, of = entries.counts, group[before]
    out = np.zeros(entries.groups)
    alone = counts == 1
    out[alone] = values[alone[group]]
    with np.errstate(invalid="ignore", over="ignore"):
        if call.constants[0].value == "linear":
            heights = heights / 2 + values[before + 1] / 2
        areas = np.bincount(of, heights * lengths, entries.groups)
        several = counts > 1
        whole = np.bincount(of, lengths, entries.groups)[several]
        out[several] = areas[several] / whole
    return out, counts > 0


def stored(words: Array, kind: DataType) -> Array:
    """Converts words of a log to the storage of a type."""
    values = words.view(np.float64) if kind.is_fraction else words
    return values.astype(arrays.element_dtype(kind), copy=False)
