"""Columns of arrays and structs between Arrow and entries of the dictionary.

``planner.interpret.entries`` says what the bytes of an entry are. A column of entries is ``Texts``:
places in shared bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.types import DataType, Kind
from cql.base.uninterruptible import load_module
from cql.executor.morsel.arrow_columns import Array, bitmap, plain_arrow, plain_storage, unpack_mask
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.texts.column import VALID, Texts, new_bytes, new_places, texts_of, to_arrow
from cql.planner.interpret.entries import width

_INT32 = np.dtype(np.int32)
_BYTES = np.dtype(np.uint8)
Mask = npt.NDArray[np.uint8]


# -- from Arrow ----------------------------------------------------------------------------------


def binary_entries(column: pa.Array, kind: DataType) -> pa.Array:
    """The entries of a column of arrays or structs as binaries, NULL where the column is."""
    mask = unpack_mask(column)
    status = np.full(len(column), VALID, np.uint8) if mask is None else mask
    return to_arrow(entries_of(column, kind), status, pa.binary())


def entries_of(column: pa.Array, kind: DataType) -> Texts:
    """The bytes of the column's values (arrays, structs or texts); those of a NULL are empty."""
    mask = unpack_mask(column)
    if kind.kind is Kind.ARRAY:
        made = _of_arrays(column, mask, kind)
    elif kind.kind is Kind.STRUCT:
        made = _of_structs(column, kind)
    else:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        made = texts_of(column)
    if mask is None:
        return made
    return Texts(made.data, made.starts, np.where(mask != 0, made.ends, made.starts))


def _of_arrays(column: pa.Array, mask: Mask | None, kind: DataType) -> Texts:
    element = kind.element
    assert element is not None
    offsets = column.offsets.to_numpy().astype(np.int64)
    first = int(offsets[0])
    children = column.values.slice(first, int(offsets[-1]) - first)
    starts, ends = offsets[:-1] - first, offsets[1:] - first
    if mask is not None:
        ends = np.where(mask != 0, ends, starts)
    there = unpack_mask(children)
    if element.is_coded:
        return _arrays(entries_of(children, element), there, starts, ends)
    return _arrays(_plain(children, there, element), there, starts, ends)


def entries_of_elements(elements: Texts | Array, counts: Array) -> Texts:
    """The entries of arrays, each of the next ``counts`` of all elements: texts or other entries,
    or values in storage form. No element is NULL."""
    places = _sums(counts)
    return _arrays(elements, None, places[:-1], places[1:])


def _arrays(elements: Texts | Array, there: Mask | None, starts: Array, ends: Array) -> Texts:
    """Array *i* has the elements from ``starts[i]`` to ``ends[i]``; ``there``: which elements are
    not NULL (None: all)."""
    parts, counts = [], ends - starts
    if there is None:
        parts.append(_fixed(counts.astype(_INT32)))
    else:
        nulls = _sums(there == 0)
        some = nulls[ends] != nulls[starts]
        parts.append(_fixed(np.where(some, ~counts, counts).astype(_INT32)))
        parts.append(Texts(there, starts, np.where(some, ends, starts)))
    if isinstance(elements, Texts):
        sizes = elements.ends - elements.starts
        before = _sums(sizes)
        parts.append(Texts(sizes.astype(_INT32).view(_BYTES), 4 * starts, 4 * ends))
        parts.append(Texts(_packed(elements), before[starts], before[ends]))
    else:
        size = elements.itemsize
        parts.append(Texts(elements.view(_BYTES), size * starts, size * ends))
    return joined(parts)


def _of_structs(column: pa.Array, kind: DataType) -> Texts:
    parts = []
    for i, (_, of) in enumerate(kind.fields):
        child = column.field(i)
        there = unpack_mask(child)
        parts.append(_fixed(np.ones(len(child), np.uint8) if there is None else there))
        if of.is_coded:
            values = entries_of(child, of)
            parts += [_fixed((values.ends - values.starts).astype(_INT32)), values]
        else:
            parts.append(_fixed(_plain(child, there, of)))
    return joined(parts)


def arrays_of(columns: Sequence[tuple[Texts | Array, Mask]]) -> Texts:
    """The entries of arrays of one value of each column; ``columns`` (at least one, of one type)
    are entries or values in storage form, each with 0 for NULL."""
    n, k = len(columns[0][1]), len(columns)
    there = np.stack([mask for _, mask in columns], axis=1).reshape(-1)
    elements: Texts | Array
    first = columns[0][0]
    if isinstance(first, Texts):
        texts = [values for values, _ in columns if isinstance(values, Texts)]
        before = _sums(np.array([t.data.size for t in texts]))[:-1]
        data = np.concatenate([t.data for t in texts])
        starts = np.stack([t.starts + b for t, b in zip(texts, before, strict=True)], axis=1)
        ends = np.stack([t.ends + b for t, b in zip(texts, before, strict=True)], axis=1)
        starts, ends = starts.reshape(-1), ends.reshape(-1)
        elements = Texts(data, starts, np.where(there != 0, ends, starts))
    else:
        columns_of_values = [v for v, _ in columns if not isinstance(v, Texts)]
        plain = np.stack(columns_of_values, axis=1).reshape(-1)
        elements = _canonical(plain, there)
    places = np.arange(n + 1, dtype=np.int64) * k
    return _arrays(elements, there, places[:-1], places[1:])


