"""CSV and JSON-lines: files whose types are declared or guessed, read as text or followed."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cql.catalog.convert import Column, article
from cql.catalog.options import Options
from cql.catalog.reading import guarded, named, skipped, trusted
from cql.catalog.rows import REFUSALS, TOGETHER, Rows, clipped, salvage
from cql.errors import CatalogError
from cql.executor.protocols import BadInput
from cql.model import Field
from cql.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, DataType, Kind

#: Bytes that the types are guessed from, and that are parsed at a time.
CHUNK = 4 << 20
#: A value with line ends that is longer than this has lost its closing quote.
LONGEST = 4 * CHUNK
NO_ROW = "the line is not one row"
DECLARE = "correct the row, or declare a type that holds the value (STRING takes all)"
_DAY = r"^\d{4}-\d\d-\d\d$"
_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"


def times(array: Column, target: DataType) -> Column:
    """Texts as times: ISO, with or without a zone; without one a TIMESTAMP is UTC, a day its
    midnight. A text with a zone is no TIMESTAMP_NTZ. Raises ArrowInvalid."""
    import pyarrow.compute as pc

    if target in (TIMESTAMP_NTZ, DATE):
        return array.cast(target.to_arrow())
    try:
        return array.cast(TIMESTAMP.to_arrow())
    except pa.ArrowInvalid:
        zoned, day = (pc.match_substring_regex(array, regex) for regex in (_ZONE, _DAY))
        rest = pc.if_else(day, "T00:00:00Z", pc.if_else(zoned, "", "Z"))
        return pc.binary_join_element_wise(array, rest, "").cast(TIMESTAMP.to_arrow())


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of a file: ``fields`` under the ``names`` that the file has for them; ``head``
    names all columns of a CSV file."""

    path: str
    fields: Sequence[Field]
    names: Sequence[str]
    head: Sequence[str]


