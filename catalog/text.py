"""CSV and JSON-lines: files whose types are declared or guessed, read as text or followed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from cql.catalog.convert import Column
from cql.catalog.options import Options
from cql.catalog.reading import guarded, named, too_short
from cql.errors import CatalogError
from cql.model import Field
from cql.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, DataType, Kind

#: Bytes that the types are guessed from, and that are parsed at a time.
CHUNK = 4 << 20
_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"


def times(array: Column, target: DataType) -> Column:
    """Texts as times: ISO, with or without a zone; without one a TIMESTAMP is UTC. A text with a
    zone is no TIMESTAMP_NTZ. Raises ArrowInvalid."""
    import pyarrow.compute as pc

    if target in (TIMESTAMP_NTZ, DATE):
        return array.cast(target.to_arrow())
    try:
        return array.cast(TIMESTAMP.to_arrow())
    except pa.ArrowInvalid:
        bare = pc.if_else(
            pc.match_substring_regex(array, _ZONE),
            array,
            pc.binary_join_element_wise(array, "Z", ""),
        )
        return bare.cast(TIMESTAMP.to_arrow())


class TextFormat:
    """What CSV and JSON-lines share: a raw schema for the parser, and the search for a bad row."""

    name = ""

    def head(self, path: str) -> list[str]:
        """The names of a CSV file's columns, in order; empty where lines name them themselves."""
        raise NotImplementedError

    def raw_type(self, kind: DataType) -> pa.DataType:
        raise NotImplementedError

    def parse(
        self, data: bytes, fields: Sequence[Field], names: Sequence[str], head: Sequence[str]
    ) -> pa.RecordBatch:
        """Complete lines as one batch. ``head`` names the columns of a CSV file."""
        raise NotImplementedError

    def finish(self, batch: pa.RecordBatch, fields: Sequence[Field]) -> pa.RecordBatch:
        """Texts that stand for times become times. Raises ArrowInvalid."""
        arrays = []
        for column, field in zip(batch.columns, fields, strict=True):
            wanted = field.type in (TIMESTAMP, TIMESTAMP_NTZ, DATE)
            is_text = pa.types.is_string(column.type)
            arrays.append(times(column, field.type) if wanted and is_text else column)
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines that hold rows, in order."""
        raise NotImplementedError

    def blame(
        self,
        path: str,
        fields: Sequence[Field],
        names: Sequence[str],
        head: Sequence[str],
        row: int,
        error: Exception,
    ) -> CatalogError:
        """The error for the first row from ``row`` on that cannot be read by itself. The parser
        tells no row numbers, so the lines are tried one by one: slow, and only done once."""
        found: int | None = None
        detail = error
        for number, line in enumerate(self.lines(path)):
            if number < row:
                continue
            try:
                self.finish(self.parse(line, fields, names, head), fields)
            except (pa.ArrowException, ValueError) as inner:
                found, detail = number, inner
                break
        place = f"row {found}" if found is not None else f"after row {row}"
        return CatalogError(
            f"file {path}, {place}: {_plain(detail, names)}",
            hint="correct the row, or declare a type that holds the value (STRING takes all)",
        )


def _plain(error: Exception, names: Sequence[str]) -> str:
    """Arrow's message with the column's name in place of its number."""
    text = str(error).split("\n", 1)[0]
    for i, name in enumerate(names):
        text = text.replace(f"In CSV column #{i}:", f"column {name}:")
    return text


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
        with guarded(path):
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

    def read(
        self, path: str, fields: Sequence[Field], names: Sequence[str], skip: int
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.csv as pc

        head = self.head(path)
        if not head:
            return
        types = {n: self.raw_type(f.type) for n, f in zip(names, fields, strict=True)}
        row = 0
        try:
            reader = pc.open_csv(
                path,
                read_options=pc.ReadOptions(
                    column_names=head, skip_rows=int(self.header), block_size=CHUNK
                ),
                parse_options=self._parse_options(len(head) == 1),
                convert_options=self._convert_options(types, names),
            )
            for batch in reader:
                part = batch.slice(min(max(skip - row, 0), batch.num_rows))
                done = self.finish(part, fields)
                row += batch.num_rows
                if part.num_rows:
                    yield done
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error) and not skip:  # a header and nothing else
                return
            if self.multiline:  # a row may have many lines: they cannot be tried one by one
                raise CatalogError(
                    f"file {path}, after row {row}: {_plain(error, names)}",
                    hint="correct the row, or declare the column STRING",
                ) from error
            raise self.blame(path, fields, names, head, row, error) from error
        except (pa.ArrowException, OSError, EOFError) as error:
            with guarded(path, f", after row {row},"):
                raise error
        if row < skip:
            raise too_short(path, row, skip)

    def parse(
        self, data: bytes, fields: Sequence[Field], names: Sequence[str], head: Sequence[str]
    ) -> pa.RecordBatch:
        import pyarrow.csv as pc

        types = {n: self.raw_type(f.type) for n, f in zip(names, fields, strict=True)}
        table = pc.read_csv(
            io.BytesIO(data),
            read_options=pc.ReadOptions(column_names=list(head), block_size=max(len(data), 1024)),
            parse_options=self._parse_options(len(head) == 1),
            convert_options=self._convert_options(types, names),
        )
        return _single(table)

    def lines(self, path: str) -> Iterator[bytes]:
        with guarded(path):
            single = len(self.head(path)) == 1
            with pa.input_stream(path) as stream:
                for number, line in enumerate(io.BufferedReader(cast(Any, stream))):
                    if (number > 0 or not self.header) and (line.strip() or single):
                        yield line


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
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays(
        [pa.array([], f.type) for f in table.schema], names=table.column_names
    )


class JsonFormat(TextFormat):
    """One JSON object a line; a column that an object lacks is NULL, and so are columns it has and
    nobody declared. Times are ISO texts (without a zone: UTC)."""

    name = "json"
    multiline = False

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
            block = pj.ReadOptions(block_size=max(len(sample), 1024))
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

    def _options(self, fields: Sequence[Field], names: Sequence[str]) -> Any:
        import pyarrow.json as pj

        types = [pa.field(n, self.raw_type(f.type)) for n, f in zip(names, fields, strict=True)]
        return pj.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="ignore")

    def read(
        self, path: str, fields: Sequence[Field], names: Sequence[str], skip: int
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.json as pj

        row = 0
        try:
            reader = pj.open_json(
                path,
                read_options=pj.ReadOptions(block_size=CHUNK),
                parse_options=self._options(fields, names),
            )
            for batch in reader:
                part = batch.select(list(names))
                part = part.slice(min(max(skip - row, 0), batch.num_rows))
                done = self.finish(part, fields)
                row += batch.num_rows
                if part.num_rows:
                    yield done
        except pa.ArrowInvalid as error:
            if "Empty JSON" in str(error) and not skip:
                return
            raise self.blame(path, fields, names, (), row, error) from error
        except (pa.ArrowException, OSError, EOFError) as error:
            with guarded(path, f", after row {row},"):
                raise error
        if row < skip:
            raise too_short(path, row, skip)

    def parse(
        self, data: bytes, fields: Sequence[Field], names: Sequence[str], head: Sequence[str]
    ) -> pa.RecordBatch:
        import pyarrow.json as pj

        del head
        table = pj.read_json(
            io.BytesIO(data),
            read_options=pj.ReadOptions(block_size=max(len(data), 1024)),
            parse_options=self._options(fields, names),
        )
        return _single(table.select(list(names)))

    def lines(self, path: str) -> Iterator[bytes]:
        with guarded(path), pa.input_stream(path) as stream:
            for line in io.BufferedReader(cast(Any, stream)):
                if line.strip():
                    yield line


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
    if pc.all(pc.match_substring_regex(present, r"^\d{4}-\d\d-\d\d$")).as_py():
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
