"""The catalog of one session: streams and tables over data in memory, files and generators.

Names are matched without regard to case. A name is never taken as a path: files are reached only
through the option ``path`` of a declared stream or table.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cql.base.model import Schema
from cql.base.types import Kind
from cql.catalog.changelogs import debezium
from cql.catalog.changelogs.relation import as_changes
from cql.catalog.convert import pick
from cql.catalog.files.follow import FollowSource
from cql.catalog.files.formats import NAMES
from cql.catalog.files.source import FileSource
from cql.catalog.files.tables import FileTable, FirstSink
from cql.catalog.memory.clock import Clock
from cql.catalog.memory.generator import RateSource
from cql.catalog.memory.iterables import IterableSource
from cql.catalog.memory.memory_table import MemoryTable, Published
from cql.catalog.memory.pushed import PushedSource
from cql.catalog.memory.replay import OWN_OPTIONS, ReplaySource
from cql.catalog.memory.row_watermarks import RowWatermarks
from cql.catalog.options import Options
from cql.catalog.read_relation import ReadRelation
from cql.catalog.signals.sample_blocks import as_samples
from cql.catalog.signals.sampled import SampledFormat
from cql.catalog.sources import (
    DatasetSource,
    DataSource,
    DeclaredSource,
    ReaderSource,
    TableSource,
    as_table,
    is_dataset,
)
from cql.errors import CatalogError, did_you_mean
from cql.executor.protocols import Sink, Source
from cql.planner.nodes.catalog import (
    PUSH,
    Relation,
    Statistics,
    StreamDefinition,
    StreamSpec,
    TableFiles,
    refuse_computed,
)
from cql.planner.nodes.progress import is_value

Name = tuple[str, ...]


def dotted(name: Name) -> str:
    return ".".join(name)


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """A stream or table of this catalog. ``unsupported`` names the columns of the data that no
    query can use, with the reason; ``definition`` is that of CREATE STREAM, if there was one;
    ``folder`` is that of a table of files; ``key`` are the columns of a table's PRIMARY KEY."""

    name: Name
    kind: str
    schema: Schema
    stream: StreamSpec | None
    bounded: bool
    make: Callable[[], Source] = field(repr=False, compare=False)
    count: Callable[[], Statistics] = field(repr=False, compare=False)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    definition: StreamDefinition | None = None
    folder: str | None = None
    key: tuple[str, ...] = ()

    @property
    def statistics(self) -> Statistics:
        return self.count()

    def has_default(self, column: str) -> bool:
        del column
        return False

    def default(self, column: str) -> object:
        del column
        return None

    def source(self) -> Source:
        return self.make()


@dataclass(frozen=True, slots=True)
class _Entry:
    """The relation that a name stands for, and for tables the way to write to it."""

    relation: Callable[[], Relation]
    kind: str
    writer: Callable[[Schema], Sink] | None = None
    pushed: PushedSource | None = None

    def end(self) -> None:
        """Called when the name is dropped or replaced: no more rows can be pushed into it."""
        if self.pushed is not None:
            self.pushed.finish()


