"""``Session.create_stream``: CREATE STREAM for data that Python holds.

The clauses go through the binder, as those of the statement do: same checks, same words.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from cql.errors import BindError, CatalogError, SettingError, did_you_mean

if TYPE_CHECKING:
    from sqlglot import exp

    from cql.catalog.catalogs import Catalogs
    from cql.model import Schema
    from cql.planner.catalog import StreamSpec

Slack: TypeAlias = "str | int | timedelta"
Names: TypeAlias = "str | Sequence[str]"

_SUFFIXES = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".arrow", ".feather", ".ipc")
_UNITS = ("nanoseconds", "microseconds", "milliseconds", "seconds", "minutes", "hours", "days")


def is_path(text: str) -> bool:
    """Whether a string given as data means a file or folder, not the name of a table."""
    named = re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*){0,2}", text) is not None
    return not named or text.lower().endswith(_SUFFIXES) or os.path.exists(text)


def parts_of(name: str) -> tuple[str, ...]:
    """``db.t`` as its parts; BindError for what no name can be."""
    parts = tuple(name.split("."))
    if not 1 <= len(parts) <= 3 or not all(p.strip() for p in parts):
        raise BindError(f"'{name}' is not a name", hint="one to three parts: t, db.t, catalog.db.t")
    return parts


def peeked(data: Any) -> tuple[Any, Any]:
    """(``data`` to read from, the same to take the schema from): an iterator is read only once, so
    its first item serves for the second."""
    if not isinstance(data, Iterator) or hasattr(data, "read_next_batch"):
        return data, data
    first = list(itertools.islice(data, 1))
    return itertools.chain(first, data), first


def schema_of(
    name: tuple[str, ...], data: Any, bounded: bool, options: Mapping[str, Any]
) -> Schema:
    """The columns that a stream over ``data`` has."""
    from cql.catalog.local import LocalCatalog

    scratch = LocalCatalog()
    scratch.register(name, data, bounded=bounded, options=options or None)
    found = scratch.find(name)
    assert found is not None
    return found.schema


def bound_spec(
    catalog: Catalogs,
    schema: Schema,
    *,
    ordered_by: Names | None,
    unit: str | None,
    watermark: Mapping[str, Slack] | str | None,
    slack: Slack | None,
    update_key: Names | None,
    rate: float | None,
) -> StreamSpec:
    """What the clauses mean for columns of ``schema``; raises BindError."""
    from sqlglot import exp

    from cql.dialect import nodes
    from cql.planner import statements as st
    from cql.planner.bind import bind
    from cql.planner.context import Context

    if slack is not None and ordered_by is None and not isinstance(watermark, str):
        raise BindError("slack belongs to a column", hint="say ordered_by='…' or watermark='…'")
    if unit is not None and ordered_by is None:
        raise BindError("unit belongs to a column", hint="say ordered_by='…'")
    columns = [
        exp.ColumnDef(this=_identifier(f.name), kind=exp.DataType.build("int")) for f in schema
    ]
    tree = nodes.CreateStream(
        this=exp.to_table("s"),
        from_table=exp.to_table("source"),
        ordered_by=_ordered(ordered_by, unit, slack),
        watermark=_watermarks(watermark, slack),
    )
    assert columns
    if update_key is not None:
        tree.set("update_key", nodes.UpdateKey(expressions=_identifiers(update_key)))
    if rate is not None:
        number = exp.Literal.number(format(Decimal(str(rate)), "f"))
        tree.set("rate", nodes.Rate(this=number, unit="HZ"))
    bound = bind(tree, _OneTable(catalog, schema), Context())
    assert isinstance(bound, st.CreateStream)
    return bound.definition.spec
