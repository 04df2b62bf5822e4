"""CSV: one row per line, with delimiters between its values."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from cql.base.model import Field
from cql.base.types import TIMESTAMP, DataType, Kind
from cql.catalog.convert import SHORTEN, Column, TooLongError
from cql.catalog.files.reading import guarded
from cql.catalog.files.text import (
    DECLARE,
    NO_ROW,
    TextFormat,
    Wanted,
    check_text,
    empty_of,
    guessed_number,
    guessing,
    misfit,
    single,
)
from cql.catalog.options import Options
from cql.errors import CatalogError


class CsvFormat(TextFormat):
    """Options: header (true), delimiter or sep (','), quote ('"'; '': none, so that every
    character stands for itself), null (texts that mean NULL, besides an empty field without
    quotes), timestamp_format (strptime, several with commas), multiline (false; true: quoted values
    may hold line ends), encoding ('utf-8')."""

    name = "csv"

    def __init__(self, options: Options, delimiter: str, columns: Sequence[Field] | None) -> None:
        super().__init__(options, columns)
        nested = next((f for f in columns or () if f.type.is_nested), None)
        if nested is not None:
            raise CatalogError(
                f"a CSV file holds no values of type {nested.type} (column {nested.name})",
                hint="declare the column STRING, or write JSON lines or Parquet",
            )
        self.header = options.flag("header", True)
        self._delimiter = options.character("sep", options.character("delimiter", delimiter))
        self._quote = options.character("quote", '"', none=True)
        self._nulls = ["", *options.texts("null")]
        self._formats = list(options.texts("timestamp_format"))
        self.multiline = options.flag("multiline")
        if self.multiline and not self._quote:
            raise options.fail("multiline", "a quote as well: only quoted values hold line ends")
        self._row = _record(self._delimiter, self._quote)
        self._columns = columns

    def raw_type(self, kind: DataType) -> pa.DataType:
        if kind.kind is Kind.INTERVAL:
            raise CatalogError("a CSV file holds no intervals", hint="declare the column BIGINT")
        if kind == TIMESTAMP:
            return pa.timestamp("us") if self._formats else pa.string()
        return kind.to_arrow()

    def _parse_options(self, single: bool) -> Any:
        import pyarrow.csv as pc

        return pc.ParseOptions(
            delimiter=self._delimiter,
            quote_char=self._quote or False,
            newlines_in_values=self.multiline,
            # An empty line of a file with one column is that column's NULL.
            ignore_empty_lines=not single,
        )

    def _convert_options(self, types: Mapping[str, pa.DataType], include: Sequence[str]) -> Any:
        import pyarrow.csv as pc

        stamps: Any = list(self._formats) or [pc.ISO8601]
        return pc.ConvertOptions(
            column_types=dict(types),
            include_columns=list(include),
            null_values=self._nulls,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=stamps,
        )

    def head(self, path: str) -> list[str]:
        """The names of the file's columns; empty for a file without a line."""
        import pyarrow.csv as pc

        with guarded(path):
            with self.stream(path) as stream:
                first = first_line(stream, self.multiline, self._quote)
            check_text(path, first)
            if not first.strip():
                return []
            options = pc.ReadOptions(autogenerate_column_names=not self.header)
            table = pc.read_csv(
                io.BytesIO(first), read_options=options, parse_options=self._parse_options(False)
            )
            names: list[str] = table.column_names
        if self.header:
            return names
        if self._columns is not None:
            declared = [f.name for f in self._columns]
            if len(declared) != len(names):
                raise CatalogError(
                    f"file {path} has {len(names)} columns, declared are {len(declared)}",
                    hint="without a header, the declared columns are the file's, in order",
                )
            return declared
        return [f"_c{i}" for i in range(len(names))]

    def infer(self, path: str, size: int) -> pa.Schema:
        head = self.head(path)
        if not head:
            return pa.schema([])
        data = self.sample(path, size)
        data = data[self.opening(data) :]
        if not data.strip(b"\r\n"):
            return pa.schema([pa.field(name, pa.null()) for name in head])
        with guarded(path), guessing(path):
            table = self._table(data, head, {}, [])
        if len(set(head)) < len(head):  # callers refuse two columns of one name
            return pa.schema([pa.field(name, pa.null()) for name in head])
        fields = []
        for name, column in zip(head, table.columns, strict=True):
            if pa.types.is_float64(column.type):
                texts = partial(self._texts, data, head, name)
                fields.append(guessed_number(name, column, texts))
            else:  # there is no type for times of day: STRING keeps them whole
                time = pa.types.is_time(column.type)
                fields.append(pa.field(name, pa.string() if time else _micros(column.type)))
        return pa.schema(fields)

    def texts(self, data: bytes, wanted: Wanted, index: int) -> Column:
        return self._texts(data, wanted.head, wanted.names[index])

    def _texts(self, data: bytes, head: Sequence[str], name: str) -> Column:
        table = self._table(data, head, {name: pa.string()}, [name])
        return table.column(0).combine_chunks()

    def _table(
        self,
        data: bytes,
        head: Sequence[str],
        types: Mapping[str, pa.DataType],
        include: Sequence[str],
    ) -> pa.Table:
        import pyarrow.csv as pc

        return pc.read_csv(
            io.BytesIO(data),
            read_options=pc.ReadOptions(column_names=list(head), block_size=max(len(data), 1024)),
            parse_options=self._parse_options(len(head) == 1),
            convert_options=self._convert_options(types, include),
        )

    def check(self, path: str) -> pa.Schema | None:
        return pa.schema([pa.field(n, pa.null()) for n in self.head(path)])

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        return None

    def parse(self, data: bytes, wanted: Wanted) -> pa.RecordBatch:
        types = {n: self.raw_type(f.type) for n, f in zip(wanted.names, wanted.fields, strict=True)}
        if not data:
            return empty_of(types)
        if self._row.match(self._last_line(data)) is None:  # Arrow would accept the broken row
            raise ValueError(NO_ROW)
        if types:
            return single(self._table(data, wanted.head, types, wanted.names))
        first = wanted.head[0]  # read only to count the rows
        return single(self._table(data, wanted.head, {first: pa.string()}, [first])).select([])

    def _last_line(self, data: bytes) -> bytes:
        if self.multiline:
            return self.split(data)[-1]
        return data[data.rfind(b"\n", 0, len(data) - 1) + 1 :]

    def opening(self, data: bytes) -> int:
        if not self.header:
            return 0
        first = (self._row.match(data) if self.multiline else None) or _LINE.match(data)
        return 0 if first is None else first.end()

    def is_row(self, line: bytes, wanted: Wanted) -> bool:
        return len(wanted.head) == 1 or bool(line.rstrip(b"\r\n"))

    def cut(self, data: bytes) -> int:
        if not self.multiline:
            return super().cut(data)
        at = 0
        while (row := self._row.match(data, at)) and row.group().endswith(b"\n"):
            at = row.end()
        return at

    def split(self, data: bytes) -> list[bytes]:
        """With ``multiline``, quoted line ends belong to a row; a quote without an end spoils only
        its own line."""
        if not self.multiline:
            return super().split(data)
        found, at = [], 0
        while at < len(data):
            row = self._row.match(data, at) or _LINE.match(data, at)
            assert row is not None
            found.append(row.group())
            at = row.end()
        return found

    def complaint(self, line: bytes, error: Exception, wanted: Wanted) -> tuple[str, str]:
        text = str(error).split("\n", 1)[0]
        if isinstance(error, TooLongError):
            return text, SHORTEN
        if self._row.match(line) is None:
            remedy = "" if self.multiline else "; values with line ends need multiline 'true'"
            remedy += "; quote '' if quotes stand for themselves"
            return "a quote is not closed", f"close it{remedy}"
        if found := _IN_COLUMN.match(text):
            name, what = wanted.head[int(found[1])], found[2]
            if name not in wanted.names:
                return f"column {name}: {what}", DECLARE
            field = wanted.fields[list(wanted.names).index(name)]
            if value := _INVALID.search(what):
                return misfit(field, value[1]), DECLARE
            return f"column {field.name}: {what}", DECLARE
        if found := _COUNTS.search(text):
            return (
                f"{found[2]} values for {found[1]} columns",
                "correct the row; a value that holds the delimiter must be quoted",
            )
        return text, DECLARE


