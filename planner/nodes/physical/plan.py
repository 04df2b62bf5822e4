"""A whole plan: its operators, its runtime and its policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cql.planner.nodes.logical import SortKey

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """The runtime of a plan, and the reason. Operators with keys are split into ``partitions``
    (0: not split), which ``workers`` workers share. ``split`` has the numbers (``NodeNumbers``) of
    the nodes to split (None: all); PARTITION BY splits its operator in any case. ``how`` is the
    settings of the scheduler as text. ``text_threads`` threads compute the functions over texts of
    bounded sources, each a block of rows; with 1 it is the thread that drives the query."""

    name: str
    why: str
    workers: int = 1
    partitions: int = 0
    split: frozenset[int] | None = None
    how: str = ""
    text_threads: int = 1


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """A whole query: its operators, its runtime, and its policies.

    ``keep_bad_rows``: bad rows go to the ledger and the query goes on; otherwise the first bad row
    fails the query. ``changelog``: the output is the changelog of a relation, with ``_time`` and
    ``_weight`` before the relation's columns. ``order`` is the order of the final relation's rows.
    ``emits_changes``: the query says EMIT CHANGES.
    """

    root: Physical
    runtime: RuntimeChoice
    keep_bad_rows: bool
    notes: tuple[str, ...] = ()
    changelog: bool = False
    order: tuple[SortKey, ...] = ()
    emits_changes: bool = False


@dataclass(frozen=True, slots=True)
class QuerySetPlan:
    """A query set: a node that several plans contain runs once for all of them
    (``planner.placement.multi_query``). ``notes`` are notes on the whole set."""

    plans: tuple[PhysicalPlan, ...]
    notes: tuple[str, ...] = ()
