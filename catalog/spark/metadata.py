"""Stream metadata: the ``cql.*`` part of a table's TBLPROPERTIES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from cql.catalog.spark import registry
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.tables import table
from cql.errors import CatalogError

PREFIX = "cql."


def get_properties(session: SparkSession, name: str | Sequence[str]) -> dict[str, str]:
    """The ``cql.*`` properties of a table, keys with the prefix; none for a temporary view."""
    if not registry.ensure(session, name):
        raise table.missing(session, name, registry.names(session))
    if table.is_temporary(session, name):
        return {}
    found = table.load(session, name).properties
    return {key: found[key] for key in sorted(found) if key.startswith(PREFIX)}


def set_properties(
    session: SparkSession, name: str | Sequence[str], properties: Mapping[str, str | None]
) -> None:
    """Set ``cql.*`` properties of a table (None removes one); the others stay as they are."""
    for key in properties:
        if not key.startswith(PREFIX) or key == PREFIX:
            raise CatalogError(
                f"{key!r} is no property of ours", hint=f"our properties start with {PREFIX!r}"
            )
    if not registry.ensure(session, name):
        raise table.missing(session, name, registry.names(session))
    if table.is_temporary(session, name):
        raise CatalogError(
            f"{quoted(name)} is a temporary view, which has no properties",
            hint="declare the stream over a table or a permanent view",
        )
    if properties:
        table.alter_properties(session, name, properties)
        registry.record(session, name)