class TextFormat(ABC):
    """What CSV and JSON-lines share: a file is parsed some megabytes at a time, and where that
    fails, line by line. A row is a line, whatever stands in other lines."""

    multiline = False

    @abstractmethod
    def head(self, path: str) -> list[str]:
        """The names of a CSV file's columns, in order; empty where lines name them themselves."""

    @abstractmethod
    def opening(self, data: bytes) -> int:
        """Bytes at the start of a file that hold no rows."""

    @abstractmethod
    def parse(self, data: bytes, wanted: Wanted) -> pa.RecordBatch:
        """Complete lines as one batch, times still as texts. Raises ArrowInvalid, ValueError."""

    @abstractmethod
    def is_row(self, line: bytes, wanted: Wanted) -> bool:
        """Whether a line holds a row: empty ones do not, for the most part."""

    @abstractmethod
    def complaint(self, line: bytes, error: Exception, wanted: Wanted) -> tuple[str, str]:
        """What is wrong with a line, and the remedy."""

    def read(
        self, path: str, fields: Sequence[Field], names: Sequence[str], skip: int
    ) -> Iterator[Rows]:
        return skipped(self._parts(path, fields, names), skip, path)

    def _parts(self, path: str, fields: Sequence[Field], names: Sequence[str]) -> Iterator[Rows]:
        wanted = Wanted(path, fields, names, self.head(path))
        line = 1
        for data in self._chunks(path):
            start = self.opening(data) if line == 1 else 0
            yield from self.rows(data[start:], line + lines_in(data[:start]), wanted)
            line += lines_in(data)

    def _chunks(self, path: str) -> Iterator[bytes]:
        """The file in pieces of about CHUNK bytes that end where a row does."""
        rest = b""
        with guarded(path):
            stream = pa.input_stream(path)
        with stream:
            while True:
                with guarded(path):
                    more: bytes = stream.read(CHUNK)
                if not more:
                    break
                rest += more
                at = self.cut(rest) if b"\n" in more else 0
                if at == 0 and len(rest) > LONGEST:
                    at = rest.rfind(b"\n") + 1
                if at > 0:
                    yield rest[:at]
                    rest = rest[at:]
        if rest:
            yield rest

    def cut(self, data: bytes) -> int:
        """Where the last complete row of ``data`` ends."""
        return data.rfind(b"\n") + 1

    def split(self, data: bytes) -> list[bytes]:
        """The lines, with their ends."""
        return data.splitlines(keepends=True)

    def rows(self, data: bytes, line: int, wanted: Wanted) -> Iterator[Rows]:
        """The rows of whole lines, of which the first has the number ``line``."""
        if line == 1:
            data = data.removeprefix(codecs.BOM_UTF8)
        try:
            whole = self._attempt(data, wanted)
        except REFUSALS:
            yield from self._line_by_line(data, line, wanted)
        else:
            if whole.num_rows:
                yield Rows(whole)

    def _attempt(self, data: bytes, wanted: Wanted) -> pa.RecordBatch:
        batch = trusted(self.finish(self.parse(data, wanted), wanted))
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        if batch.num_rows != lines and batch.num_rows != self._count(data, wanted):
            raise ValueError(NO_ROW)
        return batch

    def _count(self, data: bytes, wanted: Wanted) -> int:
        return sum(self.is_row(line, wanted) for line in self.split(data))

    def finish(self, batch: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
        """Texts that stand for times become times. Raises ArrowInvalid."""
        arrays = []
        for column, field in zip(batch.columns, wanted.fields, strict=True):
            if field.type in (TIMESTAMP, TIMESTAMP_NTZ, DATE) and pa.types.is_string(column.type):
                column = _times(column, field)
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _line_by_line(self, data: bytes, line: int, wanted: Wanted) -> Iterator[Rows]:
        """Good rows and bad ones, at most TOGETHER at a time."""
        lines: list[tuple[int, bytes]] = []
        for text in self.split(data):
            if self.is_row(text, wanted):
                lines.append((line, text))
            line += lines_in(text)
        for first in range(0, len(lines), TOGETHER):
            yield self._salvaged(lines[first : first + TOGETHER], wanted)

    def _salvaged(self, lines: list[tuple[int, bytes]], wanted: Wanted) -> Rows:
        def attempt(start: int, stop: int) -> pa.RecordBatch:
            return self._attempt(b"".join(text for _, text in lines[start:stop]), wanted)

        def blame(index: int, error: Exception) -> BadInput:
            number, line = lines[index]
            what, remedy = self.complaint(line, error, wanted)
            text = line.decode(errors="replace").rstrip("\r\n")
            return BadInput(
                index, f"file {wanted.path}, line {number}: {what}", remedy, clipped(text)
            )

        good, bad = salvage(len(lines), attempt, blame)
        if not good:
            return Rows(self.parse(b"", wanted), tuple(bad))
        return Rows(pa.concat_batches(good), tuple(bad))


def lines_in(data: bytes) -> int:
    """How many lines end in ``data``."""
    return data.count(b"\n") or data.count(b"\r")


def _times(column: Column, field: Field) -> Column:
    try:
        return times(column, field.type)
    except pa.ArrowInvalid as error:
        if len(column) == 1:
            raise ValueError(_misfit(field, column[0].as_py())) from error
        raise


def _misfit(field: Field, value: object) -> str:
    return f"column {field.name}: {clipped(repr(value))} is not {article(field.type)}"


class CsvFormat(TextFormat):
    """Options: header (true), delimiter or sep (','), quote ('"'), null (texts that mean NULL,
    besides an empty field without quotes), timestamp_format (strptime, several with commas),
    multiline (false; true: quoted values may hold line ends)."""

    name = "csv"

    def __init__(self, options: Options, delimiter: str, columns: Sequence[Field] | None) -> None:
        self.header = options.flag("header", True)
        self._delimiter = options.character("sep", options.character("delimiter", delimiter))
        self._quote = options.character("quote", '"')
        self._nulls = ["", *options.texts("null")]
        self._formats = list(options.texts("timestamp_format"))
        self.multiline = options.flag("multiline")
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
            quote_char=self._quote,
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
            with pa.input_stream(path) as stream:
                first = first_line(stream, self.multiline, self._quote)
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

    def infer(self, path: str) -> pa.Schema:
        import pyarrow.csv as pc

        head = self.head(path)
        if not head:
            raise CatalogError(f"file {path} is empty", hint="declare the columns of the stream")
        with guarded(path), _guessing(path):
            reader = pc.open_csv(
                path,
                read_options=pc.ReadOptions(
                    column_names=head, skip_rows=int(self.header), block_size=CHUNK
                ),
                parse_options=self._parse_options(len(head) == 1),
                convert_options=self._convert_options({}, []),
            )
            found = named(reader.schema)
        # A column of NULLs and times of day have no type of their own here: text keeps them whole.
        odd = [pa.types.is_null(f.type) or pa.types.is_time(f.type) for f in found]
        types = [pa.string() if o else f.type for o, f in zip(odd, found, strict=True)]
        return pa.schema([pa.field(n, _micros(t)) for n, t in zip(head, types, strict=True)])

    def check(self, path: str) -> pa.Schema | None:
        return pa.schema([pa.field(n, pa.null()) for n in self.head(path)])

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        return None

    def parse(self, data: bytes, wanted: Wanted) -> pa.RecordBatch:
        import pyarrow.csv as pc

        types = {n: self.raw_type(f.type) for n, f in zip(wanted.names, wanted.fields, strict=True)}
        if not data:
            return empty_of(types)
        if self._row.match(self._last_line(data)) is None:  # Arrow would take it as it is
            raise ValueError(NO_ROW)
        table = pc.read_csv(
            io.BytesIO(data),
            read_options=pc.ReadOptions(
                column_names=list(wanted.head), block_size=max(len(data), 1024)
            ),
            parse_options=self._parse_options(len(wanted.head) == 1),
            convert_options=self._convert_options(types, wanted.names),
        )
        return _single(table)

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
        """With ``multiline`` quoted line ends belong to a row; a quote that nobody closes spoils
        its own line only."""
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
        if self._row.match(line) is None:
            remedy = "" if self.multiline else "; values with line ends need multiline 'true'"
            return "a quote is not closed", f"close it{remedy}"
        if found := _IN_COLUMN.match(text):
            name, what = wanted.head[int(found[1])], found[2]
            field = wanted.fields[list(wanted.names).index(name)]
            if value := _INVALID.search(what):
                return _misfit(field, value[1]), DECLARE
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
    Arrow's reader, a quote counts at the start of a value only."""
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


def _single(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else empty_of({f.name: f.type for f in table.schema})


def empty_of(types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], t) for t in types.values()], names=list(types))


