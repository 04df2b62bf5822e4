"""Debezium envelopes: what their members mean, and their rows as flat columns.

An envelope has the row before and after a change (``before``, ``after``), the operation (``op``)
and the time of the connector (``ts_ms``), perhaps inside ``payload`` or ``value``. Structs are no
columns of the engine: sources flatten each envelope while they read it, to the columns ``after.x``,
``before.x``, ``op``, ``ts_ms``, and those of the key, which a tombstone has alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.model import Field, Punctuation, Schema
from cql.base.types import BIGINT, STRING
from cql.catalog.changelogs.sources import KNOWN, Changes, missing, weights_of
from cql.catalog.convert import Column, find_name
from cql.catalog.sources import as_table
from cql.errors import CatalogError
from cql.planner.nodes.catalog import StreamSpec

OP, TS = "op", "ts_ms"
#: Members that hold the members of an envelope, or of a key.
_HOLDERS = ("payload", "value", "key")
SIDES = ("before", "after")


def stored_schema(schema: Schema, spec: StreamSpec) -> Schema:
    """The flat columns of envelopes whose rows have the columns of ``schema``."""
    known = {name.lower() for name in (*(spec.update_key or ()), *_times(spec))} - {OP, TS}
    sides = (Field(f"{side}.{f.name}", f.type) for f in schema for side in reversed(SIDES))
    tops = (Field(f.name, f.type) for f in schema if f.name.lower() in known)
    return Schema((*sides, *tops, Field(OP, STRING), Field(TS, BIGINT)))


def row_schema(stored: Schema) -> Schema:
    """The columns of the rows in envelopes with the flat columns ``stored``."""
    rows = [f for f in stored if f.name.startswith("after.")]
    return Schema(tuple(Field(f.name.removeprefix("after."), f.type) for f in rows))


def found_schema(flat: Schema, what: str) -> Schema:
    """The columns of the rows, and TS, of envelopes that were read without declared columns."""
    found: dict[str, Field] = {}
    for side in reversed(SIDES):
        for f in flat:
            if f.name.startswith(f"{side}."):
                name = f.name.removeprefix(f"{side}.")
                found.setdefault(name, Field(name, f.type))
    if not found:
        raise CatalogError(
            f"{what} has no Debezium envelopes: neither before nor after is an object",
            hint="changelog_by names the column of other operation codes",
        )
    if flat.find(TS) is not None:
        found.setdefault(TS, Field(TS, BIGINT))
    return Schema(tuple(found.values()))


def _times(spec: StreamSpec) -> list[str]:
    return [p.column for p in spec.progress]


# -- flattening ------------------------------------------------------------------------------------


def _flat(members: Iterable[tuple[str, Any]], inside: Callable[[Any], Any]) -> dict[str, Any]:
    """The flat columns of an envelope with these ``members``. ``inside(value)`` gives the members
    of a value, or None if it has none."""
    made: dict[str, Any] = {}
    for name, value in members:
        parts = inside(value) if name in (*_HOLDERS, *SIDES) else None
        if parts is None:
            if name not in SIDES:
                made.setdefault(name, value)
        elif name in SIDES:
            made.update((f"{name}.{part}", v) for part, v in parts)
        elif name == "key":  # an envelope with a schema has the values of the key in its payload
            named = dict(parts)
            own = inside(named["payload"]) if "payload" in named else None
            for part, v in parts if own is None else own:
                made.setdefault(part, v)
        else:
            made.update(_flat(parts, inside))
    return made


def flat_batch(batch: Any) -> Any:
    """A batch or table of envelopes as flat columns."""

    def inside(column: Any) -> Any:
        if not pa.types.is_struct(column.type):
            return None
        return [(f.name, part) for f, part in zip(list(column.type), column.flatten(), strict=True)]

    made = _flat(zip(batch.schema.names, batch.columns, strict=True), inside)
    if TS in made and pa.types.is_timestamp(made[TS].type):
        made[TS] = made[TS].cast(pa.timestamp("ms", made[TS].type.tz)).cast(pa.int64())
    columns = {n: c for n, c in made.items() if not pa.types.is_struct(c.type)}
    if not columns:
        return batch.select([])
    return type(batch).from_arrays(list(columns.values()), names=list(columns))


def flat_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that ``flat_batch`` gives."""
    made: pa.Schema = flat_batch(schema.empty_table()).schema
    return made


def aligned(batch: Any, stored: Schema) -> Any:
    """A flat batch or table with the columns ``stored`` alone; NULL where it lacks them."""
    names = batch.schema.names
    columns: list[Any] = []
    for f in stored:
        own = find_name(f.name, names, stored.names, "an envelope")
        kind = f.type.to_arrow()
        columns.append(pa.nulls(batch.num_rows, kind) if own is None else batch.column(own))
    return type(batch).from_arrays(columns, names=stored.names)


