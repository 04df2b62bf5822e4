"""``Session.create_stream``: CREATE STREAM for data that Python holds.

The binder processes these clauses like the clauses of the statement: same checks, same messages.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from cql.errors import BindError, CqlError, did_you_mean
from cql.query.query import Query
from cql.show.render import duration_text

if TYPE_CHECKING:
    from cql.base.model import Schema
    from cql.catalog.catalogs import Catalogs
    from cql.catalog.sources import DataSource
    from cql.catalog.spark.frame import BatchFrame
    from cql.catalog.spark.tables.stream import StreamingFrame
    from cql.planner.nodes.catalog import Catalog, StreamSpec

Slack: TypeAlias = "str | int | timedelta"
Names: TypeAlias = "str | Sequence[str]"
Name: TypeAlias = tuple[str, ...]

_SUFFIXES = (
    *(".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".arrow", ".feather", ".ipc"),
    *(".wav", ".flac", ".ogg", ".opus", ".aiff", ".aif", ".aifc", ".mseed", ".miniseed"),
)
#: A parameter in ``Clauses.text``; the group is the argument that the parameter comes from.
_PARAMETER = re.compile(r"(?:parameter )?:(slack|max_advance|idle_after|staleness|heartbeat)_\d+")
_UNITS = ("nanoseconds", "microseconds", "milliseconds", "seconds", "minutes", "hours", "days")


def is_path(text: str) -> bool:
    """Whether a string given as data is the path of a file or folder, not the name of a table."""
    named = re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*){0,2}", text) is not None
    return not named or text.lower().endswith(_SUFFIXES) or os.path.exists(text)


def parts_of(name: str) -> Name:
    """The parts of ``db.t``; BindError for an invalid name."""
    if not isinstance(name, str):
        raise BindError(f"a name is text, not {type(name).__name__}")
    parts = tuple(name.split("."))
    if not 1 <= len(parts) <= 3 or not all(p.strip() for p in parts):
        raise BindError(f"'{name}' is not a name", hint="one to three parts: t, db.t, catalog.db.t")
    return parts


def peeked(data: Any, what: str) -> tuple[Any, Any]:
    """A pair: the data to read, and a sample that gives the schema.

    The sample is ``data`` itself, except for an iterator: an iterator can be read only once, so its
    first item is the sample and is put back in front of the data."""
    if not issubclass(type(data), Iterator) or hasattr(data, "read_next_batch"):
        return data, data
    from cql.catalog.memory.iterables import guarded
    from cql.catalog.memory.punctuation import PutBack, first_rows

    first = first_rows(guarded(data, what))
    return PutBack(first, data), first


_QUEUES = ("append", "append shed random", "fifo", "in-place", "linecutting", "adaptive")
_WINDOWS = ("lazy", "eager")


def _word(what: str, given: str, known: Sequence[str]) -> str:
    """The clause for one of the ``known`` values. Raises BindError for another."""
    wanted = str(given).lower().replace("_", " ")
    found = next((k for k in known if k.replace("-", " ") == wanted.replace("-", " ")), None)
    if found is None:
        hint = did_you_mean(str(given), known, what=f"{what} takes one of")
        raise BindError(f"{what} cannot be {given!r}", hint=hint)
    return found.upper()


def _refresh(items: str) -> str:
    """The clause REFRESH with the text of its items. Raises CqlError for any other text."""
    from cql.dialect import parse_one, to_sql

    if not isinstance(items, str):
        raise BindError(f"refresh={items!r} is no text", hint='refresh="k = 1 EVERY 1 MINUTE"')
    try:
        made = parse_one(f"CREATE STREAM s UPDATE KEY (k) REFRESH {items}").args
    except CqlError as error:  # its position refers to a text that the user has not written
        raise type(error)(f"refresh: {error.message}", hint=error.hint) from None
    others = [key for key in made if made[key] and key not in ("this", "update_key", "refresh")]
    if others:
        raise BindError(f"refresh={items!r} has another clause of CREATE STREAM")
    return to_sql(made["refresh"])


@dataclass(frozen=True, slots=True)
class Clauses:
    """The clauses of CREATE STREAM as Python arguments.

    ``slack`` is a text (``'5 seconds'``), a timedelta, or a number of the column's units. It holds
    for all columns of ``ordered_by`` and for ``watermark``, which may give its own slack:
    ``{'ts': '5 seconds'}``. ``punctuated`` names the columns with punctuations in the source:
    ``'ts'``, or ``{'ts': 'marker'}`` where a row with a true marker is a punctuation. ``heartbeat``
    is (every, slack). ``punctuated_by`` is a column, or (column, maximal lag of its values)."""

    ordered_by: Names | None = None
    unit: str | None = None
    watermark: Mapping[str, Slack] | str | None = None
    slack: Slack | None = None
    update_key: Names | None = None
    changelog: str | None = None
    changelog_by: str | None = None
    queue: str | None = None
    windows: str | None = None
    staleness: Slack | None = None
    refresh: str | None = None
    rate: float | None = None
    tolerance: Slack | None = None
    punctuated: Mapping[str, str] | Names | None = None
    max_advance: Slack | None = None
    idle_after: Slack | None = None
    heartbeat: tuple[Slack, Slack] | None = None
    punctuated_by: str | tuple[str, Slack] | None = None

    def text(self) -> tuple[str, dict[str, Slack]]:
        """The clauses as text of the dialect, and the values of the parameters there."""
        clauses: list[str] = []
        given: dict[str, Slack] = {}

        def parameter(what: str, length: Slack) -> str:
            name = f"{what}_{len(given)}"
            given[name] = length
            return f":{name}"

        if self.slack is not None and self.ordered_by is None and self.watermark is None:
            raise BindError("slack belongs to a column", hint="say ordered_by='…' as well")
        if self.unit is not None and self.ordered_by is None:
            raise BindError("unit belongs to a column", hint="say ordered_by='…' as well")
        unit = "" if self.unit is None else f" IN {_unit(self.unit)}"
        for column in listed(self.ordered_by):
            clauses.append(f"ORDERED BY {quoted(column)}{unit}")
            if self.slack is not None:
                clauses.append(f"WITHIN {parameter('slack', self.slack)}")
        for column, slack in self._watermarks():
            clauses.append(f"WATERMARK {quoted(column)} DELAY {parameter('slack', slack)}")
        if self.update_key is not None:
            clauses.append(f"UPDATE KEY ({', '.join(map(quoted, listed(self.update_key)))})")
        if self.changelog is not None:
            clauses.append(f"CHANGELOG {_word('changelog', self.changelog, ('debezium',))}")
        if self.changelog_by is not None:
            clauses.append(f"CHANGELOG BY {quoted(self.changelog_by)}")
        if self.queue is not None:
            clauses.append(f"QUEUE {_word('queue', self.queue, _QUEUES)}")
        if self.windows is not None:
            clauses.append(f"WINDOWS {_word('windows', self.windows, _WINDOWS)}")
        if self.staleness is not None:
            clauses.append(f"STALENESS UNDER {parameter('staleness', self.staleness)}")
        if self.refresh is not None:
            clauses.append(_refresh(self.refresh))
        if self.rate is not None:
            clauses.append(f"RATE {_hertz(self.rate)} HZ")
        if self.tolerance is not None:
            if self.rate is None:
                raise BindError("tolerance belongs to a rate", hint="say rate=… as well")
            clauses.append(f"TOLERANCE {parameter('tolerance', self.tolerance)}")
        clauses += self._punctuation()
        if isinstance(self.punctuated_by, str):
            clauses.append(f"PUNCTUATE BY {quoted(self.punctuated_by)}")
        elif self.punctuated_by is not None:
            by, behind = _pair("punctuated_by", self.punctuated_by, "(column, how far behind)")
            clauses.append(f"PUNCTUATE BY {quoted(by)} WITHIN {parameter('slack', behind)}")
        if self.max_advance is not None:
            clauses.append(f"MAX ADVANCE {parameter('max_advance', self.max_advance)}")
        if self.idle_after is not None:
            clauses.append(f"IDLE AFTER {parameter('idle_after', self.idle_after)}")
        if self.heartbeat is not None:
            every, slack = _pair("heartbeat", self.heartbeat, "(every, slack)")
            clauses.append(f"HEARTBEAT EVERY {parameter('heartbeat', every)}")
            clauses.append(f"SLACK {parameter('slack', slack)}")
        return " ".join(clauses), given

    def _punctuation(self) -> Iterator[str]:
        """The clauses PUNCTUATE ON column, each with WHEN marker where a mapping names a marker."""
        if isinstance(self.punctuated, Mapping):
            for column, marker in self.punctuated.items():
                yield f"PUNCTUATE ON {quoted(column)} WHEN {quoted(marker)}"
        else:
            yield from (f"PUNCTUATE ON {quoted(c)}" for c in listed(self.punctuated))

    def check_types(self, schema: Schema, unsupported: Mapping[str, str]) -> None:
        """Raises BindError if a window attribute of the clauses is an unsupported column.

        ``schema`` leaves out the unsupported columns of the data; ``unsupported`` maps each to the
        reason."""
        columns = [*listed(self.ordered_by), *(column for column, _ in self._watermarks())]
        for column in columns:
            if schema.find(column) is None and column in unsupported:
                raise BindError(
                    f"column {column} is no time: {unsupported[column]}",
                    hint="cast it in the data: to int64, or to a timestamp",
                )

    def _watermarks(self) -> Iterator[tuple[str, Slack]]:
        if isinstance(self.watermark, str):
            yield self.watermark, 0 if self.slack is None else self.slack
        elif isinstance(self.watermark, Mapping):
            yield from zip(listed([*self.watermark]), self.watermark.values(), strict=True)
        elif self.watermark is not None:
            hint = "give a column, or {column: slack}"
            raise BindError(f"watermark={self.watermark!r} names no column", hint=hint)

    def bind(self, schema: Schema) -> StreamSpec:
        """The stream declaration of the clauses over the columns of ``schema``; raises
        BindError."""
        from cql.dialect import parse_one
        from cql.planner.bind.context import Context
        from cql.planner.bind.statement import bind
        from cql.planner.nodes import statements as st

        clauses, given = self.text()
        try:
            tree = parse_one(f"CREATE STREAM s FROM TABLE source {clauses}")
            bound = bind(tree, cast("Catalog", _OneTable(schema)), Context(parameters=given))
        except CqlError as error:
            # The error's position and parameters refer to a text that the user has not written.
            message, hint = (t and _PARAMETER.sub(r"\1", t) for t in (error.message, error.hint))
            raise type(error)(message or "", hint=hint) from None
        assert isinstance(bound, st.CreateStream)
        spec = bound.definition.spec
        shown = (dataclasses.replace(p, declared=_filled(p.declared, given)) for p in spec.progress)
        return dataclasses.replace(spec, progress=tuple(shown))


def declare(
    catalog: Catalogs,
    name: Name,
    data: Any,
    clauses: Clauses,
    bounded: bool | None,
    options: Mapping[str, Any],
    *,
    replace: bool,
) -> None:
    """CREATE STREAM ``name`` over ``data``; see ``Session.create_stream``."""
    if isinstance(data, str) and not is_path(data):
        _over_table(catalog, name, parts_of(data), clauses, bounded, options, replace=replace)
        return
    if is_spark_frame(data):
        over = _over_stream if data.isStreaming else _over_batch
        over(catalog, name, data, clauses, bounded, options, replace=replace)
        return
    ends = True if bounded is None else bounded
    what = f"stream {'.'.join(name)}"
    if clauses.changelog is not None:
        source, spec = _over_envelopes(catalog, data, clauses, what, ends, options)
        catalog.local.add_source(name, source, spec, replace=replace)
        return
    data, sample = peeked(as_columns(data, what), what)
    # the sample of an iterator is a list, and a list has an end
    ends_there = ends or sample is not data
    source = catalog.local.source_over(sample, what, bounded=ends_there, options=options)
    clauses.check_types(source.schema, source.unsupported)
    spec = clauses.bind(source.schema)
    if sample is not data:
        source = catalog.local.source_over(data, what, bounded=ends, options=options)
    catalog.local.add_source(name, source, spec, replace=replace)


def _over_envelopes(
    catalog: Catalogs,
    data: Any,
    clauses: Clauses,
    what: str,
    ends: bool,
    options: Mapping[str, Any],
) -> tuple[DataSource, StreamSpec]:
    """The source over Debezium envelopes, with flat rows, and the declaration."""
    from cql.catalog.changelogs import debezium

    over = catalog.local.source_over
    if isinstance(data, str | os.PathLike):
        found = over(data, what, bounded=ends, options=options, envelopes=True).schema
    else:
        data, sample = peeked(as_columns(data, what), what)
        flat = debezium.flattened(sample, None, what)
        if isinstance(flat, list):  # one side of an envelope may have no value in the sample
            rows = [dict(debezium.sides_joined(row)) for row in flat if isinstance(row, Mapping)]
            flat = [row for row in rows if row]
        found = over(flat, what).schema
    schema = debezium.found_schema(found, what)
    spec = clauses.bind(schema)
    stored = debezium.stored_schema(schema, spec)
    if not isinstance(data, str | os.PathLike):
        data = debezium.flattened(data, stored, what)
    source = over(data, what, schema=stored, bounded=ends, options=options, envelopes=True)
    return source, spec


def as_columns(data: Any, what: str) -> Any:
    """``data`` as an Arrow table where it has columns, so that its columns are read only once.

    A query runs and gives its rows. Other data stays as it is."""
    from cql.catalog.sources import as_table

    if isinstance(data, Query):
        if not data.bounded:
            raise BindError(
                f"{what}: query {data.name} does not end by itself, so it has no whole result",
                hint="CREATE STREAM name AS SELECT … makes a stream of an endless query",
            )
        return data.to_arrow()
    table = as_table(data, what)
    return data if table is None else table


def is_spark_frame(data: Any) -> bool:
    return type(data).__module__.startswith("pyspark.") and hasattr(data, "createTempView")


def over_frame(
    catalog: Catalogs, name: Name, frame: Any, key: Sequence[str] = (), *, replace: bool
) -> Mapping[str, str]:
    """Creates a table in memory, with a PRIMARY KEY ``key``, with the rows of a Spark DataFrame.

    Returns the columns that the table lacks, each with the reason."""
    from cql.catalog.spark.frame import BatchFrame

    what = f"table {'.'.join(name)}"
    if frame.isStreaming:
        raise BindError(
            f"{what}: a streaming DataFrame has no end", hint="create_stream takes it as a stream"
        )
    source = BatchFrame(frame, what)
    catalog.local.create_table(name, source.table(), schema=source.schema, key=key, replace=replace)
    return source.unsupported


def _add(
    catalog: Catalogs,
    name: Name,
    source: StreamingFrame | BatchFrame,
    clauses: Clauses,
    *,
    replace: bool,
) -> None:
    """Adds a stream over a DataFrame. Without ``ordered_by`` and ``watermark``, the DataFrame's own
    ``withWatermark`` gives the clauses."""
    if clauses.ordered_by is None and clauses.watermark is None:
        own = {c: timedelta(milliseconds=n) for c, n in source.watermarks().items()}
        clauses = dataclasses.replace(clauses, watermark=own or None)
    clauses.check_types(source.schema, source.unsupported)
    catalog.local.add_source(name, source, clauses.bind(source.schema), replace=replace)


def _over_batch(
    catalog: Catalogs,
    name: Name,
    frame: Any,
    clauses: Clauses,
    bounded: bool | None,
    options: Mapping[str, Any],
    *,
    replace: bool,
) -> None:
    """Adds a stream over a bounded DataFrame."""
    from cql.catalog.spark.frame import BatchFrame

    what = f"stream {'.'.join(name)}"
    if bounded is False:
        raise BindError(
            f"{what}: this DataFrame has an end",
            hint="leave bounded out, or give a DataFrame made with readStream",
        )
    if options:
        raise BindError(
            f"{what}: options {', '.join(options)} belong to files", hint="leave them out"
        )
    _add(catalog, name, BatchFrame(frame, what), clauses, replace=replace)


def _over_stream(
    catalog: Catalogs,
    name: Name,
    frame: Any,
    clauses: Clauses,
    bounded: bool | None,
    options: Mapping[str, Any],
    *,
    replace: bool,
) -> None:
    """Adds a stream over a streaming DataFrame; the option ``poll`` is Spark's polling interval."""
    from cql.catalog.options import Options
    from cql.catalog.spark.tables.stream import POLL, StreamingFrame

    what = f"stream {'.'.join(name)}"
    if bounded:
        raise BindError(
            f"{what}: a streaming DataFrame has no end",
            hint="leave bounded out, or give a DataFrame made with read instead of readStream",
        )
    given = Options(options, what)
    poll = given.duration("poll", int(POLL * 1e6)) / 1e6
    given.done()
    _add(catalog, name, StreamingFrame(frame, what, poll), clauses, replace=replace)


def _over_table(
    catalog: Catalogs,
    name: Name,
    table: Name,
    clauses: Clauses,
    bounded: bool | None,
    options: Mapping[str, Any],
    *,
    replace: bool,
) -> None:
    from cql.planner.nodes.catalog import StreamDefinition, refuse_computed

    relation = catalog.find(table)
    if relation is None:
        known = [".".join(n) for n in catalog.names()]
        raise BindError(
            f"there is no table {'.'.join(table)}",
            hint=did_you_mean(".".join(table), known, what="there are"),
        )
    if bounded is False and relation.bounded:
        options = {"follow": True, **options}
    elif bounded is True and not relation.bounded:
        raise BindError(f"{'.'.join(table)} has no end", hint="leave bounded out")
    refuse_computed(relation, f"stream {'.'.join(name)}")
    spec = clauses.bind(relation.schema)
    definition = StreamDefinition(None, spec, table=table, options=options)
    catalog.create_stream(name, definition, replace=replace)


def _filled(clause: str, given: Mapping[str, Slack]) -> str:
    """A clause with its parameters replaced by their values, for EXPLAIN and DESCRIBE."""

    def value(found: re.Match[str]) -> str:
        slack = given[found.group(0).split(":")[-1]]
        return duration_text(slack.total_seconds()) if isinstance(slack, timedelta) else str(slack)

    return _PARAMETER.sub(value, clause)


