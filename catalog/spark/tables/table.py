"""Tables through Spark's typed catalog interface: look up, create, drop, read and set properties.

``org.apache.spark.sql.connector.catalog`` is Spark's public interface for catalogs. It takes names,
columns and values as objects, so that no text of a user is parsed. Unlike ``CREATE TABLE … AS`` it
accepts a folder that already has data, which a table of an earlier process needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from cql.catalog.spark.quoting import name_parts, quoted
from cql.catalog.spark.session import java_class, spark_call
from cql.errors import CatalogError, did_you_mean

_CONNECTOR = "org.apache.spark.sql.connector"
_OPTION = "option."
SESSION_CATALOG = "spark_catalog"
RECURSIVE = "recursiveFileLookup"
"""Spark's option of a table whose folders hold files of it, too."""
#: Spark's error conditions for a name in a catalog or database that does not exist.
_UNKNOWN_PLACES = ("CATALOG_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE", "SCHEMA_NOT_FOUND")
#: The properties in which Spark keeps the clauses of a table.
RESERVED = frozenset(
    ("provider", "location", "external", "owner", "table_type", "comment", "is_managed_location")
)


@dataclass(frozen=True, slots=True)
class Table:
    """A catalog's entry of a table; ``location`` is None if the table has no folder (a view)."""

    name: tuple[str, ...]
    schema: StructType
    provider: str
    location: str | None
    partition_columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    created: int | None = None
    """When it was made (milliseconds), where its catalog says it."""


def schema_to_json(schema: StructType) -> dict[str, Any]:
    """A schema as Spark writes it in JSON."""
    value: dict[str, Any] = schema.jsonValue()
    return value


def schema_from_json(value: dict[str, Any]) -> StructType:
    """The schema that ``schema_to_json`` wrote."""
    return StructType.fromJson(value)


def full_name(session: SparkSession, name: str | Sequence[str]) -> tuple[str, ...]:
    """``name`` with its catalog and database, as Spark resolves it."""
    parts = name_parts(name)
    with spark_call(session, f"resolving the name {quoted(parts)}"):
        manager = _manager(session)
        if len(parts) == 3:
            return parts
        if len(parts) == 2 and manager.isCatalogRegistered(parts[0]):
            return (parts[0], *_namespace(session, parts[0]), parts[1])
        catalog: str = session.catalog.currentCatalog()
        if len(parts) == 2:
            return (catalog, *parts)
        return (catalog, *(str(part) for part in manager.currentNamespace()), parts[0])


def exists(session: SparkSession, name: str | Sequence[str]) -> bool:
    """Whether Spark knows a table or view of this name (temporary views included)."""
    text = quoted(name)
    with spark_call(session, f"looking up {text}"):
        try:
            return bool(session.catalog.tableExists(text))
        except AnalysisException as error:
            if error.getCondition() in _UNKNOWN_PLACES:
                return False
            raise


def is_temporary(session: SparkSession, name: str | Sequence[str]) -> bool:
    """Whether ``name`` is a temporary view."""
    text = quoted(name)
    with spark_call(session, f"looking up {text}"):
        return bool(session.catalog.getTable(text).isTemporary)


def load(session: SparkSession, name: str | Sequence[str]) -> Table:
    """The catalog's entry of a table (not of a temporary view)."""
    full = full_name(session, name)
    with spark_call(session, f"looking up {quoted(name)}"):
        found = _catalog(session, full).loadTable(_identifier(session, full))
        # As one text: over py4j each entry of a map takes six calls.
        mapper = java_class(session, "com.fasterxml.jackson.databind.ObjectMapper")()
        properties: dict[str, str] = json.loads(mapper.writeValueAsString(found.properties()))
        return Table(
            name=full,
            schema=schema_from_json(json.loads(found.schema().json())),
            provider=properties.get("provider", ""),
            location=properties.get("location"),
            partition_columns=tuple(
                str(transform.references()[0].fieldNames()[0])
                for transform in found.partitioning()
                if transform.name() == "identity"
            ),
            options={
                k.removeprefix(_OPTION): v
                for k, v in properties.items()
                if k.startswith(_OPTION) and k != "option.path"
            },
            properties={
                k: v
                for k, v in properties.items()
                if k not in RESERVED and not k.startswith(_OPTION)
            },
            comment=properties.get("comment"),
            created=(
                int(found.v1Table().createTime())
                if found.getClass().getSimpleName() == "V1Table"
                else None
            ),
        )