def flat_mapping(envelope: Mapping[Any, Any] | None) -> dict[str, Any]:
    """An envelope as a flat row; without members for None, a tombstone."""
    members = () if envelope is None else ((str(k), v) for k, v in envelope.items())
    return _flat(
        members, lambda v: [(str(k), x) for k, x in v.items()] if isinstance(v, Mapping) else None
    )


def sides_joined(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A flat row with the values of either side as those after the change, from which types can be
    told; without members that are NULL."""
    for name, value in row.items():
        if value is not None:
            side, dot, column = name.partition(".")
            yield (f"after.{column}" if dot and side in SIDES else name), value


def flat_lines(data: bytes, members: Callable[[str], Mapping[str, str]]) -> bytes:
    """Lines of JSON as lines of flat objects; each value stays as it is written. Raises ValueError
    for a line that is neither an object nor null."""

    def inside(raw: str) -> Any:
        return members(raw).items() if raw.startswith("{") else None

    made = []
    for line in data.splitlines():  # as bytes: texts end lines at more characters
        text = line.decode().strip()
        if not text:
            continue
        found = {} if text == "null" else _flat(members(text).items(), inside)
        made.append("{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in found.items()) + "}\n")
    return "".join(made).encode()


def flat_items(items: Iterable[Any], stored: Schema | None, what: str) -> Iterator[Any]:
    """Rows from Python as flat rows: mappings, pairs of a key and an envelope (None: a tombstone),
    Arrow batches, punctuation."""
    known = None if stored is None else {name.lower() for name in stored.names}
    for item in items:
        if isinstance(item, Punctuation):
            yield item
        elif item is None or isinstance(item, Mapping):
            yield _known(flat_mapping(item), known)
        elif isinstance(item, tuple) and len(item) == 2 and _is_pair(item):
            key, value = item
            yield _known({**flat_mapping({"key": key}), **flat_mapping(value)}, known)
        else:
            table = None if isinstance(item, list | tuple) else as_table(item, what)
            if table is None:
                raise CatalogError(
                    f"{what}: {type(item).__name__} is no Debezium envelope",
                    hint="give a mapping with before, after, op and ts_ms, or the pair of a key"
                    " and such a mapping (None: a tombstone)",
                )
            flat = flat_batch(table)
            yield flat if stored is None else aligned(flat, stored)


def _known(row: dict[str, Any], names: Collection[str] | None) -> dict[str, Any]:
    """A flat row without the members that are no columns."""
    if names is None:
        return {k: v for k, v in row.items() if not isinstance(v, Mapping)}
    return {k: v for k, v in row.items() if k.lower() in names}


def _is_pair(item: tuple[Any, Any]) -> bool:
    return all(part is None or isinstance(part, Mapping) for part in item)


def flattened(data: Any, stored: Schema | None, what: str) -> Any:
    """Data in memory with flat rows: what ``create_stream`` and ``push`` take, except for paths and
    datasets. Without ``stored``, columns that the data lacks are left out."""
    if isinstance(data, pa.RecordBatchReader):
        reader = data
        schema = flat_schema(reader.schema)
        if stored is not None:
            schema = aligned(schema.empty_table(), stored).schema

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                flat = flat_batch(batch)
                yield flat if stored is None else aligned(flat, stored)

        return pa.RecordBatchReader.from_batches(schema, batches())
    table = as_table(data, what)
    if table is not None:
        flat = flat_batch(table)
        return flat if stored is None else aligned(flat, stored)
    if isinstance(data, Sequence) and not isinstance(data, str):
        return list(flat_items(data, stored, what))
    if callable(data):
        return lambda: flat_items(data(), stored, what)
    if hasattr(data, "__iter__"):
        return flat_items(data, stored, what)
    raise CatalogError(
        f"{what}: Debezium envelopes cannot be read from a {type(data).__name__}",
        hint="give a path, an Arrow table, or an iterable of mappings",
    )


# -- decoding --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnvelopeDecoder:
    """The changes in flat envelopes. An update without a key, or of the key, is two changes."""

    stored: Schema
    times: Sequence[str]
    key: Sequence[str] | None
    not_null: frozenset[str]

    def reads(self, columns: Sequence[str]) -> Sequence[str]:
        """All columns: they tell a tombstone from an envelope, and a bad row from others."""
        del columns
        return self.stored.names

    def changes(self, batch: pa.RecordBatch, columns: Sequence[str]) -> Changes:
        flat = {
            name: c.dictionary_decode() if pa.types.is_dictionary(c.type) else c
            for name, c in zip(batch.schema.names, batch.columns, strict=True)
        }
        count, keyed = batch.num_rows, self.key is not None
        weights, unknown = weights_of(flat[OP], keyed)
        weights = weights.copy()
        there = {s: self._any(flat, f"{s}.", count) for s in SIDES}
        keys = self._keys(flat, count)
        bad: dict[int, tuple[str, str]] = {}
        for k, code in unknown.items():
            if code == "NULL" and not (there["before"][k] or there["after"][k]):
                weights[k] = -1 if keyed and keys[k] else 0  # a tombstone
            elif code.lower() == "'t'":
                bad[k] = ("op 't', a truncated table, is not supported", "declare the stream anew")
            else:
                bad[k] = (f"op: {code} is no operation code", KNOWN)
        updates = self._are_updates(flat[OP])
        enters, leaves = weights > 0, weights < 0
        for at in np.flatnonzero(enters & ~there["after"]):
            bad.setdefault(int(at), ("after is NULL, and the row enters", "only a delete lacks it"))
        halves = updates & ~there["before"] & enters if not keyed else np.zeros(count, bool)
        for at in np.flatnonzero(halves | (leaves & ~there["before"] & ~keys)):
            hint = "declare UPDATE KEY, or have the table write whole rows (REPLICA IDENTITY FULL)"
            bad.setdefault(int(at), ("before is NULL, and the row that leaves is not known", hint))
        moves = self._moved(flat, count) if keyed else np.ones(count, bool)
        leaves |= updates & there["before"] & moves
        both = np.flatnonzero(np.stack([leaves, enters], axis=1).ravel())
        rows, after = both // 2, both % 2 == 1  # the row that leaves comes first
        change = np.where(after, np.abs(weights[rows]), -np.abs(weights[rows]))
        made = self._batch(flat, columns, rows, after, updates[rows])
        for k, reason in missing(made, change, self.not_null, {}).items():
            bad.setdefault(int(rows[k]), reason)
        if bad:
            kept = ~np.isin(rows, list(bad))
            rows, change, made = rows[kept], change[kept], made.filter(pa.array(kept))
        return Changes(rows, change, made, bad)

    def _batch(
        self,
        flat: Mapping[str, Column],
        columns: Sequence[str],
        rows: npt.NDArray[np.int64],
        after: npt.NDArray[np.bool_],
        updates: npt.NDArray[np.bool_],
    ) -> pa.RecordBatch:
        import pyarrow.compute as pc

        keys = {name.lower() for name in self.key or ()}
        times = {name.lower() for name in self.times}
        index, is_after = pa.array(rows), pa.array(after)
        arrays = []
        for name in columns:
            sides = [flat[f"{side}.{name}"].take(index) for side in SIDES]
            if name.lower() in times:  # both changes of an update have the time of the newer row
                newer = pc.coalesce(sides[1], sides[0])
                own = pc.if_else(pa.array(after | updates), newer, sides[0])
                value = pc.coalesce(own, self._top(flat, name, index, own.type))
            else:
                value = pc.if_else(is_after, sides[1], sides[0])
                if name.lower() in keys or name == TS:
                    value = pc.coalesce(value, self._top(flat, name, index, value.type))
            arrays.append(value)
        if not arrays:
            return pa.record_batch({"_": pa.nulls(len(rows))}).select([])
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _top(self, flat: Mapping[str, Column], name: str, index: Any, kind: pa.DataType) -> Any:
        """The values of a column beside ``before`` and ``after``."""
        column: Any = flat[name].take(index)
        if column.type == kind:
            return column
        if pa.types.is_timestamp(kind):  # TS, in milliseconds since 1970
            return column.cast(pa.timestamp("ms")).cast(pa.timestamp("us")).cast(kind)
        return column.cast(kind)

    def _any(self, flat: Mapping[str, Column], prefix: str, count: int) -> npt.NDArray[np.bool_]:
        """Whether a row has a value in some column whose name begins so."""
        found = np.zeros(count, bool)
        for name, column in flat.items():
            if name.startswith(prefix) and column.null_count < count:
                found |= column.is_valid().to_numpy(zero_copy_only=False)
        return found

    def _keys(self, flat: Mapping[str, Column], count: int) -> npt.NDArray[np.bool_]:
        """Whether a row has a key beside ``before`` and ``after``."""
        found = np.zeros(count, bool)
        for name in self.key or ():
            found |= flat[name].is_valid().to_numpy(zero_copy_only=False)
        return found

    def _are_updates(self, codes: Column) -> npt.NDArray[np.bool_]:
        import pyarrow.compute as pc

        found = pc.equal(pc.utf8_lower(codes.cast(pa.string())), "u").fill_null(False)
        made: npt.NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
        return made

    def _moved(self, flat: Mapping[str, Column], count: int) -> npt.NDArray[np.bool_]:
        """Whether the key before an update differs from that after it."""
        import pyarrow.compute as pc

        moved = np.zeros(count, bool)
        for name in self.key or ():
            before, after = flat[f"before.{name}"], flat[f"after.{name}"]
            differs = pc.not_equal(before, after).fill_null(False)
            moved |= differs.to_numpy(zero_copy_only=False)
        return moved
