"""REFRESH of an update stream: the items as plans have them, and the clause as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cql.base.types import INTERVAL
from cql.planner.nodes.catalog import Refresh
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.show import show


@dataclass(frozen=True, slots=True)
class RefreshItem:
    """Updates of a key that ``condition`` holds of (None: of all other keys) are taken ``every``
    microseconds apart, at least. The columns of the condition are those of the update key, by their
    places in it."""

    condition: Expr | None
    every: int


def refresh_clause(items: Sequence[Refresh]) -> str:
    """``REFRESH k = 1 EVERY 1 MINUTE, EVERY 5 SECONDS``."""
    return "REFRESH " + ", ".join(map(_item, items))


def _item(item: Refresh) -> str:
    every = show(Literal(item.every, INTERVAL)).removeprefix("INTERVAL ")
    return f"EVERY {every}" if item.condition is None else f"{item.condition} EVERY {every}"