class JsonFormat(TextFormat):
    """One JSON object a line; a column that an object lacks is NULL, and so are columns it has and
    nobody declared. Times are ISO texts (without a zone: UTC)."""

    name = "json"

    def __init__(self, options: Options) -> None:
        del options  # no options of its own

    def raw_type(self, kind: DataType) -> pa.DataType:
        if kind.kind in (Kind.INTERVAL, Kind.BINARY):
            raise CatalogError(
                f"a JSON file holds no values of type {kind}", hint="declare the column STRING"
            )
        if kind in (TIMESTAMP, TIMESTAMP_NTZ, DATE):
            return pa.string()
        return kind.to_arrow()

    def head(self, path: str) -> list[str]:
        del path  # every line names its own columns
        return []

    def check(self, path: str) -> pa.Schema | None:
        return None

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        return None

    def infer(self, path: str) -> pa.Schema:
        import pyarrow.json as pj

        with guarded(path):
            with pa.input_stream(path) as stream:
                sample = _whole_lines(stream)
            if not sample.strip():
                raise CatalogError(
                    f"file {path} is empty", hint="declare the columns of the stream"
                )
            if not _begins_with_object(sample.removeprefix(codecs.BOM_UTF8)):
                raise CatalogError(
                    f"file {path}, line 1: not a JSON object", hint="write one in each line"
                )
            block = pj.ReadOptions(block_size=max(len(sample), 1024))
            with _guessing(path):
                found = named(pj.read_json(io.BytesIO(sample), read_options=block).schema)
            texts = [f.name for f in found if _maybe_text(f.type)]
            asked = pa.schema([pa.field(n, pa.string()) for n in texts])
            table = pj.read_json(
                io.BytesIO(sample),
                read_options=block,
                parse_options=pj.ParseOptions(
                    explicit_schema=asked, unexpected_field_behavior="ignore"
                ),
            )
        guessed = {n: _guess(table.column(n).combine_chunks()) for n in texts}
        return pa.schema([pa.field(f.name, guessed.get(f.name, f.type)) for f in found])

    def _types(self, wanted: Wanted) -> dict[str, pa.DataType]:
        pairs = zip(wanted.names, wanted.fields, strict=True)
        return {name: self.raw_type(f.type) for name, f in pairs}

    def parse(self, data: bytes, wanted: Wanted) -> pa.RecordBatch:
        import pyarrow.json as pj

        types = self._types(wanted)
        if not data.strip():
            return empty_of(types)
        if not _begins_with_object(data):  # Arrow takes a line "null", and dies of a first one
            raise ValueError(NO_ROW)
        table = pj.read_json(
            io.BytesIO(data),
            read_options=pj.ReadOptions(block_size=max(len(data), 1024)),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(types), unexpected_field_behavior="ignore"
            ),
        )
        return _single(table.select(list(wanted.names)))

    def opening(self, data: bytes) -> int:
        del data
        return 0

    def is_row(self, line: bytes, wanted: Wanted) -> bool:
        del wanted
        return bool(line.strip())

    def complaint(self, line: bytes, error: Exception, wanted: Wanted) -> tuple[str, str]:
        try:
            row = json.loads(line)
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
                self.finish(self.parse(line, one), one)
            except REFUSALS:
                return _misfit(field, row.get(name)), DECLARE
        return str(error).split("\n", 1)[0], "correct the row"


