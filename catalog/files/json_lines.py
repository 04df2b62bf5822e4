"""JSON-lines: one object per line."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from cql.base.model import Field
from cql.base.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType, Kind
from cql.catalog.convert import SHORTEN, Column, TooLongError, find_name, named
from cql.catalog.files.reading import guarded
from cql.catalog.files.text import (
    DAY,
    DECLARE,
    NO_ROW,
    ZONE,
    TextFormat,
    Wanted,
    empty_of,
    guessed_number,
    guessing,
    misfit,
    single,
    times,
)
from cql.catalog.memory.rows import REFUSALS
from cql.catalog.options import Options
from cql.errors import CatalogError


class JsonFormat(TextFormat):
    """One JSON object per line. A column that an object lacks is NULL; a member that is no declared
    column is ignored. Names match as column names do, also if their case differs. Times are ISO
    texts (without a zone: UTC). A STRING column holds a value that is no text as its JSON text.
    Option: encoding ('utf-8')."""

    name = "json"

    def __init__(self, options: Options, columns: Sequence[Field] | None) -> None:
        super().__init__(options, columns)
        #: Columns that some row had, NULL or not.
        self.met: set[str] = set()

    def raw_type(self, kind: DataType) -> pa.DataType:
        if kind.kind in (Kind.INTERVAL, Kind.BINARY):
            raise CatalogError(
                f"a JSON file holds no values of type {kind}", hint="declare the column STRING"
            )
        if kind in (TIMESTAMP, TIMESTAMP_NTZ, DATE):
            return pa.string()
        if kind.element is not None:
            return pa.list_(pa.field("element", self.raw_type(kind.element)))
        if kind.fields:
            return pa.struct([pa.field(name, self.raw_type(of)) for name, of in kind.fields])
        return kind.to_arrow()

    def head(self, path: str) -> list[str]:
        del path  # every line names its own columns
        return []

    def check(self, path: str) -> pa.Schema | None:
        return None

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        return None

    def infer(self, path: str, size: int) -> pa.Schema:
        sample = self.sample(path, size)
        if not sample.strip():
            return pa.schema([])
        if not _begins_with_object(sample):
            raise CatalogError(
                f"file {path}, line 1: not a JSON object", hint="write one in each line"
            )
        with guarded(path):
            with guessing(path):
                table = self._table(sample, None)
            found = named(table.schema)
            names = [f.name for f in found if _maybe_text(f.type)]
            as_texts = self._table(sample, {name: pa.string() for name in names})
        fields = []
        for field, column in zip(found, table.columns, strict=True):
            if field.name in names:
                kind = _guess(as_texts.column(field.name).combine_chunks())
                fields.append(pa.field(field.name, kind))
            elif pa.types.is_float64(field.type):
                texts = partial(self._texts, sample, field.name)
                fields.append(guessed_number(field.name, column, texts))
            else:
                fields.append(pa.field(field.name, _without_times(field.type)))
        return pa.schema(fields)

    def texts(self, data: bytes, wanted: Wanted, index: int) -> Column:
        return self._texts(data, wanted.names[index])

    def _texts(self, data: bytes, name: str) -> Column:
        found = []
        for line in data.splitlines():  # as bytes: texts end lines at more characters
            if line.strip():
                raw = _member(members(line.decode()), name, self.others)
                found.append(None if raw is None or raw == "null" else raw)
        return pa.array(found, pa.string())

    def _table(self, data: bytes, types: Mapping[str, pa.DataType] | None) -> pa.Table:
        """All columns in guessed types, or the columns of ``types``."""
        import pyarrow.json as pj

        schema = None if types is None else pa.schema(types)
        return pj.read_json(
            io.BytesIO(data),
            read_options=pj.ReadOptions(block_size=max(len(data), 1024)),
            parse_options=pj.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="infer" if types is None else "ignore",
            ),
        )

    def parse(self, data: bytes, wanted: Wanted) -> pa.RecordBatch:
        types = self._types(wanted)
        if not data.strip():
            return empty_of(types)
        if not _begins_with_object(data):  # Arrow accepts "null" lines, and crashes on a first one
            raise ValueError(NO_ROW)
        try:
            batch = single(self._table(data, types).select(list(wanted.names)))
        except pa.ArrowInvalid:
            if not any(f.type == STRING for f in wanted.fields):
                raise
        else:
            if all(column.null_count for column in batch.columns) and _NULL_LINE.search(data):
                raise ValueError(NO_ROW)  # Arrow reads it as a row of NULLs
            if not self._spelt_otherwise(data, batch):
                return batch
        plain = self._plain(data, wanted)
        return single(self._table(plain, types).select(list(wanted.names)))

    def _types(self, wanted: Wanted) -> dict[str, pa.DataType]:
        pairs = zip(wanted.names, wanted.fields, strict=True)
        return {name: self.raw_type(f.type) for name, f in pairs}

    def _spelt_otherwise(self, data: bytes, batch: pa.RecordBatch) -> bool:
        """Whether a column with NULLs may have values under a name that differs in case."""
        missing = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if column.null_count < len(column):
                self.met.add(name)
            if column.null_count:
                missing.append(name)
        if not missing:
            return False
        lower = data.lower() if all(name.isascii() for name in missing) else None
        if lower is None:
            lower = data.decode().lower().encode()
        found = False
        for name in missing:
            alike = lower.count(json.dumps(name.lower(), ensure_ascii=False).encode())
            if alike:
                self.met.add(name)
            found |= alike != data.count(json.dumps(name, ensure_ascii=False).encode())
        return found

    def _plain(self, data: bytes, wanted: Wanted) -> bytes:
        """The same rows under the requested names, with texts in STRING columns. Raises
        ValueError."""
        lines = []
        for line in data.splitlines():
            if not line.strip():
                continue
            try:
                found = members(line.decode())
            except RecursionError:
                raise ValueError(NO_ROW) from None
            parts = []
            for name, field in zip(wanted.names, wanted.fields, strict=True):
                raw = _member(found, name, self.others)
                if raw is None:
                    continue
                self.met.add(name)
                if field.type == STRING and raw[0] != '"' and raw != "null":
                    raw = json.dumps(raw)
                parts.append(f"{json.dumps(name)}:{raw}")
            lines.append("{" + ",".join(parts) + "}\n")
        return "".join(lines).encode()

    def opening(self, data: bytes) -> int:
        del data
        return 0

    def is_row(self, line: bytes, wanted: Wanted) -> bool:
        del wanted
        return bool(line.strip())

    def complaint(self, line: bytes, error: Exception, wanted: Wanted) -> tuple[str, str]:
        text = line.decode()
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as inner:
            what = ""
            if isinstance(inner, json.JSONDecodeError):
                what = f": {inner.msg} at character {inner.pos + 1}"
            return f"not a JSON object{what}", "write one JSON object in each line"
        if not isinstance(row, dict):
            return "not a JSON object", "write one JSON object in each line"
        for name, field in zip(wanted.names, wanted.fields, strict=True):
            one = replace(wanted, fields=[field], names=[name])
            try:
                raw = _member(members(text), name, self.others)
            except CatalogError as ambiguous:
                return ambiguous.message, ambiguous.hint or ""
            try:
                self.finish(self.parse(line, one), one)
            except TooLongError as found:
                return str(found), SHORTEN
            except REFUSALS:
                return misfit(field, None if raw is None else json.loads(raw)), DECLARE
        return str(error).split("\n", 1)[0], "correct the row"


_VALUE = json.JSONDecoder().raw_decode
_NULL_LINE = re.compile(rb"(?m)^[ \t\r]*null[ \t\r]*$")
_SPACE = re.compile(r"[ \t\r\n]*")


def members(line: str) -> dict[str, str]:
    """The members of the object in a line, each value as it is written. Raises JSONDecodeError, a
    ValueError."""

    def skipped(at: int) -> int:
        found = _SPACE.match(line, at)
        assert found is not None
        return found.end()

    def take(at: int, mark: str) -> int:
        at = skipped(at)
        if not line.startswith(mark, at):
            raise json.JSONDecodeError(f"Expecting '{mark}'", line, at)
        return skipped(at + 1)

    found: dict[str, str] = {}
    at = take(0, "{")
    while not (line.startswith("}", at) and not found):
        name, end = _VALUE(line, at)
        if not isinstance(name, str):
            raise json.JSONDecodeError("Expecting a name", line, at)
        start = take(end, ":")
        _, end = _VALUE(line, start)
        found[name] = line[start:end]
        at = skipped(end)
        if not line.startswith(",", at):
            break
        at = take(at, ",")
    if skipped(take(at, "}")) < len(line):
        raise json.JSONDecodeError("Extra data", line, at + 1)
    return found


def _member(found: Mapping[str, str], name: str, others: Sequence[str]) -> str | None:
    raw = found.get(name)
    if raw is None:
        spelt = find_name(name, list(found), others, "an object")
        raw = None if spelt is None else found[spelt]
    return raw


def _begins_with_object(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{"


def _maybe_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_timestamp, pa.types.is_string, pa.types.is_null)
    return any(test(kind) for test in tests)


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow has guessed, with texts as elements and fields where it saw times or no
    value: it ignores zones."""
    if pa.types.is_list(kind):
        return pa.list_(_text_or(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _text_or(f.type)) for f in kind])
    return kind


def _text_or(kind: pa.DataType) -> pa.DataType:
    return pa.string() if _maybe_text(kind) else _without_times(kind)


def _guess(texts: Column) -> pa.DataType:
    """DATE, TIMESTAMP or TIMESTAMP_NTZ if every text is one, else STRING; NULL without any text."""
    import pyarrow.compute as pc

    present = texts.drop_null()
    if not len(present):
        return pa.null()
    if pc.all(pc.match_substring_regex(present, DAY)).as_py():
        candidates = (DATE,)
    elif not pc.all(pc.match_substring_regex(present, r"^\d{4}-\d\d-\d\d[T ]")).as_py():
        return pa.string()
    elif pc.any(pc.match_substring_regex(present, ZONE)).as_py():
        candidates = (TIMESTAMP,)
    else:
        candidates = (TIMESTAMP_NTZ,)
    try:
        times(present, candidates[0])
    except pa.ArrowInvalid:
        return pa.string()
    return candidates[0].to_arrow()