class LocalCatalog:
    """See the module. ``lookup`` finds the tables that streams are declared over (this catalog
    alone by default); ``clock`` paces generators, replays and followed files."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        lookup: Callable[[Name], Relation | None] | None = None,
    ) -> None:
        self._clock = clock
        self._lookup = lookup or self.find
        self._entries: dict[Name, tuple[Name, _Entry]] = {}
        self._lock = threading.RLock()

    # Catalog protocol

    def find(self, name: Name) -> Relation | None:
        known = self._entries.get(_key(name))
        return None if known is None else as_changes(as_samples(known[1].relation()))

    def names(self) -> Sequence[Name]:
        return [name for name, _ in self._entries.values()]

    def create_stream(self, name: Name, definition: StreamDefinition, *, replace: bool) -> None:
        self._free(name, replace)
        what = f"stream {dotted(name)}"
        if definition.table is not None:
            if _has_envelopes(definition.spec):
                raise CatalogError(
                    f"{what}: CHANGELOG DEBEZIUM reads files, pushed rows and data in Python, and"
                    f" {dotted(definition.table)} is a table",
                    hint="a table with a column of operation codes takes CHANGELOG BY op",
                )
            if definition.options:
                raise CatalogError(
                    f"{what}: only a table of Spark takes options, and "
                    f"{dotted(definition.table)} is a table of this session",
                    hint="leave them out (bounded=False is one: the option follow)",
                )
            self._add(name, self._over_table(name, definition.table, definition, what), replace)
            return
        assert definition.format is not None
        if definition.format.lower() == PUSH:
            self._add(name, _pushed_entry(name, definition, what), replace)
            return
        source = self._source_of_format(
            definition.format, definition.options, definition.schema, what, definition.spec
        )
        self._add(name, _fixed(name, "stream", source, definition.spec, definition), replace)

    def drop(self, name: Name, kind: str) -> bool:
        with self._lock:
            known = self._entries.get(_key(name))
            if known is None or known[1].kind != kind.lower():
                return False
            known[1].end()
            del self._entries[_key(name)]
            return True

    def pushed(self, name: Name) -> PushedSource | None:
        """The stream that rows are pushed into; None if the name is not such a stream."""
        known = self._entries.get(_key(name))
        return None if known is None else known[1].pushed

    def sink(self, name: Name, schema: Schema, *, create: bool) -> Sink:
        known = self._entries.get(_key(name))
        if known is not None:
            if known[1].writer is None:
                raise CatalogError(
                    f"{known[1].kind} {dotted(name)} takes no rows",
                    hint="rows go into a table, CREATE TABLE name AS SELECT … makes one, or into a"
                    " stream without a source",
                )
            return known[1].writer(schema)
        if not create:
            raise CatalogError(
                f"there is no table {dotted(name)}",
                hint=did_you_mean(dotted(name), [dotted(n) for n in self.names()]),
            )
        return self.new_table(name, schema)

    # Python data

    def register(
        self,
        name: Name,
        data: Any,
        *,
        spec: StreamSpec | None = None,
        schema: Schema | None = None,
        bounded: bool = True,
        options: Mapping[str, Any] | None = None,
        replace: bool = False,
    ) -> None:
        """A stream over ``data``: an Arrow table, batch, reader or dataset, a pandas or polars
        frame, any object that lends its columns by Arrow's C interfaces, a path (``pathlib`` or
        text, with the ``options`` of its format), or a list, iterator or function of batches,
        mappings or tuples. ``schema`` declares its columns; ``bounded=False`` marks an iterable
        that never ends, or follows the files of a path."""
        self._free(name, replace)
        what = f"stream {dotted(name)}"
        source = self.source_over(data, what, schema=schema, bounded=bounded, options=options)
        self.add_source(name, source, spec or StreamSpec(), replace=replace)

    def source_over(
        self,
        data: Any,
        what: str,
        *,
        schema: Schema | None = None,
        bounded: bool = True,
        options: Mapping[str, Any] | None = None,
        envelopes: bool = False,
    ) -> DataSource:
        """The rows of ``data``, which ``register`` could take; errors call the source ``what``.
        ``envelopes``: rows of files are Debezium envelopes."""
        if isinstance(data, str | os.PathLike):
            given = {**(options or {}), "path": data}
            if not bounded:
                given.setdefault("follow", True)
            return self._files(None, given, schema, what, envelopes=envelopes)
        if options:
            raise CatalogError(
                f"{what}: options {', '.join(options)} belong to files", hint="leave them out"
            )
        return source_of(data, what=what, declared=schema, bounded=bounded)

    def add_source(
        self, name: Name, source: DataSource, spec: StreamSpec, *, replace: bool = False
    ) -> None:
        """A stream over an existing source."""
        self._add(name, _fixed(name, "stream", source, spec, None), replace)

    def create_table(
        self,
        name: Name,
        data: Any = None,
        *,
        schema: Schema | None = None,
        path: str | os.PathLike[str] | None = None,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        key: Sequence[str] = (),
        replace: bool = False,
    ) -> None:
        """A table in memory, or in the folder ``path``. A missing folder is made; the files of an
        existing one are the table's rows. ``format`` is parquet (the default for a new folder),
        csv, json or arrow, ``options`` are those of the format. ``data`` (columns or rows of any
        kind) is its first epoch; ``schema`` is by default that of the data, or of the files.
        ``key`` are the columns of its PRIMARY KEY."""
        self._free(name, replace)
        what = f"table {dotted(name)}"
        rows = None if data is None else _whole(data, what, schema)
        if schema is None and rows is not None:
            schema = rows.schema
        if path is None:
            if format is not None:
                raise CatalogError(f"{what}: a format needs a path", hint="path='folder'")
            entry = _memory_entry(name, MemoryTable(_required(schema, what), what, key))
        else:
            given = {**(options or {}), "path": path}
            table = FileTable(given, what=what, format=format, schema=schema, key=key)
            entry = _file_entry(name, table)
        if rows is not None:
            assert entry.writer is not None
            _copy(rows, entry.writer(rows.schema))
        self._add(name, entry, replace)

    def definition(self, name: Name) -> StreamDefinition | None:
        """The definition from CREATE STREAM; None for other relations."""
        relation = self.find(name)
        if isinstance(relation, ReadRelation):
            relation = relation.base
        return relation.definition if isinstance(relation, StoredRelation) else None

    def new_files(
        self, name: Name, rows: Schema, files: TableFiles, key: Sequence[str] = ()
    ) -> Sink:
        """The sink of a new table of files, which exists from its first commit on."""
        what = f"table {dotted(name)}"
        self._free(name, False)
        table = FileTable(
            files.options,
            what=what,
            format=files.format,
            schema=files.schema or rows,
            empty=True,
            key=key,
        )
        published = self._first_commit(name, _file_entry(name, table), what)
        return FirstSink(table.sink(rows), published, table.folder if table.made else None)

    def new_table(
        self, name: Name, rows: Schema, schema: Schema | None = None, key: Sequence[str] = ()
    ) -> Sink:
        """The sink of a new table in memory, which exists from its first commit on. ``schema`` is
        by default that of the rows."""
        what = f"table {dotted(name)}"
        table = MemoryTable(schema or rows, what, key)
        return table.sink(rows, self._first_commit(name, _memory_entry(name, table), what))

    def _first_commit(self, name: Name, entry: _Entry, what: str) -> Published:
        """Runs a commit and makes the table known, unless its name has been taken meanwhile."""

        def published(commit: Callable[[], int]) -> int:
            with self._lock:
                known = self._entries.get(_key(name))
                if known is not None and known[1] is not entry:
                    raise _made_meanwhile(what)
                epoch = commit()
                self._entries[_key(name)] = (name, entry)
                return epoch

        return published

    # inside

    def _free(self, name: Name, replace: bool) -> None:
        if not name or not all(name):
            raise CatalogError("a stream or table needs a name", hint="letters, digits and _")
        if not replace and _key(name) in self._entries:
            kind = self._entries[_key(name)][1].kind
            raise CatalogError(
                f"{kind} {dotted(name)} exists already",
                hint=f"DROP {kind.upper()} {dotted(name)}, or CREATE OR REPLACE",
            )

    def _add(self, name: Name, entry: _Entry, replace: bool) -> None:
        with self._lock:
            self._free(name, replace)
            if (old := self._entries.get(_key(name))) is not None:
                old[1].end()
            self._entries[_key(name)] = (name, entry)

    def _over_table(
        self, name: Name, table: Name, definition: StreamDefinition, what: str
    ) -> _Entry:
        """A stream over a table; it also sees the epochs that the table gets later."""
        spec = definition.spec

        def relation() -> Relation:
            inner = self._lookup(table)
            if inner is None:
                raise CatalogError(
                    f"table {dotted(table)}, which {what} reads, does not exist",
                    hint=did_you_mean(
                        dotted(table), [dotted(n) for n in self.names() if _key(n) != _key(name)]
                    )
                    or f"create it, or DROP STREAM {dotted(name)}",
                )
            if _key(inner.name) == _key(name):
                raise CatalogError(f"{what} would read itself", hint="give it another name")
            refuse_computed(inner, what)
            declared = definition.schema

            def source() -> Source:
                opened = inner.source()
                _sampled(opened, spec)
                return opened if declared is None else _declared(inner, opened, declared, what)

            return StoredRelation(
                name,
                "stream",
                inner.schema if declared is None else declared,
                spec,
                inner.bounded,
                source,
                lambda: inner.statistics,
                getattr(inner, "unsupported", {}),
                definition,
            )

        first = relation()
        if definition.schema is not None:
            first.source()
        under = self._lookup(table)
        if isinstance(under, StoredRelation) and under.folder is not None:
            spec = _sampled(under.source(), spec)
        check_spec(spec, first.schema, what)
        return _Entry(relation, "stream")

    def _source_of_format(
        self,
        format: str,
        options: Mapping[str, Any],
        schema: Schema | None,
        what: str,
        spec: StreamSpec,
    ) -> DataSource:
        if _has_envelopes(spec):
            return self._envelopes(format, options, schema, what, spec)
        match format.lower():
            case "rate":
                return RateSource(options, what=what, declared=schema, clock=self._clock)
            case "replay":
                return self._replay(options, schema, what)
            case known if known in NAMES:
                return self._files(known, options, schema, what)
        raise CatalogError(
            f"{what}: unknown format {format}",
            hint=did_you_mean(
                format, [*NAMES, PUSH, "rate", "replay"], what="formats are", few=len(NAMES) + 3
            ),
        )

    def _envelopes(
        self,
        format: str,
        options: Mapping[str, Any],
        schema: Schema | None,
        what: str,
        spec: StreamSpec,
    ) -> DataSource:
        """The flat rows of files of envelopes."""
        if format.lower() not in NAMES:
            raise CatalogError(
                f"{what}: a source of format {format} has no Debezium envelopes",
                hint="files have: USING json, parquet or arrow",
            )
        if schema is None:
            found = self._files(format, options, None, what, envelopes=True)
            schema = debezium.found_schema(found.schema, what)
        stored = debezium.stored_schema(schema, spec)
        return self._files(format, options, stored, what, envelopes=True)

    def _files(
        self,
        format: str | None,
        options: Mapping[str, Any],
        schema: Schema | None,
        what: str,
        *,
        envelopes: bool = False,
    ) -> FileSource | FollowSource:
        folded = {k.lower(): v for k, v in options.items()}
        follow = Options({"follow": folded.get("follow")}, what).flag("follow")
        if follow:
            return FollowSource(
                folded,
                what=what,
                format=format,
                declared=schema,
                clock=self._clock,
                envelopes=envelopes,
            )
        folded.pop("follow", None)
        return FileSource(folded, what=what, format=format, declared=schema, envelopes=envelopes)

    def _replay(self, options: Mapping[str, Any], schema: Schema | None, what: str) -> ReplaySource:
        folded = {k.lower(): v for k, v in options.items()}
        own = {k: v for k, v in folded.items() if k in OWN_OPTIONS}
        rest = {k: v for k, v in folded.items() if k not in OWN_OPTIONS}
        table = Options(own, what).text("table")
        if table is None:
            inner: Source = self._files(None, rest, None, what)
        else:
            if rest:
                raise CatalogError(
                    f"{what}: option {next(iter(rest))} does not go with table",
                    hint="give a table, or a path with the options of its format",
                )
            relation = self._lookup(tuple(table.split(".")))
            if relation is None:
                raise CatalogError(
                    f"{what}: there is no table {table}",
                    hint=did_you_mean(table, [dotted(n) for n in self.names()]),
                )
            refuse_computed(relation, what)
            inner = relation.source()
        return ReplaySource(inner, own, what=what, declared=schema, clock=self._clock)


def _has_envelopes(spec: StreamSpec) -> bool:
    return spec.changelog is not None and spec.changelog.column is None


def _key(name: Name) -> Name:
    return tuple(part.lower() for part in name)


def _fixed(
    name: Name,
    kind: str,
    source: DataSource,
    spec: StreamSpec | None,
    definition: StreamDefinition | None,
) -> _Entry:
    """A relation over one source for the relation's whole life."""
    if spec is not None:
        spec = _sampled(source, spec)
        check_spec(spec, source.schema, f"{kind} {dotted(name)}")
    relation = StoredRelation(
        name,
        kind,
        source.schema,
        spec,
        source.bounded,
        lambda: source,
        source.statistics,
        source.unsupported,
        definition,
    )
    return _Entry(lambda: relation, kind)