@contextlib.contextmanager
def _guessing(path: str) -> Iterator[None]:
    """Rows that cannot be read together do not say what their columns are."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise CatalogError(
            f"file {path} does not tell its columns: {str(error).splitlines()[0]}",
            hint="declare them, CREATE STREAM s (column TYPE, ...): rows that do not fit are bad "
            "rows then",
        ) from error


def _begins_with_object(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{"


def _whole_lines(stream: Any) -> bytes:
    """At least one line and about CHUNK bytes, ending at a line end (or the end of the file)."""
    data: bytes = stream.read(CHUNK)
    if len(data) < CHUNK:
        return data
    while b"\n" not in data:
        more: bytes = stream.read(CHUNK)
        if not more:
            return data
        data += more
    return data[: data.rindex(b"\n") + 1]


def _maybe_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_timestamp, pa.types.is_string, pa.types.is_null)
    return any(test(kind) for test in tests)


def _guess(texts: Column) -> pa.DataType:
    """DATE, TIMESTAMP or TIMESTAMP_NTZ where every text is one, else STRING."""
    import pyarrow.compute as pc

    present = texts.drop_null()
    if not len(present):
        return pa.string()
    if pc.all(pc.match_substring_regex(present, _DAY)).as_py():
        candidates = (DATE,)
    elif not pc.all(pc.match_substring_regex(present, r"^\d{4}-\d\d-\d\d[T ]")).as_py():
        return pa.string()
    elif pc.any(pc.match_substring_regex(present, _ZONE)).as_py():
        candidates = (TIMESTAMP,)
    else:
        candidates = (TIMESTAMP_NTZ,)
    try:
        times(present, candidates[0])
    except pa.ArrowInvalid:
        return pa.string()
    return candidates[0].to_arrow()
