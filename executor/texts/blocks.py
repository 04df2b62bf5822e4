"""The columns that a source computes for each of its blocks (``in_blocks``).

Over few distinct texts a function is computed once for each text of the block, otherwise once for
each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.base.model import Schema
from cql.base.types import DataType, Kind
from cql.executor.morsel.arrow_columns import plain_storage, unpack_mask
from cql.executor.morsel.buffers import POOL
from cql.executor.strings import nested
from cql.executor.strings.dictionary import Dictionary
from cql.executor.texts.column import (
    FAILED,
    VALID,
    Column,
    Status,
    Texts,
    repaired,
    texts_of,
    to_arrow,
)
from cql.executor.texts.evaluate import evaluate_block
from cql.executor.texts.functions.regular_expressions import extractions
from cql.executor.texts.functions.table import SLOW
from cql.executor.texts.in_blocks import unwrapped
from cql.planner.nodes.expr import Call, Expr, Literal, columns_of, rebuild, walk
from cql.planner.nodes.expr import Column as ColumnOf
from cql.planner.nodes.physical import ProjectExec

#: Rows of a block in which distinct texts are counted.
_SAMPLE = 16_384
#: The greatest share of distinct texts for which each is computed once, by the least work with a
#: text: finding the equal texts costs about 30 ns a row.
_FEW = {2: 0.2, 4: 0.5}


@dataclass(frozen=True, slots=True)
class Computed:
    """A computed column of a block. ``mask``: 1 for each row that has a value; None if all have
    one. ``values``: numbers in storage form; or texts as an array, NULL where there is none; or the
    texts of which row *i* has the one at ``rows[i]``."""

    mask: Status | None
    values: npt.NDArray[Any] | pa.Array
    rows: npt.NDArray[np.int64] | None = None

    def codes(self, dictionary: Dictionary) -> npt.NDArray[np.int32]:
        """The codes of its texts."""
        codes = POOL.zeros(np.int32, len(self.values))
        dictionary.encode(self.values, codes)
        return codes if self.rows is None else codes[self.rows]


@dataclass(frozen=True, slots=True)
class _Given:
    """A column: row *i* has the value at ``rows[i]``, or at *i* without ``rows``."""

    column: Column
    rows: npt.NDArray[np.int64] | None

    def spread(self) -> Column:
        """A value for each row."""
        if self.rows is None:
            return self.column
        values = self.column.values
        taken = values.take(self.rows) if isinstance(values, Texts) else values[self.rows]
        return Column(taken, self.column.status[self.rows])


class ComputedColumns:
    """What ``node``, a ProjectExec ``in_blocks``, computes of the blocks of its input. ``encoded``
    are the computed columns whose texts become codes.

    The fields of structs that are read are taken from the block as they are: they are further given
    columns, behind those of the block."""

    def __init__(self, node: ProjectExec, encoded: frozenset[int]) -> None:
        self.schema: Schema = node.schema
        self._first = len(node.input.schema)
        self._fields = _Fields(self._first)
        self._exprs = tuple(map(self._fields.of, node.exprs[self._first :]))
        self._given = (*(f.type for f in node.input.schema), *self._fields.types)
        self._encoded = encoded
        self._work: dict[int, int] = {}  # with a text of each column
        #: The groups of each pattern that is extracted from a column.
        self._groups: dict[int, dict[str, list[int]]] = {}
        for k, expr in enumerate(self._exprs, self._first):
            inner, fails = unwrapped(expr)
            for e in walk(inner):
                self._count_groups(e)
            if not fails:
                slow = any(isinstance(e, Call) and e.fn in SLOW for e in walk(inner))
                for c in columns_of(inner):
                    self._work[c] = self._work.get(c, 0) + 1 + 3 * slow + (k in encoded)

    def _count_groups(self, expr: Expr) -> None:
        match expr:
            case Call(
                fn="regexp_extract",
                args=(ColumnOf(index=c), Literal(value=str(pattern)), Literal(value=int(group))),
            ):
                self._groups.setdefault(c, {}).setdefault(pattern, []).append(group)

    def columns(self, batch: pa.RecordBatch) -> list[Computed]:
        """The computed columns of a block."""
        given = {c: self._column(c, self._array(batch, c)) for c in sorted(self._work)}
        made: dict[Expr, _Given] = {}
        found = []
        for k, expr in enumerate(self._exprs, self._first):
            inner, fails = unwrapped(expr)
            if inner not in made:
                made[inner] = _computed(inner, given)
            one = made[inner]
            found.append(_failed(one) if fails else self._made(k, one))
        return found

    def _made(self, k: int, one: _Given) -> Computed:
        """Column ``k`` as morsels take it."""
        if isinstance(one.column.values, Texts) and k in self._encoded:
            texts = to_arrow(one.column.values, one.column.status, pa.binary())
            return Computed(_mask(one.column, one.rows), texts, one.rows)
        column = one.spread()
        if not isinstance(column.values, Texts):
            return Computed(_mask(column, None), column.values)
        of = self.schema[k].type
        if of.is_nested:
            mask = _mask(column, None)
            return Computed(mask, nested.arrow_of(column.values, mask, of))
        kind = of.to_arrow()
        array = to_arrow(column.values, column.status, kind).cast(kind)
        return Computed(_mask(column, None), array)

    def _array(self, batch: pa.RecordBatch, c: int) -> pa.Array:
        if c < self._first:
            return batch.column(c)
        column, *places = self._fields.paths[c - self._first]
        return pc.struct_field(batch.column(column), places)

    def _column(self, c: int, array: pa.Array) -> _Given:
        kind = self._given[c]
        if not kind.is_text:
            mask = unpack_mask(array)
            status = np.full(len(array), VALID, np.uint8) if mask is None else mask
            if kind.is_nested:
                return _Given(Column(nested.entries_of(array, kind), status), None)
            return _Given(Column(plain_storage(array, kind), status), None)
        encoded = array
        if not pa.types.is_dictionary(array.type) and _few(array, self._work[c]):
            encoded = array.dictionary_encode()
        if not pa.types.is_dictionary(encoded.type):
            return _Given(self._texts(c, array), None)
        texts = encoded.dictionary
        if encoded.null_count:  # one more text, which is NULL
            texts = pa.concat_arrays([texts, pa.nulls(1, texts.type)])
        rows = encoded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
        return _Given(self._texts(c, texts), rows.astype(np.int64, copy=False))

    def _texts(self, c: int, array: pa.Array) -> Column:
        mask = unpack_mask(array)
        status = np.full(len(array), VALID, np.uint8) if mask is None else mask
        texts = texts_of(array)
        if self._given[c].kind is Kind.STRING:
            texts = repaired(texts)
        return Column(texts, status, extractions(self._groups.get(c, {})))


@dataclass(slots=True)
class _Fields:
    """Fields of structs in the columns of a block, as further columns behind its ``width`` ones. A
    path is the number of a column, then the places of fields inside one another."""

    width: int
    paths: list[tuple[int, ...]] = field(default_factory=list)
    types: list[DataType] = field(default_factory=list)

    def of(self, expr: Expr) -> Expr:
        """``expr`` with these columns in place of fields."""
        path = _path(expr)
        if len(path) < 2:
            return rebuild(expr, self.of)
        if path not in self.paths:
            self.paths.append(path)
            self.types.append(expr.type)
        return ColumnOf(self.width + self.paths.index(path), "", expr.type)


def _path(expr: Expr) -> tuple[int, ...]:
    """The column and the places that ``expr`` reads; empty if it is no field of a column."""
    match expr:
        case ColumnOf():
            return (expr.index,)
        case Call(fn="field", args=(inner, Literal(value=int(place)))):
            path = _path(inner)
            return (*path, place) if path else ()
    return ()


def _few(array: pa.Array, work: int) -> bool:
    """Whether a sample of the texts has few distinct ones for this ``work`` with each."""
    most = max((share for least, share in _FEW.items() if work >= least), default=0.0)
    if most == 0 or len(array) <= _SAMPLE:
        return False
    return bool(pc.count_distinct(array.slice(0, _SAMPLE)).as_py() <= most * _SAMPLE)


def _computed(expr: Expr, given: dict[int, _Given]) -> _Given:
    columns = sorted(columns_of(expr))
    if len(columns) == 1:
        only = given[columns[0]]
        return _Given(evaluate_block(_at(expr, columns), [only.column]), only.rows)
    spread = [given[c].spread() for c in columns]
    return _Given(evaluate_block(_at(expr, columns), spread), None)


def _mask(column: Column, rows: npt.NDArray[np.int64] | None) -> Status | None:
    valid: Status = (column.status == VALID).view(np.uint8)
    if valid.all():
        return None
    return valid if rows is None else valid[rows]


def _failed(one: _Given) -> Computed:
    """Which rows have failed."""
    failed: Status = (one.column.status == FAILED).view(np.uint8)
    return Computed(None, failed if one.rows is None else failed[one.rows])


def _at(expr: Expr, columns: Sequence[int]) -> Expr:
    """``expr`` over the columns in this order."""
    if isinstance(expr, ColumnOf):
        return ColumnOf(columns.index(expr.index), expr.name, expr.type, expr.nullable)
    return rebuild(expr, lambda e: _at(e, columns))
