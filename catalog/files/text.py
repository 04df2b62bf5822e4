"""Common parts of CSV and JSON-lines: files of lines with declared or guessed types, read whole or
followed, and cut, decoded and searched in the same way."""

from __future__ import annotations

import codecs
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from cql.base.model import Field
from cql.base.types import (
    DATE,
    DOUBLE,
    MAX_DECIMAL_DIGITS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
)
from cql.catalog.convert import UNREADABLE, Column, article, check_digits
from cql.catalog.files.reading import guarded, skipped, trusted
from cql.catalog.memory.rows import REFUSALS, TOGETHER, Rows, clipped, salvage
from cql.catalog.options import Options
from cql.errors import CatalogError
from cql.executor.protocols import BadInput

#: Bytes from which types are guessed, and bytes that are parsed at a time.
CHUNK = 4 << 20
#: A value with line ends that is longer than this has lost its closing quote.
LONGEST = 4 * CHUNK
NO_ROW = "the line is not one row"
ENCODING = "give the option encoding with what the file is written in, such as encoding 'latin-1'"
DECLARE = "correct the row, or declare a type that holds the value (STRING takes all)"
DAY = r"^\d{4}-\d\d-\d\d$"
ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"


def times(array: Column, target: DataType) -> Column:
    """Texts as times: ISO, with or without a zone. Without a zone a TIMESTAMP is UTC; a day means
    its midnight. A text with a zone is no TIMESTAMP_NTZ. Raises ArrowInvalid."""
    import pyarrow.compute as pc

    if target in (TIMESTAMP_NTZ, DATE):
        return array.cast(target.to_arrow())
    try:
        return array.cast(TIMESTAMP.to_arrow())
    except pa.ArrowInvalid:
        zoned, day = (pc.match_substring_regex(array, regex) for regex in (ZONE, DAY))
        rest = pc.if_else(day, "T00:00:00Z", pc.if_else(zoned, "", "Z"))
        return pc.binary_join_element_wise(array, rest, "").cast(TIMESTAMP.to_arrow())