def create(session: SparkSession, table: Table) -> None:
    """Enters ``table`` into its catalog, over the folder that it names."""
    with spark_call(session, f"creating the table {quoted(table.name)}"):
        column_class = java_class(session, f"{_CONNECTOR}.catalog.Column")
        columns = [
            column_class.create(
                column.name,
                session._jsparkSession.parseDataType(json.dumps(column.dataType.jsonValue())),
                column.nullable,
                (column.metadata or {}).get("comment"),
                json.dumps({k: v for k, v in (column.metadata or {}).items() if k != "comment"}),
            )
            for column in table.schema.fields
        ]
        expressions = java_class(session, f"{_CONNECTOR}.expressions.Expressions")
        transforms = [expressions.identity(quoted((column,))) for column in table.partition_columns]
        properties = {f"{_OPTION}{k}": v for k, v in table.options.items()}
        properties |= table.properties
        properties["provider"] = table.provider
        if table.location is not None:
            properties["location"] = table.location
        if table.comment:
            properties["comment"] = table.comment
        _catalog(session, table.name).createTable(
            _identifier(session, table.name),
            _array(session, column_class, columns),
            _array(session, java_class(session, f"{_CONNECTOR}.expressions.Transform"), transforms),
            properties,
        )


def alter_properties(
    session: SparkSession, name: str | Sequence[str], changes: Mapping[str, str | None]
) -> None:
    """Sets table properties; None removes one."""
    full = full_name(session, name)
    with spark_call(session, f"setting properties of {quoted(name)}"):
        change = java_class(session, f"{_CONNECTOR}.catalog.TableChange")
        made = [
            change.removeProperty(key) if value is None else change.setProperty(key, value)
            for key, value in changes.items()
        ]
        _catalog(session, full).alterTable(
            _identifier(session, full), _array(session, change, made)
        )


def default_location(session: SparkSession, full: Sequence[str]) -> Path:
    """The folder where Spark would put a new table of this (full) name."""
    if re.fullmatch(r"[A-Za-z0-9_]+", full[-1]) is None:
        # Spark's own rule for its catalog; here it also keeps the folder inside the database's.
        raise CatalogError(
            f"a new table cannot be named {full[-1]!r}",
            hint="use letters of the English alphabet, digits and _",
        )
    database = ".".join(full[1:-1])
    with spark_call(session, f"looking up the database {database}"):
        if not session.catalog.databaseExists(quoted(full[:-1])):
            raise CatalogError(
                f"there is no database {quoted(full[:-1])}",
                hint="make it with Spark (CREATE DATABASE), or use another one",
            )
        uri: str = session.catalog.getDatabase(quoted(full[:-1])).locationUri
    folder = local_path(unquote(uri))  # encoded, unlike the location of a table
    if folder is None:
        raise CatalogError(
            f"the database {database} is in {uri}, and tables can only be written to a local "
            "or mounted folder",
            hint="use a database whose location is a local folder",
        )
    return folder / full[-1].lower()


def missing(
    session: SparkSession, name: str | Sequence[str], known: Iterable[str] = ()
) -> CatalogError:
    """The error for a table that does not exist."""
    parts = name_parts(name)
    with spark_call(session, "listing the tables"):
        names = {str(table.name) for table in session.catalog.listTables()}
    names |= {name for name in known if name.rpartition(".")[2] not in names}
    return CatalogError(
        f"there is no table {quoted(parts)}",
        hint=did_you_mean(parts[-1], names, what="tables here")
        or "create it first, or check the database that is in use",
    )


def local_path(uri: str) -> Path | None:
    """The local folder or file of a URI that Hadoop printed; None on another file system.

    Hadoop's own text (``file:/a b``) is not encoded, its URIs (``file:///a%20b``) are; only the
    latter have an authority.
    """
    if uri.startswith("/"):
        return Path(uri)
    if uri.startswith("file:///"):
        return Path(unquote(uri[7:]))
    if uri.startswith("file:/"):
        return Path(uri[5:])
    return None


def _manager(session: Any) -> Any:
    return session._jsparkSession.sessionState().catalogManager()


def _namespace(session: Any, catalog: str) -> tuple[str, ...]:
    default = _manager(session).catalog(catalog).defaultNamespace()
    return tuple(str(part) for part in default) or ("default",)


def _catalog(session: Any, full: Sequence[str]) -> Any:
    return _manager(session).catalog(full[0])


def _identifier(session: Any, full: Sequence[str]) -> Any:
    namespace = _array(session, java_class(session, "java.lang.String"), full[1:-1])
    return java_class(session, f"{_CONNECTOR}.catalog.Identifier").of(namespace, full[-1])


def _array(session: Any, kind: Any, items: Sequence[Any]) -> Any:
    made = session._sc._gateway.new_array(kind, len(items))
    for at, item in enumerate(items):
        made[at] = item
    return made
