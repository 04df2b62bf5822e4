"""Files and folders as one source: in order of their paths, each from its first row to its last.

``listing`` finds the files. Folders named ``column=value`` are partitions: their column is appended
to the file's own.

Offsets are ``{"row": n, "file": path, "in_file": m}``: n rows of all files were read (bad rows
too), the last of them being row m - 1 of that file. Files before it are not opened again.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cql.base.model import Field, Schema
from cql.base.types import NULL, STRING
from cql.catalog.blocks import BlockReader, IteratorFeed, Piece, row_of
from cql.catalog.convert import (
    Column,
    Shaper,
    assignable,
    empty_columns,
    find_name,
    pick,
    read_schema,
    widens,
)
from cql.catalog.files.envelopes import of_envelopes
from cql.catalog.files.formats import NAMES, Format, format_of, make_format
from cql.catalog.files.json_lines import JsonFormat
from cql.catalog.files.listing import DataFile, list_files, partition_fields
from cql.catalog.files.reading import guarded
from cql.catalog.files.schema import drifted, merged, spread
from cql.catalog.files.text import TextFormat
from cql.catalog.memory.rows import Rows
from cql.catalog.options import Options
from cql.catalog.signals.sampled import SampledFormat
from cql.errors import CatalogError, did_you_mean
from cql.executor.protocols import Offset, Reader
from cql.planner.nodes.catalog import Statistics

#: Statistics come from the footers of at most this many files.
FOOTERS = 256
#: The schema comes from at most this many files. Text formats read this many bytes of all files
#: together, and at least this many of each.
LOOKED_AT = 1_000
SAMPLES = 64 << 20
LEAST_SAMPLE = 64 << 10


def constant(value: str | None, field: Field, rows: int, path: str) -> Column:
    """A partition's column: one value, repeated."""
    kind: Any = field.type.to_arrow()  # the stubs want each type by itself
    if value is None:
        return pa.nulls(rows, kind)
    if field.type == STRING:
        zeros = pa.repeat(pa.scalar(0, pa.int32()), rows)
        return pa.DictionaryArray.from_arrays(zeros, pa.array([value], pa.string()))
    try:
        repeated: Column = pa.repeat(pa.scalar(value).cast(kind), rows)
        return repeated
    except pa.ArrowException as error:
        raise CatalogError(
            f"the folder of {path} says {field.name}={value}, which is no {field.type}",
            hint="rename the folder, or declare the column STRING",
        ) from error