def _sampled(source: Source, spec: StreamSpec) -> StreamSpec:
    """The clauses of a stream over ``source``. Files of samples set the rate of the stream, and
    their times order it."""
    format: SampledFormat | None = getattr(source, "samples", None)
    return spec if format is None else format.declare(spec, source.schema)


def _pushed_entry(name: Name, definition: StreamDefinition, what: str) -> _Entry:
    spec, declared = definition.spec, definition.schema
    prepare = None
    if _has_envelopes(spec) and declared is not None:
        stored = declared = debezium.stored_schema(declared, spec)

        def prepare(data: Any) -> Any:
            return debezium.flattened(data, stored, f"rows for {what}")

    source = PushedSource(
        definition.options, what=what, declared=declared, spec=spec, prepare=prepare
    )
    check_spec(spec, source.schema, what)

    def relation() -> Relation:
        return StoredRelation(
            name,
            "stream",
            source.schema,
            spec,
            source.bounded,
            lambda: source,
            source.statistics,
            {},
            definition,
        )

    return _Entry(relation, "stream", source.sink, source)


def _memory_entry(name: Name, table: MemoryTable) -> _Entry:
    relation = StoredRelation(
        name,
        "table",
        table.schema,
        None,
        True,
        table.source,
        lambda: table.source().statistics(),
        key=table.key,
    )
    return _Entry(lambda: relation, "table", table.sink)