def structs_of(columns: Sequence[tuple[Texts | Array, Mask]]) -> Texts:
    """The entries of structs of these fields, which are given as for ``arrays_of``."""
    parts = []
    for values, there in columns:
        parts.append(_fixed(there))
        if isinstance(values, Texts):
            ends = np.where(there != 0, values.ends, values.starts)
            values = Texts(values.data, values.starts, ends)
            parts += [_fixed((values.ends - values.starts).astype(_INT32)), values]
        else:
            parts.append(_fixed(_canonical(values, there)))
    return joined(parts)


def _plain(column: pa.Array, there: Mask | None, kind: DataType) -> Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return _canonical(plain_storage(column, kind), there)


def _canonical(values: Array, there: Mask | None) -> Array:
    """Values in storage form with zeros for NULL, and with one value for equal ones."""
    if values.dtype.kind == "f":
        values = np.where(values != values, values.dtype.type(np.nan), values + 0)
    if there is not None:
        values = np.where(there != 0, values, values.dtype.type(0))
    return np.ascontiguousarray(values)


def _fixed(values: Array) -> Texts:
    """The bytes of each value."""
    places = np.arange(values.size + 1, dtype=np.int64) * values.itemsize
    return Texts(np.ascontiguousarray(values).view(_BYTES), places[:-1], places[1:])


