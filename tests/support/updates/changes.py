"""The rows that the changes of a query leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from cql.session.session import Session

Row = tuple[Any, ...]
State = Counter[Row]


def summed(batches: Iterable[Any]) -> State:
    """The rows that the changes of a query leave."""
    state: State = Counter()
    for batch in batches:
        for _, weight, *row in (tuple(r.values()) for r in batch.to_pylist()):
            state[tuple(row)] += weight
    return Counter({row: n for row, n in state.items() if n})


def rows_of(session: Session, query: str) -> State:
    asked: Any = session.sql(query)
    return Counter(tuple(r.values()) for r in asked.to_arrow().to_pylist())