_IN_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", re.DOTALL)
_INVALID = re.compile(r"invalid value '(.*)'$", re.DOTALL)
_COUNTS = re.compile(r"Expected (\d+) columns, got (\d+)")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|\Z)")


def _record(delimiter: str, quote: str) -> re.Pattern[bytes]:
    """A row whose quoted values may hold line ends; no match if a quote is not closed. As in
    Arrow's reader, a quote counts at the start of a value only. Without a quote, any line."""
    if not quote:
        return _LINE
    d, q = re.escape(delimiter.encode()), re.escape(quote.encode())
    value = rb"(?>(?:%b[^%b]*(?:%b%b[^%b]*)*%b|(?!%b))[^%b\r\n]*)" % (q, q, q, q, q, q, q, d)
    return re.compile(rb"(?>%b(?:%b%b)*)(?:\r\n|\n|\r|\Z)" % (value, d, value))


def first_line(stream: Any, multiline: bool, quote: str) -> bytes:
    """The first line, to its line end; with ``multiline`` quoted line ends belong to it."""
    data = b""
    while True:
        more: bytes = stream.read(65_536)
        data += more
        at = data.find(b"\n")
        while at >= 0 and multiline and data[:at].count(quote.encode()) % 2:
            at = data.find(b"\n", at + 1)
        if at >= 0:
            return data[: at + 1]
        if not more:
            return data


def _micros(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind
