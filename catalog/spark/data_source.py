"""The format ``cql`` and the table function ``cql`` of Spark SQL, as classes that Spark's Python
workers make.

A worker receives such a class with the text of a registration. The class refers to the planner of
texts by name: the worker imports it from the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NoReturn, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.functions import udtf
from pyspark.sql.types import StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from cql.catalog.spark.readers import QueryReader, QueryStreamReader, Runner, Streamed, shown
from cql.catalog.spark.session import Session, spark_call
from cql.catalog.spark.tables.table import RESERVED
from cql.catalog.spark.tables.types import to_spark
from cql.errors import CatalogError, CqlError, NotSupportedError

#: The name of the format and of the table function.
NAME = "cql"
#: The option of all reads, those of streams, and those that Spark adds when it makes a table.
QUERY = "query"
MOST_FILES, FILE_ORDER = "maxFilesPerTrigger", "fileOrder"
_OF_TABLES = (f"option.{QUERY}", *RESERVED)
#: The values of FILE_ORDER: the order of the table, which is the default, and that of coming.
_PATH, _ARRIVAL = "path", "arrival"


class Planned(Protocol):
    """The plan of a text."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def job(self) -> str: ...
    def tasks(self, *, whole: bool = False) -> list[str]: ...


#: Plans a text with a registration.
Planner: TypeAlias = Callable[[str, str], Planned]


class StreamPlanner(Protocol):
    """Plans a text with a registration, for a stream."""

    def __call__(self, registered: str, text: str, *, arrival: bool) -> Streamed: ...


@dataclass(frozen=True, slots=True)
class Texts:
    """What plans texts and runs their tasks: functions of a module, and the registration with which
    they plan, as JSON text."""

    registration: str
    planner: Planner
    streams: StreamPlanner
    run: Runner

    def plan(self, text: str) -> Planned:
        return self.planner(self.registration, text)

    def stream(self, text: str, *, arrival: bool) -> Streamed:
        return self.streams(self.registration, text, arrival=arrival)


def register(session: Session, texts: Texts) -> None:
    """Registers the format and the table function in ``session``."""
    source = type("CqlSource", (QuerySource,), {"texts": texts})
    analyze = staticmethod(partial(_analyzed, texts))
    function = type("CqlFunction", (QueryFunction,), {"texts": texts, "analyze": analyze})
    with spark_call(session, "registering the format cql"):
        session.dataSource.register(source)
        session.udtf.register(NAME, udtf(function, useArrow=False))


class QuerySource(DataSource):  # type: ignore[misc]
    """The format: the rows of a query, whose text is the option ``query``."""

    texts: ClassVar[Texts]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        try:
            text = self._text(MOST_FILES, FILE_ORDER)
            return result_columns(self.texts.plan(text).schema)
        except CqlError as error:
            raise shown(error) from None

    def reader(self, schema: StructType) -> QueryReader:
        try:
            text = self._text()
            planned = self.texts.plan(text)
            _check_columns(schema, result_columns(planned.schema))
            return QueryReader(self.texts.run, schema.json(), planned.job, planned.tasks())
        except CqlError as error:
            raise shown(error) from None

    def streamReader(self, schema: StructType) -> QueryStreamReader:  # noqa: N802 (Spark's own name)
        try:
            text = self._text(MOST_FILES, FILE_ORDER)
            most, arrival = self._most_files(), self._in_arrival_order()
            stream = self.texts.stream(text, arrival=arrival)
            _check_columns(schema, result_columns(stream.schema))
            return QueryStreamReader(self.texts.run, schema.json(), stream.job, stream, most)
        except CqlError as error:
            raise shown(error) from None

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise _not_written("write.format('cql')")

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802 (Spark's own name)
        raise _not_written("writeStream.format('cql')")

    def _text(self, *more: str) -> str:
        """The text of the query. Raises CatalogError for an option that is none of ``more``."""
        known = (QUERY, *_OF_TABLES, *(name.lower() for name in more))
        others = sorted(name for name in self.options if name.lower() not in known)
        if others:
            raise CatalogError(
                f"the format cql has no option {others[0]}",
                hint="its option is query; those of readStream are query, maxFilesPerTrigger and"
                " fileOrder; session.register_in_spark() says what it may read",
            )
        text: str | None = self.options.get(QUERY)
        if text is None:
            raise CatalogError(
                "the format cql needs the option query",
                hint="OPTIONS (query 'SELECT …') of a view or a read; where a query reads a table"
                " USING cql, WITH (query = 'SELECT …') behind its name",
            )
        return text

    def _most_files(self) -> int | None:
        given = self.options.get(MOST_FILES)
        if given is None or (given.isdecimal() and int(given) > 0):
            return None if given is None else int(given)
        raise CatalogError(f"{MOST_FILES} is a number of files, not {given}")

    def _in_arrival_order(self) -> bool:
        given = self.options.get(FILE_ORDER, _PATH)
        if given not in (_PATH, _ARRIVAL):
            raise CatalogError(f"{FILE_ORDER} is {_PATH} or {_ARRIVAL}, not {given}")
        return bool(given == _ARRIVAL)


class QueryFunction:
    """The table function: the rows of the query whose text is its argument, in one task."""

    texts: ClassVar[Texts]

    def eval(self, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            planned = self.texts.plan(query)
            for task in planned.tasks(whole=True):
                for batch in self.texts.run(planned.job, task):
                    yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        except CqlError as error:
            raise shown(error) from None


def _analyzed(texts: Texts, query: AnalyzeArgument) -> AnalyzeResult:
    try:
        if not isinstance(query.value, str):
            raise CatalogError(
                "the table function cql takes the text of a query, as a constant",
                hint="SELECT * FROM cql('SELECT …')",
            )
        return AnalyzeResult(result_columns(texts.plan(query.value).schema))
    except CqlError as error:
        raise shown(error) from None


def result_columns(schema: pa.Schema) -> StructType:
    """The columns of a result in Spark's types. Any may be NULL: whether one is depends on the rows
    of the day. Raises CatalogError if two have one name."""
    made = to_spark(schema)
    names = [field.name.lower() for field in made.fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CatalogError(
            f"the query gives two columns {twice}", hint="give one of them another name with AS"
        )
    for field in made.fields:
        field.nullable = True
    return made


def _check_columns(given: StructType, made: StructType) -> None:
    """Raises CatalogError unless the table or reader declares the columns of the query."""
    if [_column(f) for f in given.fields] == [_column(f) for f in made.fields]:
        return
    raise CatalogError(
        f"the query gives the columns {made.simpleString()}, and {given.simpleString()} is"
        " declared",
        hint="declare the columns of the query, or leave them out",
    )


def _column(field: Any) -> tuple[str, str]:
    return field.name.lower(), field.dataType.simpleString()


def _not_written(what: str) -> NotSupportedError:
    return NotSupportedError(
        f"{what} is not supported: a query only gives rows",
        hint="write into a table of Spark, and read it in a query",
    )
