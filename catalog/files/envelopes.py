"""Files of Debezium envelopes, read as flat columns (``catalog.changelogs.debezium``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cql.base.model import Field
from cql.catalog.changelogs.debezium import SIDES, flat_batch, flat_lines, flat_schema
from cql.catalog.convert import Column
from cql.catalog.files.formats import Format
from cql.catalog.files.json_lines import JsonFormat, members
from cql.catalog.files.text import Wanted, single
from cql.catalog.memory.rows import Rows
from cql.catalog.signals.sampled import SampledFormat
from cql.errors import CatalogError


class EnvelopeLines(JsonFormat):
    """JSON-lines; a line is an envelope, or null."""

    def __init__(self, format: JsonFormat) -> None:
        self.guessed, self.others = format.guessed, format.others
        self.encoding, self.met = format.encoding, format.met

    def sample(self, path: str, size: int) -> bytes:
        try:
            return flat_lines(super().sample(path, size), members)
        except ValueError:
            return b"?"  # refused as no JSON objects

    def texts(self, data: bytes, wanted: Wanted, index: int) -> Column:
        return super().texts(flat_lines(data, members), wanted, index)

    def parse(self, data: bytes, wanted: Wanted) -> pa.RecordBatch:
        if data.lstrip()[:1] == b"{" and _as_spelt(data, wanted.names):
            try:
                return self._together(data, wanted)
            except pa.ArrowException:  # such as a number in a column of texts
                pass
        return super().parse(flat_lines(data, members), wanted)

    def _together(self, data: bytes, wanted: Wanted) -> pa.RecordBatch:
        """All lines, read by Arrow as structs. Raises ArrowException for values that do not fit
        their columns."""
        types = self._types(wanted)
        sides: dict[str, dict[str, pa.DataType]] = {side: {} for side in SIDES}
        tops: dict[str, pa.DataType] = {}
        for name, kind in types.items():
            side, dot, column = name.partition(".")
            if dot and side in SIDES:
                sides[side][column] = kind
            else:
                tops[name] = kind
        inside = {**{s: pa.struct(list(of.items())) for s, of in sides.items() if of}, **tops}
        whole, key = (pa.struct(list(of.items())) for of in (inside, tops))
        keys = pa.struct([*key, ("payload", key)])
        table = self._table(data, {**inside, "payload": whole, "value": whole, "key": keys})
        read = single(table)
        found = [flat_batch(read.select(list(inside)))]
        found += [flat_batch(read.select([h])) for h in ("payload", "value") if _has(read, h)]
        if _has(read, "key"):
            own = pa.RecordBatch.from_struct_array(read.column("key"))
            found += [own.drop_columns(["payload"]), flat_batch(own.select(["payload"]))]
        columns = []
        for name in wanted.names:
            held = [batch.column(name) for batch in found if name in batch.schema.names]
            columns.append(held[0] if len(held) == 1 else _first_of(held))
        return pa.RecordBatch.from_arrays(columns, names=list(wanted.names))

    def complaint(self, line: bytes, error: Exception, wanted: Wanted) -> tuple[str, str]:
        try:
            flat = flat_lines(line, members)
        except ValueError:
            return super().complaint(line, error, wanted)
        for name, field in zip(wanted.names, wanted.fields, strict=True):
            one = replace(wanted, fields=[field], names=[name])
            try:
                self.finish(super().parse(flat, one), one)
            except (CatalogError, pa.ArrowException, ValueError) as inner:
                what = str(inner).split("\n", 1)[0]
                if not what.startswith("column"):
                    what = f"column {name}: {what}"
                return what, "correct the row, or declare a type that holds the value"
        return str(error).split("\n", 1)[0], "correct the row"


def _as_spelt(data: bytes, names: Sequence[str]) -> bool:
    """Whether no member of an object may have one of these names in other letters, upper or lower
    case."""
    if not data.isascii():
        return False
    lower = data.lower()
    parts = {json.dumps(part) for name in names for part in name.split(".", 1)}
    return all(lower.count(p.lower().encode()) == data.count(p.encode()) for p in parts)


def _has(batch: pa.RecordBatch, column: str) -> bool:
    return bool(batch.column(column).null_count < batch.num_rows)


def _first_of(columns: Sequence[Column]) -> Column:
    import pyarrow.compute as pc

    made: Column = pc.coalesce(*columns)
    return made


@dataclass(frozen=True, slots=True)
class EnvelopeColumns:
    """Files with columns of structs."""

    format: Format

    @property
    def name(self) -> str:
        return self.format.name

    def infer(self, path: str, size: int) -> pa.Schema:
        return flat_schema(self.format.infer(path, size))

    def check(self, path: str) -> pa.Schema | None:
        found = self.format.check(path)
        return None if found is None else flat_schema(found)

    def read(
        self, path: str, fields: Sequence[Field], names: Sequence[str], skip: int
    ) -> Iterator[Rows]:
        schema = self.format.check(path)
        assert schema is not None
        # The columns of the file that some of the flat columns come from.
        tops = [f.name for f in schema if {*flat_schema(pa.schema([f])).names} & {*names}]
        for rows in self.format.read(path, fields, tops, skip):
            yield replace(rows, batch=flat_batch(rows.batch).select(list(names)))

    def complete(self, path: str) -> bool:
        return self.format.complete(path)

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        found = self.format.count(path)
        return None if found is None else (found[0], {})


def of_envelopes(format: Format, what: str) -> Format:
    """``format`` for files of envelopes. Raises CatalogError for a format without objects."""
    if isinstance(format, JsonFormat):
        return EnvelopeLines(format)
    if format.name == "csv" or isinstance(format, SampledFormat):
        named = "CSV file" if format.name == "csv" else f"file of {format.name}"
        raise CatalogError(
            f"{what}: a {named} has no Debezium envelopes",
            hint="CHANGELOG BY op takes a column with operation codes",
        )
    return EnvelopeColumns(format)