def _file_entry(name: Name, table: FileTable) -> _Entry:
    relation = StoredRelation(
        name,
        "table",
        table.schema,
        None,
        True,
        table.source,
        table.statistics,
        table.unsupported,
        folder=table.folder,
        key=table.key,
    )
    return _Entry(lambda: relation, "table", table.sink)


def _made_meanwhile(what: str) -> CatalogError:
    return CatalogError(
        f"{what} was created by somebody else meanwhile",
        hint="run the INSERT again: it will append to it",
    )


def _declared(inner: Relation, opened: Source, declared: Schema, what: str) -> Source:
    return DeclaredSource(
        opened, declared, what=what, unsupported=getattr(inner, "unsupported", {})
    )


def _required(schema: Schema | None, what: str) -> Schema:
    if schema is None:
        raise CatalogError(f"{what} needs columns", hint="give data or a schema")
    return schema


def source_of(
    data: Any, *, what: str, declared: Schema | None = None, bounded: bool = True
) -> DataSource:
    """The source over Python data of any kind that LocalCatalog.register takes, except paths."""
    if isinstance(data, pa.RecordBatchReader):
        return ReaderSource(data, what=what, declared=declared)
    if isinstance(data, RowWatermarks):
        return data
    table = as_table(data, what)
    if table is not None or is_dataset(data):
        if not bounded:
            kind = "table" if table is not None else "dataset"
            raise CatalogError(
                f"{what}: a {kind} has an end", hint="leave bounded=False out, or give an iterable"
            )
        if table is None:
            return DatasetSource(data, what=what, declared=declared)
        return TableSource(table, what=what, declared=declared)
    if callable(data) or hasattr(data, "__iter__"):
        return IterableSource(data, what=what, declared=declared, bounded=bounded)
    raise CatalogError(
        f"{what}: cannot read a {type(data).__name__}",
        hint="give an Arrow table or dataset, a frame, a path, or an iterable of batches, mappings"
        " or tuples",
    )


