"""The data files behind a table's name, as Spark resolves and lists them."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cql.catalog.spark import registry
from cql.catalog.spark.quoting import name_parts, quoted
from cql.catalog.spark.session import java_class, spark_call
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.table import local_path
from cql.catalog.spark.tables.types import to_arrow_loosely
from cql.errors import CatalogError

PartitionValue = int | float | str | bool | Decimal | bytes | None
"""A partition's value as Spark holds it: dates in days, timestamps in microseconds."""

_FORMATS = {
    "ParquetFileFormat": "parquet",
    "OrcFileFormat": "orc",
    "CSVFileFormat": "csv",
    "JsonFileFormat": "json",
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table, as it was when the query was planned."""

    path: str
    uri: str
    size: int
    modified_ns: int
    partition: tuple[PartitionValue, ...] = ()

    @property
    def uris(self) -> tuple[str, str]:
        """Listings have ``file:///a`` where the column ``_metadata`` of rows has ``file:/a``."""
        return self.uri, self.uri.replace("file:///", "file:/", 1)


@dataclass(frozen=True, slots=True)
class Files:
    """A file-backed table: its columns in Spark's order and its files in reading order."""

    table: str
    format: str
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    files: tuple[DataFile, ...]
    case_sensitive: bool
    direct: bool
    """Whether Arrow reads the files; else Spark does, one file at a time."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """A text that differs once the table has other files."""
        facts = [(f.path, f.size, f.modified_ns, f.partition) for f in self.files]
        return hashlib.sha256(repr(facts).encode()).hexdigest()


def table_schema(session: SparkSession, name: str | Sequence[str]) -> pa.Schema:
    """The columns of any table or view; see ``to_arrow_loosely``."""
    return schema_of(session, frame_of(session, name), quoted(name))


def schema_of(session: SparkSession, frame: Any, name: str) -> pa.Schema:
    """The columns of a DataFrame, which messages call ``name``; see ``to_arrow_loosely``."""
    with spark_call(session, f"reading the schema of {name}"):
        schema = frame.schema
    return to_arrow_loosely(schema)


def table_files(session: SparkSession, name: str | Sequence[str]) -> Files | None:
    """The files of a table; None for a view and for any table that is not of local files.

    The listing is fresh. It holds only files that Spark itself would read: it leaves out hidden
    files and, in a folder that a Spark stream wrote, the files that the stream's log
    (``_spark_metadata``) does not commit.
    """
    frame = frame_of(session, name)
    table = quoted(name)
    with spark_call(session, f"listing the files of {table}"):
        relation = file_relation(frame)
        if relation is None:
            return None
        fields: StructType = frame.schema
        form = _FORMATS.get(relation.fileFormat().getClass().getSimpleName())
        if form is None or any("EXISTS_DEFAULT" in (f.metadata or {}) for f in fields.fields):
            # The default of a column added later is an SQL text that only Spark can evaluate.
            return None
        index = file_index(session, relation)
        partition_columns = tuple(partition_schema(relation).names)
        partitions = list_partitions(session, name, relation, index) if partition_columns else {}
        texts = java_class(session, "org.apache.hadoop.util.StringUtils")
        joined = texts.join("\n", index.inputFiles())
        case_sensitive = session.conf.get("spark.sql.caseSensitive", "false") == "true"
        # ORC holds wall-clock time of the writer's zone; Arrow reads it as UTC.
        zones = java_class(session, "java.util.TimeZone") if form == "orc" else None
        utc = zones is not None and zones.getDefault().getID() in ("UTC", "GMT", "Etc/UTC")
    schema = to_arrow_loosely(fields)
    files: list[DataFile] = []
    for uri in filter(None, str(joined).split("\n")):
        path = local_path(uri)
        if path is None:
            return None
        try:
            status = path.stat()
        except OSError as error:
            raise CatalogError(
                f"table {table}: its file {path} cannot be read: {error.strerror}",
                hint="if it was removed on purpose, refresh the table "
                "(spark.catalog.refreshTable) and run the query again",
            ) from error
        values = _partition_of(path, partitions) if partition_columns else ()
        files.append(DataFile(str(path), uri, status.st_size, status.st_mtime_ns, values))
    direct = form == "parquet" or (form == "orc" and (utc or not _has_instants(schema)))
    return Files(
        table=table,
        format=form,
        schema=schema,
        partition_columns=partition_columns,
        files=in_reading_order(files),
        case_sensitive=case_sensitive,
        direct=direct,
    )


def frame_of(session: SparkSession, name: str | Sequence[str]) -> Any:
    parts = name_parts(name)
    # Spark takes an unknown name of two parts for a format and a path of files: only a name that
    # its catalog knows may get there.
    if len(parts) != 2:
        with (
            spark_call(session, f"looking up {quoted(parts)}"),
            contextlib.suppress(AnalysisException),
        ):
            return session.table(quoted(parts))
    if not registry.ensure(session, parts):
        raise spark_table.missing(session, parts, registry.names(session))
    with spark_call(session, f"looking up {quoted(parts)}"):
        return session.table(quoted(parts))


def file_relation(frame: Any) -> Any | None:
    """Spark's relation over files under a table's name; None for anything else, views included."""
    plan = _logical_relation(frame)
    if plan is None:
        return None
    relation = plan.relation()
    return relation if relation.getClass().getSimpleName() == "HadoopFsRelation" else None


def property_of(session: SparkSession, frame: Any, key: str, name: str) -> str | None:
    """A property of the table of files, or of the view, under a name; None without it."""
    with spark_call(session, f"looking up the properties of {name}"):
        plan = _below_aliases(frame)
        match plan.nodeName():
            case "View":
                described = plan.desc()
            case "LogicalRelation" if plan.catalogTable().isDefined():
                described = plan.catalogTable().get()
            case _:
                return None
        found = described.properties().get(key)
        return str(found.get()) if found.isDefined() else None


def _below_aliases(frame: Any) -> Any:
    plan = frame._jdf.queryExecution().analyzed()
    # A Project above the files of a table is the one that fills its CHAR columns with blanks.
    while plan.nodeName() in ("SubqueryAlias", "Project"):
        plan = plan.child()
    return plan


def _logical_relation(frame: Any) -> Any | None:
    plan = _below_aliases(frame)
    return plan if plan.nodeName() == "LogicalRelation" else None


def partition_schema(relation: Any) -> StructType:
    """The partition columns of a relation over files."""
    return StructType.fromJson(json.loads(relation.partitionSchema().json()))


def file_index(session: SparkSession, relation: Any) -> Any:
    """A fresh listing of a relation, with all its partitions.

    ``refreshTable`` would do too, but it also drops the user's caches of the table.
    """
    index = relation.location()
    index.refresh()
    if index.getClass().getSimpleName() == "CatalogFileIndex":
        nothing = java_class(session, "scala.collection.immutable.Nil$")
        index = index.filterPartitions(getattr(nothing, "MODULE$"))
    return index


def list_partitions(
    session: SparkSession, name: str | Sequence[str], relation: Any, index: Any
) -> dict[Path, tuple[PartitionValue, ...]]:
    """The partitions of a listing by folder; a partition may lie outside its table's folder."""
    kinds = {f.name: f.dataType.typeName() for f in partition_schema(relation)}
    if relation.location().getClass().getSimpleName() == "CatalogFileIndex":
        usual = _usual_partitions(session, name, relation, index, kinds)
        if usual is not None:
            return usual
    types = [f.dataType() for f in relation.partitionSchema().fields()]
    partitions = index.partitionSpec().partitions()
    found: dict[Path, tuple[PartitionValue, ...]] = {}
    for i in range(partitions.size()):
        partition = partitions.apply(i)
        values = partition.values()
        folder = local_path(str(partition.path().toString()))
        if folder is not None:
            found[folder] = tuple(
                _partition_value(values.get(j, kind), text)
                for j, (kind, text) in enumerate(zip(types, kinds.values(), strict=True))
            )
    return found


def _usual_partitions(
    session: Any, name: str | Sequence[str], relation: Any, index: Any, kinds: Mapping[str, str]
) -> dict[Path, tuple[PartitionValue, ...]] | None:
    """The partitions in two calls, if each has the folder that its values name; else None.

    One by one, a partition costs six calls into the JVM: 5.5 s for a thousand partitions.
    """
    readers = [READERS.get(kind) for kind in kinds.values()]
    root = local_path(str(relation.location().rootPaths().head().toString()))
    if root is None or None in readers:
        return None
    listed = session._jsparkSession.catalog().listPartitions(quoted(name)).toDF()
    specs: list[str] = DataFrame(listed, session).toArrow()["partition"].to_pylist()
    folders = {local_path(path) for path in str(index.rootPaths().mkString("\n")).split("\n")}
    if folders - {None, root} != {root / spec for spec in specs} - {root}:
        return None
    found: dict[Path, tuple[PartitionValue, ...]] = {}
    for spec in specs:
        texts = dict(part.split("=", 1) for part in spec.split("/"))
        if list(texts) != [escaped(column) for column in kinds]:
            return None
        try:
            found[root / spec] = tuple(
                None if text == NO_VALUE else reader(unquote(text))
                for text, reader in zip(texts.values(), readers, strict=True)
                if reader is not None
            )
        except (ValueError, ArithmeticError):
            return None
    return found


def escaped(text: str) -> str:
    """A name or value as Spark writes it in a folder's name."""
    return "".join(
        f"%{ord(char):02X}" if char in _ESCAPED or ord(char) < 32 else char for char in text
    )


def _days(text: str) -> int:
    return dt.date.fromisoformat(text).toordinal() - dt.date(1970, 1, 1).toordinal()


NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^")
#: The types of partition columns whose values can be read from the name of a folder.
READERS: dict[str, Callable[[str], PartitionValue]] = {
    "string": str,
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "boolean": lambda text: text == "true",
    "date": _days,
    "decimal": Decimal,
}


def _partition_value(value: Any, kind: str) -> PartitionValue:
    if value is None or isinstance(value, bool | int | float | bytes | str):
        return value
    text = str(value.toString())
    return Decimal(text) if kind == "decimal" else text


def _partition_of(
    path: Path, partitions: Mapping[Path, tuple[PartitionValue, ...]]
) -> tuple[PartitionValue, ...]:
    for folder in path.parents:
        if folder in partitions:
            return partitions[folder]
    raise CatalogError(
        f"the file {path} lies in no partition that the catalog knows",
        hint="run spark.catalog.recoverPartitions on the table",
    )


def in_reading_order(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """The files by partition, those of one partition by path."""
    return tuple(sorted(files, key=lambda file: (_order(file.partition), file.path)))


def _order(values: tuple[PartitionValue, ...]) -> tuple[tuple[int, Any], ...]:
    """Partitions in the order of their values: NULL first, NaN last."""
    return tuple(
        (0, 0) if value is None else (2, 0) if value != value else (1, value) for value in values
    )


def _has_instants(schema: pa.Schema) -> bool:
    return any("tz=" in str(field.type) for field in schema)
