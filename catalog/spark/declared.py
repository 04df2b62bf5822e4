"""Streams over Spark tables that this process has seen, remembered while others make a table anew.

``df.write.mode("overwrite").saveAsTable`` and ``CREATE OR REPLACE VIEW`` drop a table with its
properties, the streams over it among them, and make another table of the same name. A stream that
was seen before is then entered into the new table. If the property is gone from the same table (one
with the same time of creation), the stream was dropped.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cql.catalog.spark import metadata, registry
from cql.catalog.spark.session import Session
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.table import Table

Name = tuple[str, ...]
#: The property with the definition of a materialized view, as JSON.
VIEW = "cql.view"
STREAM = "cql.stream."
"""A stream ``s`` over a table is the property ``cql.stream.s`` of the table."""


@dataclass(frozen=True, slots=True)
class _Seen:
    table: Name
    key: str
    text: str
    created: int | None


# Per Spark context: the full names of streams in lower case, and where each was seen last.
_seen: weakref.WeakKeyDictionary[Any, dict[Name, _Seen]] = weakref.WeakKeyDictionary()


def remember(session: Session, stream: Name, table: Table, key: str, text: str) -> None:
    """``stream`` is a full name, ``text`` the property that declares it."""
    known = _seen.setdefault(session._sc, {})
    known[_folded(stream)] = _Seen(table.name, key, text, table.created)


def forget(session: Session, stream: Name) -> None:
    _seen.get(session._sc, {}).pop(_folded(stream), None)


def forget_table(session: Session, table: Name) -> None:
    """Forgets the streams over a table that the engine drops."""
    known = _seen.get(session._sc, {})
    for stream in [s for s, seen in known.items() if _folded(seen.table) == _folded(table)]:
        del known[stream]


def table_of(session: Session, stream: Name) -> Name | None:
    """The table over which a stream was seen last."""
    found = _seen.get(session._sc, {}).get(_folded(stream))
    return found.table if found is not None else None


def restore(session: Session, stream: Name) -> bool:
    """Enters a stream into its table again if the table was made anew; returns whether it did."""
    seen = _seen.get(session._sc, {}).get(_folded(stream))
    if seen is None or not registry.ensure(session, seen.table):
        return False
    table = spark_table.load(session, seen.table)
    if seen.key in table.properties or table.created == seen.created:
        return False
    metadata.set_properties(session, seen.table, {seen.key: seen.text})
    remember(session, stream, table, seen.key, seen.text)
    return True


def restore_all(session: Session) -> None:
    for stream in list(_seen.get(session._sc, {})):
        restore(session, stream)


def _folded(name: Sequence[str]) -> Name:
    return tuple(part.lower() for part in name)