def _sums(values: Array) -> npt.NDArray[np.int64]:
    """The sum of the values before each place, and of all values."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])


def _packed(texts: Texts) -> npt.NDArray[np.uint8]:
    """The bytes of the texts, one text after the other; shared if they lie so already."""
    if texts.is_dense:
        return texts.data[int(texts.starts[0]) : int(texts.ends[-1])]
    return copied(texts).data


def copied(texts: Texts) -> Texts:
    """The texts in memory of their own, one after the other."""
    out = new_bytes(texts.size)
    offsets = np.empty(len(texts) + 1, np.int64)
    load_module("cql.executor.kernels.texts.build").gather(*_given(texts), offsets, out)
    return Texts(out[: int(offsets[-1])], offsets[:-1], offsets[1:])


def joined(parts: Sequence[Texts]) -> Texts:
    """The bytes of all ``parts`` of each row, one after the other."""
    rows = len(parts[0])
    valid, nothing = np.full(rows, VALID, np.uint8), np.zeros(rows, np.int64)
    given = [_given(part) for part in (Texts(np.zeros(1, np.uint8), nothing, nothing), *parts)]
    table = np.empty((len(given), 5), np.int64)
    for row, (data, starts, ends) in zip(table, given, strict=True):
        begin = data.ctypes.data
        row[:] = (begin, begin + data.size, starts.ctypes.data, ends.ctypes.data, valid.ctypes.data)
    size = sum(part.size for part in parts)
    out, made = new_bytes(size), new_places(rows)
    kernels = load_module("cql.executor.kernels.texts.build")
    used = kernels.join(table, size + 1, valid, out, *made)
    return Texts(out[:used], *made)


def _given(texts: Texts) -> tuple[npt.NDArray[np.uint8], ...]:
    """Data and places as kernels take them: contiguous, and not read-only."""
    places = (np.require(p, np.int64, ("C", "W")) for p in (texts.starts, texts.ends))
    return (texts.data, *places)


# -- to Arrow ------------------------------------------------------------------------------------


def arrow_of(entries: Texts, valid: Mask | None, kind: DataType) -> pa.Array:
    """The Arrow array of ``kind`` (arrays, structs or texts) whose values have these entries; NULL
    where ``valid`` is 0, whatever the entry is there."""
    if valid is not None:
        entries = Texts(entries.data, entries.starts, np.where(valid, entries.ends, entries.starts))
    if kind.kind is Kind.ARRAY:
        element = kind.element
        assert element is not None
        counts, there, elements = array_parts(entries, element)
        values = _column(elements, there, element)
        bits = None if valid is None else bitmap(valid)
        buffers = [bits, pa.py_buffer(_sums(counts).astype(_INT32))]
        return pa.Array.from_buffers(kind.to_arrow(), len(entries), buffers, children=[values])
    if kind.kind is Kind.STRUCT:
        columns = [
            _column(values, there, of)
            for (_, of), (values, there) in zip(
                kind.fields, struct_fields(entries, kind), strict=True
            )
        ]
        bits = None if valid is None else bitmap(valid)
        return pa.Array.from_buffers(kind.to_arrow(), len(entries), [bits], children=columns)
    status = np.full(len(entries), VALID, np.uint8) if valid is None else valid
    return to_arrow(entries, status, kind.to_arrow()).cast(kind.to_arrow())


def _column(values: Texts | Array, there: Mask | None, kind: DataType) -> pa.Array:
    if there is not None and there.all():
        there = None
    if isinstance(values, Texts):
        return arrow_of(values, there, kind)
    return plain_arrow(values, there, kind)


def array_parts(entries: Texts, element: DataType) -> tuple[Array, Mask | None, Texts | Array]:
    """The number of elements of each array (0 for an empty entry), which of all elements are not
    NULL (None: all), and the elements: their entries, or their values in storage form."""
    starts, ends = entries.starts, entries.ends
    filled = ends > starts
    heads = np.zeros(starts.size, np.int64)
    heads[filled] = _numbers(entries.data, starts[filled])
    some = heads < 0
    counts = np.where(some, ~heads, heads)
    at = starts + 4 * filled
    there: Mask | None = None
    if some.any():
        of_row = np.repeat(some, counts)
        there = np.ones(of_row.size, np.uint8)
        there[of_row] = _packed(Texts(entries.data, at[some], at[some] + counts[some]))
        at = at + np.where(some, counts, 0)
    if not element.is_coded:
        size = width(element)
        data = _packed(Texts(entries.data, at, at + size * counts))
        values = data.view(stored_dtype(element.storage))
        return counts, there, np.require(values, requirements=("C", "A"))
    sizes = _packed(Texts(entries.data, at, at + 4 * counts)).view(_INT32).astype(np.int64)
    before = _sums(sizes)
    firsts = _sums(counts)
    base = at + 4 * counts - before[firsts[:-1]]
    begins = before[:-1] + np.repeat(base, counts)
    return counts, there, Texts(entries.data, begins, begins + sizes)


def struct_fields(entries: Texts, kind: DataType) -> list[tuple[Texts | Array, Mask]]:
    """For each field of the structs, its entries or its values in storage form, and where it is not
    NULL. The fields of an empty entry are NULL."""
    found: list[tuple[Texts | Array, Mask]] = []
    rows = np.flatnonzero(entries.ends > entries.starts)
    at = entries.starts[rows]
    for _, of in kind.fields:
        there = np.zeros(len(entries), np.uint8)
        there[rows] = entries.data[at]
        at = at + 1
        if of.is_coded:
            sizes = _numbers(entries.data, at)
            begins, ends = np.zeros((2, len(entries)), np.int64)
            begins[rows], ends[rows] = at + 4, at + 4 + sizes
            found.append((Texts(entries.data, begins, ends), there))
            at = at + 4 + sizes
        else:
            size, dtype = width(of), stored_dtype(of.storage)
            values = np.zeros(len(entries), dtype)
            data = entries.data[at[:, None] + np.arange(size)]
            values[rows] = np.ascontiguousarray(data).view(dtype).reshape(-1)
            found.append((values, there))
            at = at + size
    return found


def well_formed(entries: Texts, kind: DataType) -> npt.NDArray[np.bool_]:
    """Which entries are those of values of ``kind``, as far as the sizes of their parts tell."""
    data, at, ends = entries.data, entries.starts.copy(), entries.ends
    rows = np.arange(len(entries))  # that may be well formed
    if kind.kind is Kind.STRUCT:
        for _, of in kind.fields:
            size = 1 + (4 if of.is_coded else width(of))
            rows = rows[at[rows] + size <= ends[rows]]
            if of.is_coded:
                lengths = _numbers(data, at[rows] + 1)
                at[rows] += np.where(lengths >= 0, size + lengths, 1 << 40)
            else:
                at[rows] += size
        rows = rows[at[rows] == ends[rows]]
    else:
        assert kind.element is not None
        rows = rows[at[rows] + 4 <= ends[rows]]
        heads = _numbers(data, at[rows])
        counts = np.where(heads < 0, ~heads, heads)
        at = at[rows] + 4 + np.where(heads < 0, counts, 0)
        size = width(kind.element) or 4
        fits = at + size * counts <= ends[rows]
        rows, at, counts = rows[fits], at[fits], counts[fits]
        behind = at + size * counts
        if kind.element.is_coded:
            lengths = _packed(Texts(data, at, behind)).view(_INT32)
            before, firsts = _sums(lengths), _sums(counts)
            behind = behind + before[firsts[1:]] - before[firsts[:-1]]
            negative = _sums(lengths < 0)
            behind[negative[firsts[1:]] != negative[firsts[:-1]]] = -1
        rows = rows[behind == ends[rows]]
    found = np.zeros(len(entries), np.bool_)
    found[rows] = True
    return found


def _numbers(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The int32 at each of these places."""
    four = np.ascontiguousarray(data[at[:, None] + np.arange(4)])
    return four.view(_INT32).reshape(-1).astype(np.int64)