def with_times(array: Column, target: DataType) -> Column:
    """A column of arrays or structs whose parts have the types of ``target``, with times in place
    of texts. Raises ArrowInvalid."""
    if target.element is not None:
        element = with_times(array.values, target.element)
        field = pa.field("element", element.type)
        return pa.ListArray.from_arrays(
            array.offsets, element, pa.list_(field), mask=array.is_null()
        )
    if target.fields:
        parts = [with_times(array.field(k), of) for k, (_, of) in enumerate(target.fields)]
        names = [name for name, _ in target.fields]
        return pa.StructArray.from_arrays(parts, names, mask=array.is_null())
    timed = target in (TIMESTAMP, TIMESTAMP_NTZ, DATE) and pa.types.is_string(array.type)
    return times(array, target) if timed else array


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns to read of a file: ``fields`` under the ``names`` that the file has for them.
    ``head`` names all columns of a CSV file."""

    path: str
    fields: Sequence[Field]
    names: Sequence[str]
    head: Sequence[str]


class TextFormat(ABC):
    """The common base of CSV and JSON-lines. A file is parsed some megabytes at a time and, if that
    fails, line by line. A row is one line, whatever other lines hold."""

    multiline = False

    def __init__(self, options: Options, columns: Sequence[Field] | None) -> None:
        self.guessed = columns is None
        #: All columns of the stream: the name of one is not taken for another spelling.
        self.others: Sequence[str] = () if columns is None else [f.name for f in columns]
        self.encoding = _encoding(options)

    @abstractmethod
    def infer(self, path: str, size: int) -> pa.Schema:
        """See ``formats.Format``."""

    @abstractmethod
    def texts(self, data: bytes, wanted: Wanted, index: int) -> Column:
        """One of the columns, as the texts in the lines."""

    @abstractmethod
    def head(self, path: str) -> list[str]:
        """The names of a CSV file's columns, in order; empty if each line names its columns."""

    @abstractmethod
    def opening(self, data: bytes) -> int:
        """Bytes at the start of a file that hold no rows."""

    @abstractmethod
    def parse(self, data: bytes, wanted: Wanted) -> pa.RecordBatch:
        """Complete lines as one batch, times still as texts. Raises ArrowInvalid, ValueError."""

    @abstractmethod
    def is_row(self, line: bytes, wanted: Wanted) -> bool:
        """Whether a line holds a row; most empty lines do not."""

    @abstractmethod
    def complaint(self, line: bytes, error: Exception, wanted: Wanted) -> tuple[str, str]:
        """The fault of a line, and the remedy."""

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
            stream = self.stream(path)
        with stream:
            while True:
                with guarded(path):
                    more = stream.read(CHUNK)
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

    def stream(self, path: str) -> ByteStream:
        """The bytes of the file, unpacked and in UTF-8."""
        raw = pa.input_stream(path)
        return raw if self.encoding is None else _Recoded(raw, self.encoding, path)

    def complete(self, path: str) -> bool:
        del path
        return True

    @property
    def ends_lines(self) -> bool:
        """Whether a line end is the same single byte as in ASCII, so that lines can be followed."""
        return self.encoding is None or "\n".encode(self.encoding) == b"\n"

    def decoded(self, data: bytes, path: str, at: int) -> bytes:
        """Whole lines in UTF-8; ``at`` is their byte position in a file that is followed."""
        if self.encoding is None:
            return data
        try:
            return data.decode(self.encoding).encode()
        except UnicodeDecodeError as error:
            raise not_encoded(path, at + error.start, self.encoding, error) from error

    def sample(self, path: str, size: int) -> bytes:
        """Rows from the beginning of the file: about ``size`` bytes, at least one row. Raises
        CatalogError if they are not text."""
        data = b""
        with guarded(path), self.stream(path) as stream:
            while more := stream.read(size):
                data += more
                if len(data) >= size and (at := self.cut(data)):
                    data = data[:at]
                    break
        check_text(path, data)
        return data.removeprefix(codecs.BOM_UTF8)

    def cut(self, data: bytes) -> int:
        """Where the last complete row of ``data`` ends."""
        return data.rfind(b"\n") + 1

    def split(self, data: bytes) -> list[bytes]:
        """The lines, with their ends."""
        return data.splitlines(keepends=True)

    def rows(self, data: bytes, line: int, wanted: Wanted) -> Iterator[Rows]:
        """The rows of whole lines; ``line`` is the number of the first line."""
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
        if self.guessed:
            self._check_rounding(batch, data, wanted)
        return batch

    def _check_rounding(self, batch: pa.RecordBatch, data: bytes, wanted: Wanted) -> None:
        """Raises ValueError for a whole number that becomes another number as a double."""
        for index, field in enumerate(wanted.fields):
            if field.type == DOUBLE and _beyond(batch.column(index)):
                for text in _whole_numbers(self.texts(data, wanted, index)):
                    if _loses(text):
                        raise ValueError(f"column {field.name}: {clipped(text)} is no double")

    def _count(self, data: bytes, wanted: Wanted) -> int:
        return sum(self.is_row(line, wanted) for line in self.split(data))

    def finish(self, batch: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
        """Converts the texts of time columns to times. Raises ArrowInvalid, and ValueError for a
        decimal that has too many digits."""
        if not wanted.fields:
            return batch  # no columns, but a number of rows
        arrays = []
        for column, field in zip(batch.columns, wanted.fields, strict=True):
            if field.type in (TIMESTAMP, TIMESTAMP_NTZ, DATE) and pa.types.is_string(column.type):
                column = _times(column, field)
            elif field.type.is_nested:
                column = with_times(column, field.type)
            elif field.type.declared:
                check_digits(column, field)
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
            what, remedy = _not_text(line) or self.complaint(line, error, wanted)
            text = line.decode(errors="replace").rstrip("\r\n")
            return BadInput(
                index, f"file {wanted.path}, line {number}: {what}", remedy, clipped(text)
            )

        good, bad = salvage(len(lines), attempt, blame)
        if not good:
            return Rows(self.parse(b"", wanted), tuple(bad))
        return Rows(pa.concat_batches(good), tuple(bad))


class ByteStream(Protocol):
    def read(self, size: int) -> bytes: ...
    def __enter__(self) -> ByteStream: ...
    def __exit__(self, *error: object) -> None: ...


class _Recoded:
    """A stream of another encoding, converted to UTF-8."""

    def __init__(self, raw: Any, encoding: str, path: str) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._encoding = encoding
        self._path = path
        self._read = 0

    def read(self, size: int) -> bytes:
        while True:
            more: bytes = self._raw.read(size)
            before = self._decoder.getstate()[0]
            try:
                text = self._decoder.decode(more, final=not more)
            except UnicodeDecodeError as error:
                at = self._read - len(before) + error.start
                raise not_encoded(self._path, at, self._encoding, error) from error
            self._read += len(more)
            if text or not more:
                return text.encode()

    def __enter__(self) -> _Recoded:
        return self

    def __exit__(self, *error: object) -> None:
        self._raw.close()


def check_text(path: str, data: bytes) -> None:
    """Raises CatalogError if the beginning of a file is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        where, byte = error.start, data[error.start]
        line = lines_in(data[:where]) + 1
        raise CatalogError(
            f"file {path}, byte {where} (line {line}): 0x{byte:02X} is not UTF-8", hint=ENCODING
        ) from error


def not_encoded(path: str, at: int, encoding: str, error: UnicodeDecodeError) -> CatalogError:
    return CatalogError(
        f"file {path}, byte {at}: 0x{error.object[error.start]:02X} is not {encoding}",
        hint="give the encoding that the file is written in",
    )


def _encoding(options: Options) -> str | None:
    """The name of the encoding; None for UTF-8."""
    given = options.text("encoding")
    if given is None:
        return None
    try:
        found = codecs.lookup(given)
        "".encode(found.name)
    except LookupError:
        wanted = "the name of an encoding of text, such as 'utf-8', 'latin-1' or 'utf-16'"
        raise options.fail("encoding", wanted) from None
    return None if found.name == "utf-8" else found.name


def _not_text(line: bytes) -> tuple[str, str] | None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        byte = line[error.start]
        return f"byte {error.start} of the line, 0x{byte:02X}, is not UTF-8", ENCODING
    return None


def guessed_number(name: str, numbers: Column, texts: Callable[[], Column]) -> pa.Field[Any]:
    """The field of a column that was guessed as doubles, ``numbers``. The type is another one if
    whole numbers in the column exceed 64 bits or are no doubles."""
    if not _beyond(numbers):
        return pa.field(name, pa.float64())
    present = texts().drop_null()
    whole = _whole_numbers(present)
    lost = next((text for text in whole if _loses(text)), None)
    if lost is None:
        return pa.field(name, pa.float64())
    digits = max(len(text.lstrip("+-").lstrip("0")) for text in whole)
    every = len(_whole_numbers(present, least=1)) == len(present.unique())
    if every and digits <= MAX_DECIMAL_DIGITS:
        return pa.field(name, pa.decimal128(max(digits, 20), 0))
    reason = "which no bigint holds" if every else "which no double holds, beside fractions"
    reason = f"it holds {clipped(lost)}, {reason}: declare it STRING, or DOUBLE to have it rounded"
    return pa.field(name, pa.float64(), metadata={UNREADABLE: reason.encode()})


def _beyond(numbers: Column) -> bool:
    """Whether some values are so large that not every whole number of that size is a double."""
    import pyarrow.compute as pc

    largest = pc.max(pc.abs(numbers)).as_py()
    return largest is not None and not largest < 2**53


def _whole_numbers(texts: Column, least: int = 16) -> list[str]:
    """The distinct texts of whole numbers with at least ``least`` digits (2^53 has 16)."""
    import pyarrow.compute as pc

    matched = pc.match_substring_regex(texts, rf"^[+-]?[0-9]{{{least},}}$")
    found: list[str] = texts.filter(matched).unique().to_pylist()
    return found


def _loses(text: str) -> bool:
    """Whether a whole number exceeds 64 bits or is not a double."""
    if len(text) > 400:  # Python's int() has a limit, and no double is that large
        return True
    number = int(text)
    return not -(2**63) <= number < 2**63 or int(float(number)) != number


def lines_in(data: bytes) -> int:
    """Number of lines that end in ``data``."""
    return data.count(b"\n") or data.count(b"\r")


def _times(column: Column, field: Field) -> Column:
    try:
        return times(column, field.type)
    except pa.ArrowInvalid as error:
        if len(column) == 1:
            raise ValueError(misfit(field, column[0].as_py())) from error
        raise


def misfit(field: Field, value: object) -> str:
    return f"column {field.name}: {clipped(repr(value))} is not {article(field.type)}"


def single(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else empty_of({f.name: f.type for f in table.schema})


def empty_of(types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], t) for t in types.values()], names=list(types))


@contextlib.contextmanager
def guessing(path: str) -> Iterator[None]:
    """Raises CatalogError if rows cannot be read together: they do not show their columns."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise CatalogError(
            f"file {path} does not tell its columns: {str(error).splitlines()[0]}",
            hint="declare them, CREATE STREAM s (column TYPE, ...): rows that do not fit are bad "
            "rows then",
        ) from error
