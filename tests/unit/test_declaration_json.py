"""Declarations as JSON data (``planner.nodes.declaration_json``)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cql.base import types as t
from cql.base.model import Field, Schema
from cql.base.types import DataType, Kind
from cql.planner.nodes.catalog import (
    Computed,
    Heartbeat,
    Progress,
    Queue,
    Refresh,
    Statistics,
    StreamSpec,
    TimeUnit,
)
from cql.planner.nodes.declaration_json import (
    schema_from_json,
    schema_to_json,
    spec_from_json,
    spec_to_json,
    statistics_from_json,
    statistics_to_json,
)

PLAIN = [DataType(k) for k in Kind if k not in (Kind.DECIMAL, Kind.ARRAY)]
TYPES = [*PLAIN, t.decimal(10, 2), t.decimal(30, 4), t.char(5), t.array(t.array(t.decimal(5, 1)))]
SPECS = [
    StreamSpec(),
    StreamSpec(
        (Progress("t", 7, TimeUnit.SECONDS, "WATERMARK", True, "marker", 5, 9, 11), Progress("u")),
        ("a", "b"),
        Queue.LINECUTTING,
        True,
        12.5,
        False,
        3,
        Heartbeat(4, 5),
        (("QUEUE", "QUEUE x"),),
        "k",
        (Computed("c", "a + 1", 2), Computed("d", "b", None)),
        Progress("c", by_rows=False),
        refresh=(Refresh("a = 'x'", 5), Refresh(None, 7)),
    ),
]


def there(data: Any) -> Any:
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_columns(type_: DataType) -> None:
    schema = Schema((Field("a", type_, False, "a comment"), Field("B", type_)))
    held = schema_from_json(there(schema_to_json(schema)))
    assert held == schema
    assert [repr(f.type) for f in held] == [repr(f.type) for f in schema]  # == ignores lengths


@pytest.mark.parametrize("spec", SPECS, ids=["plain", "all clauses"])
def test_clauses(spec: StreamSpec) -> None:
    assert spec_from_json(there(spec_to_json(spec))) == spec


def test_statistics() -> None:
    for statistics in (Statistics(7, 0.5, {"a": 3}, {"b": 0}), Statistics(estimated_rows=70)):
        assert statistics_from_json(there(statistics_to_json(statistics))) == statistics


def test_columns_of_tables_that_exist() -> None:
    """Tables that were declared before types had a form of their own."""
    held = schema_from_json(
        [
            ["a", "decimal", 30, 4, True, None],
            ["b", "timestamp", 0, 0, False, "c"],
        ]
    )
    assert held == Schema((Field("a", t.decimal(30, 4)), Field("b", t.TIMESTAMP, False, "c")))
    assert held[0].type.declared == 30