def _whole(data: Any, what: str, schema: Schema | None) -> DataSource:
    return source_of(data, what=what, declared=schema)


def _copy(rows: DataSource, sink: Sink) -> None:
    """Writes all rows as one epoch."""
    reader = rows.open(rows.schema.names)
    sink.begin()
    try:
        while (block := reader.next()) is not None:
            sink.write(block.batch)
        sink.commit()
    except CatalogError:
        sink.abort()
        raise
    finally:
        reader.close()


def check_spec(spec: StreamSpec, schema: Schema, what: str) -> None:
    """Raises CatalogError for a clause with a column that does not exist or cannot progress."""
    for progress in spec.progress:
        column = pick(schema, [progress.column], what)[0]
        if not column.type.can_progress:
            raise CatalogError(
                f"{what}: column {column.name} is {column.type} and cannot order a stream",
                hint="an event time is a timestamp, a date or an integer",
            )
        found = pick(schema, [progress.marked_by] if progress.marked_by else [], what)
        if found and found[0].type.kind is not Kind.BOOLEAN:
            raise CatalogError(
                f"{what}: column {found[0].name} is {found[0].type}; rows are marked by a boolean",
                hint="a row in which it is true is punctuation, and no row of the stream",
            )
    if spec.tolerance is not None and not spec.progress:
        raise CatalogError(
            f"{what}: TOLERANCE is about the times of samples, and no column has them",
            hint="say ORDERED BY the column with the times, or leave TOLERANCE out",
        )
    for by in pick(schema, [spec.by] if spec.by else [], what):
        if not is_value(by.type):
            raise CatalogError(
                f"{what}: column {by.name} is {by.type}; a watermark for each of its values is"
                " not supported",
                hint="a text, an integer, a date, a timestamp, a boolean or a decimal can be",
            )
    pick(schema, spec.update_key or (), what)