def quoted(name: str) -> str:
    if not isinstance(name, str):
        raise BindError(f"{name!r} does not name a column", hint="names of columns are text")
    return '"' + name.replace('"', '""') + '"'


def listed(names: Names | None) -> Sequence[str]:
    if names is None:
        return ()
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise BindError(f"{names!r} does not name columns", hint="give a name, or a list of names")
    return names


def _pair(argument: str, given: Any, meant: str) -> tuple[Any, Any]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise BindError(f"{argument}={given!r} is no pair", hint=f"give {meant}")
    return given[0], given[1]


def _hertz(rate: float) -> str:
    try:
        hertz = Decimal(str(rate))
    except ArithmeticError:
        hertz = Decimal("NaN")
    if not hertz.is_finite() or hertz <= 0:
        raise BindError(f"'{rate}' is not a rate", hint="a number of hertz: rate=48_000")
    return f"{hertz:f}"


def _unit(unit: str) -> str:
    word = str(unit).lower().rstrip("s") + "s"
    if word not in _UNITS:
        hint = did_you_mean(str(unit), _UNITS, what="units are")
        raise BindError(f"'{unit}' is not a unit of time", hint=hint)
    return word.upper()


@dataclass(frozen=True, slots=True)
class _Columns:
    """A relation with known columns and nothing else."""

    schema: Schema
    name: tuple[str, ...] = ("source",)
    kind: str = "table"
    stream: None = None
    bounded: bool = True


@dataclass(frozen=True, slots=True)
class _OneTable:
    """A catalog with one table, for the binder."""

    schema: Schema

    def find(self, name: tuple[str, ...]) -> _Columns | None:
        return _Columns(self.schema) if name == ("source",) else None

    def names(self) -> Sequence[tuple[str, ...]]:
        return [("source",)]
