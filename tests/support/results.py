"""The rows of a query as Python tuples, in their order."""

from __future__ import annotations

from typing import Any

from cql import Session


def rows(query: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in query.to_arrow().to_pylist()]


def results(session: Session, text: str) -> list[tuple[Any, ...]]:
    return rows(session.sql(text))
