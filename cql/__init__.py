"""A continuous query engine: CQL text in, Arrow batches and Spark tables out.

Public names load lazily, so that ``import cql`` stays cheap (no numba, pyspark or pyarrow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cql.base.model import Punctuation
    from cql.errors import CqlError
    from cql.functions.declare import function
    from cql.functions.declare_aggregate import aggregate
    from cql.functions.declare_operator import operator
    from cql.query.query import Query
    from cql.session.session import Session, connect

__version__ = "0.1.0"
__all__ = [
    "CqlError",
    "Punctuation",
    "Query",
    "Session",
    "__version__",
    "aggregate",
    "connect",
    "function",
    "operator",
]

_HOMES = {
    "CqlError": "cql.errors",
    "Punctuation": "cql.base.model",
    "Query": "cql.query.query",
    "Session": "cql.session.session",
    "aggregate": "cql.functions.declare_aggregate",
    "connect": "cql.session.session",
    "function": "cql.functions.declare",
    "operator": "cql.functions.declare_operator",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cql' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