class FileSource:
    """See the module. Options: path, format (by suffix without it) and those of the format.

    The schema is the declared one, or one that holds the values of the existing files
    (``schema.merged``; of text formats, of samples). Each file is checked against it when it is
    opened: a narrower type is widened, any other type raises CatalogError, a missing column is
    NULL."""

    bounded = True
    rereadable = True
    replayable = True

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        what: str,
        format: str | None = None,
        declared: Schema | None = None,
        growing: bool = False,
        envelopes: bool = False,
        one_file: bool = False,
    ) -> None:
        """``growing`` files may be incomplete: an incomplete file does not count for the schema.
        ``envelopes``: the rows are Debezium envelopes, and the columns their flat columns.
        ``one_file``: the path names a file, also if it reads as a pattern. If the file has been
        removed, reading it raises CatalogError."""
        given = Options(options, what)
        self._what = what
        self._paths = given.paths("path")
        named = given.text("format", format)
        self._declared = declared
        self._one_file = one_file
        files = self.files()
        self.format = _format(named, given, files, self._paths, what, declared)
        self._envelopes = envelopes
        if envelopes:
            self.format = of_envelopes(self.format, what)
        given.done()
        self._partition_fields = partition_fields(files, what)
        self._origin: dict[str, str] = {}
        self._met: set[str] = set()  # requested columns that the opened files had
        self._seen: set[str] = set()  # all column names of the opened files
        if growing:
            files = [f for f in files if self.format.complete(f.path)]
        self.schema, self.unsupported = self._describe(files)
        if isinstance(self.format, TextFormat):
            self.format.others = self.schema.names

    def _describe(self, files: Sequence[DataFile]) -> tuple[Schema, dict[str, str]]:
        parts = self._partition_fields
        if self._declared is not None:
            names = {f.name.lower(): f for f in self._declared}
            self._partition_fields = [names.get(f.name.lower(), f) for f in parts]
            if files:
                self.columns_in(files[0], self._own(self._declared))
            return self._declared, {}
        if not files:
            raise CatalogError(
                f"{self._what}: no files in {', '.join(self._paths)}",
                hint="declare the columns, or name a folder that holds files",
            )
        most = LOOKED_AT if self.samples is None else self.samples.looked_at
        looked = spread([f.path for f in files], most)
        share = max(LEAST_SAMPLE, SAMPLES // len(looked))
        found = [(path, self.format.infer(path, share)) for path in looked]
        columns = merged(found, self._what, text=isinstance(self.format, TextFormat))
        if not columns.fields and not columns.unsupported:
            empty = f"file {looked[0]} is" if len(looked) == 1 else f"all files of {self._what} are"
            raise CatalogError(f"{empty} empty", hint="declare the columns of the stream")
        self._origin = columns.origin
        taken = {f.name.lower() for f in parts}
        kept = tuple(f for f in columns.fields if f.name.lower() not in taken)
        return Schema((*kept, *parts)), columns.unsupported

    def _own(self, schema: Schema) -> list[Field]:
        """The columns of ``schema`` that files hold themselves: all but the partitions."""
        taken = {f.name.lower() for f in self._partition_fields}
        return [f for f in schema if f.name.lower() not in taken]

    @property
    def samples(self) -> SampledFormat | None:
        """The format, if a row of the files is a sample."""
        return self.format if isinstance(self.format, SampledFormat) else None

    @property
    def partitioned(self) -> bool:
        return bool(self._partition_fields)

    def files(self) -> list[DataFile]:
        if self._one_file:
            return [DataFile(path, {}) for path in self._paths]
        return list_files(self._paths, self._what)

    def version(self) -> Any:
        """The existing files, each with its size and the time of its last change."""
        found = []
        for file in self.files():
            with guarded(file.path):
                status = os.stat(file.path)
            found.append((file.path, status.st_size, status.st_mtime_ns))
        return tuple(found)

    def statistics(self) -> Statistics:
        files = self.files()
        if not 0 < len(files) <= FOOTERS:
            return Statistics()
        rows = 0
        nulls: dict[str, int] = {f.name: 0 for f in self.schema}
        for file in files:
            counted = self.format.count(file.path)
            if counted is None:
                return Statistics()
            rows += counted[0]
            for field in self._own(self.schema):
                if field.name in nulls and field.name in counted[1]:
                    nulls[field.name] += counted[1][field.name]
                else:
                    nulls.pop(field.name, None)
        for part in self._partition_fields:
            nulls.pop(part.name, None)
        return Statistics(rows=rows, nulls=nulls)

    def open(self, columns: Sequence[str], offset: Offset | None = None) -> Reader:
        fields = pick(self.schema, columns, self._what)
        row = row_of(offset, self._what)
        files = self.files()
        start = 0
        if offset is not None and "file" in offset:
            files = _from(files, str(offset["file"]), self._what)
            start = int(offset["in_file"])
        notices: list[str] = []
        pieces = self._pieces(files, fields, row, start, notices)
        feed = IteratorFeed(pieces, pieces.close)
        reader = BlockReader(feed, Shaper(fields), row=row, offset=offset or {"row": 0})
        reader.notices = notices
        return reader

    def _pieces(
        self,
        files: Sequence[DataFile],
        fields: Sequence[Field],
        row: int,
        skip: int,
        notices: list[str],
    ) -> Generator[Piece, None, None]:
        """The rows of the files from row ``skip`` of the first file on; ``row`` numbers them."""
        own, whole = self.wanted(fields), row == 0
        for file in files:
            place = skip
            held, names = self.columns_in(file, own)
            for rows in self.format.read(file.path, held, names, skip):
                raw = self.complete(file, fields, held, rows)
                yield file_piece(raw, file.path, row, place)
                row, place = row + raw.count, place + raw.count
            skip = 0
            notices += self.told()
        if whole and row:
            notices += self.unmet(own)

    def told(self) -> list[str]:
        """The notices of the format about the files read so far, each once."""
        found: list[str] = []
        while self.samples is not None and self.samples.notices:
            found.append(f"{self._what}: {self.samples.notices.pop(0)}")
        return found

    def unmet(self, fields: Sequence[Field]) -> list[str]:
        """A notice for each declared column that no row had that was read."""
        if self._declared is None or self._envelopes:
            return []
        met = self._met if not isinstance(self.format, JsonFormat) else self.format.met
        found = []
        for field in fields:
            if field.name not in met:
                hint = did_you_mean(field.name, self._seen - {f.name for f in self._declared})
                close = f"; {hint}" if hint and hint.startswith("did") else ""
                what = f"{self._what}: column {field.name} is in no row of its files"
                found.append(f"{what}, and NULL in all{close}")
        return found

    def complete(
        self, file: DataFile, fields: Sequence[Field], held: Sequence[Field], rows: Rows
    ) -> Rows:
        """The requested columns, from the file and the names of its folders; NULL where neither has
        them."""
        batch = rows.batch
        if not fields:
            return Rows(empty_columns(batch.num_rows), rows.bad)
        values = {k.lower(): v for k, v in file.partitions.items()}
        read = {f.name: batch.column(i) for i, f in enumerate(held)}
        arrays: list[Column] = []
        for f in fields:
            if f.name.lower() in values:
                arrays.append(constant(values[f.name.lower()], f, batch.num_rows, file.path))
            elif f.name in read:
                arrays.append(read[f.name])
            else:
                arrays.append(pa.nulls(batch.num_rows, f.type.to_arrow()))
        return Rows(pa.RecordBatch.from_arrays(arrays, names=[f.name for f in fields]), rows.bad)

    def wanted(self, fields: Sequence[Field]) -> list[Field]:
        """The columns to read of a file for ``fields``: at least one, to count the file's rows."""
        own = self._own(Schema(tuple(fields)))
        if own:
            return own
        rest = self._own(self.schema)
        narrow = [f for f in rest if not f.type.is_coded]
        return (narrow or rest)[:1]

    def columns_in(self, file: DataFile, fields: Sequence[Field]) -> tuple[list[Field], list[str]]:
        """The requested columns that the file holds, and its spelling of their names. Raises
        CatalogError if the file does not fit the schema."""
        expected = [f.name.lower() for f in self._partition_fields]
        if [name.lower() for name in file.partitions] != expected:
            raise CatalogError(
                f"{self._what}: the folders of {file.path} do not name the partitions "
                + (", ".join(expected) or "(there are none)"),
                hint="all files must lie under the same levels of column=value",
            )
        found = self.format.check(file.path)
        if found is None:
            return list(fields), [f.name for f in fields]
        where = f"file {file.path}"
        if all(pa.types.is_null(f.type) for f in found):  # names only: the parser sets the types
            actual = Schema(tuple(Field(f.name, NULL) for f in found))
            unsupported: dict[str, str] = {}
        else:
            actual, unsupported = read_schema(found, where)
        fits = widens if self._declared is None else assignable
        others = (self._declared or self.schema).names
        held: list[Field] = []
        names: list[str] = []
        for field in fields:
            name = find_name(field.name, found.names, others, where)
            if name is None:
                if self._origin.get(field.name) == file.path:  # the file had this column before
                    raise drifted(where, field, "it has no such column", None)
                continue
            index = actual.find(name)
            if index is None:
                raise drifted(where, field, unsupported[name], self._origin.get(field.name))
            kind = actual[index].type
            if not fits(kind, field.type):
                raise drifted(where, field, kind, self._origin.get(field.name))
            held.append(field)
            names.append(name)
        self._met.update(f.name for f in held)
        self._seen.update(found.names)
        return held, names


def file_piece(rows: Rows, path: str, row: int, place: int) -> Piece:
    def after(k: int) -> Offset:
        return {"row": row + k, "file": path, "in_file": place + k}

    return Piece(rows, after, f"file {path}", place)


def _from(files: list[DataFile], path: str, what: str) -> list[DataFile]:
    """The files from ``path`` on."""
    for i, file in enumerate(files):
        if file.path == path:
            return files[i:]
    raise CatalogError(
        f"{what}: file {path}, where the query stood, is gone",
        hint="put it back, or start the query anew",
    )


def _format(
    named: str | None,
    options: Options,
    files: Sequence[DataFile],
    paths: Sequence[str],
    what: str,
    declared: Schema | None,
) -> Format:
    """The ``named`` format, else the one of the suffix that all files share."""
    first = files[0].path if files else None
    if named is None:
        kinds = {format_of(f.path) for f in files} or {format_of(p) for p in paths}
        kind = next(iter(kinds))
        if len(kinds) > 1 or kind is None:
            raise CatalogError(
                f"{what}: the names of the files do not tell their format",
                hint=f"give the option format: {', '.join(dict.fromkeys(NAMES.values()))}",
            )
        named = kind
    return make_format(named, options, first, None if declared is None else declared.fields)
