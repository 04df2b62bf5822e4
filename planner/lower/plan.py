"""From the logical to the physical plan: lowers the nodes, then rewrites and checks the operators.

What this version cannot run is refused first (``planner.lower.refuse``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cql.base.recursion import deep_stack
from cql.errors import Position
from cql.planner.lower import choose, ordering, partitioned_watermark, table_refresh
from cql.planner.lower.lower import lower
from cql.planner.lower.net_changes import for_reading
from cql.planner.lower.refuse import refuse
from cql.planner.lower.relation import (
    changes,
)
from cql.planner.lower.updates.derived import with_queries, without_late_rows
from cql.planner.lower.updates.queue import (
    refuse_over_updates,
    unions_on_time,
    without_idle_queues,
)
from cql.planner.lower.updates.refresh import refuse_refresh
from cql.planner.lower.watermark_demand import describe
from cql.planner.nodes.catalog import Cluster
from cql.planner.nodes.logical import (
    Limit,
    Logical,
    Sort,
)
from cql.planner.nodes.physical import (
    Physical,
    PhysicalPlan,
)
from cql.planner.optimize.changelog import changes as changing
from cql.planner.optimize.changelog import clock
from cql.planner.optimize.rules import optimize
from cql.planner.placement import partitioning, scale_out
from cql.planner.placement.choose_runtime import choose_runtime
from cql.planner.placement.choose_spark import choose_spark
from cql.planner.placement.multi_query import join_once


@dataclass(frozen=True, slots=True)
class Question:
    """What passes may read besides the operators: the meaning of the query, its settings, and the
    columns of its output whose punctuation the consumer reads (``follows``)."""

    logical: Logical
    settings: Mapping[str, Any]
    follows: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """A step behind the lowering of nodes: ``run`` returns the operators, rewritten or checked.

    ``run`` raises NotSupportedError for what this version cannot run, PlanError for what cannot
    run."""

    name: str
    run: Callable[[Physical, Question], Physical]


def _refuse_order(root: Physical, _: Question) -> Physical:
    ordering.refuse_order(root)
    return root


def _partitioned_watermarks(root: Physical, question: Question) -> Physical:
    return partitioned_watermark.apply(root, question.settings)


def _check_partitioning(root: Physical, question: Question) -> Physical:
    partitioning.check(question.logical, root, question.settings)
    return root


def _refresh_tables(root: Physical, question: Question) -> Physical:
    return table_refresh.apply(root, question.settings)


def _await_punctuation(root: Physical, question: Question) -> Physical:
    return describe(root, dict.fromkeys(question.follows))


def _scan_once(root: Physical, _: Question) -> Physical:
    return join_once(root)


def _drop_idle_queues(root: Physical, _: Question) -> Physical:
    return without_idle_queues(root)


def _unions_on_time(root: Physical, _: Question) -> Physical:
    return unions_on_time(root)


def _check_partitioned_watermarks(root: Physical, _: Question) -> Physical:
    partitioned_watermark.check(root)
    return root


#: The passes over the operators of a query, in their order. A pass relies on those before it.
PASSES: tuple[Pass, ...] = (
    Pass("drop append queues below operators that need all rows", _drop_idle_queues),
    Pass("leave late rows out of unions of update streams", _unions_on_time),
    Pass("refuse LATE OUTPUT above an order", _refuse_order),
    Pass("choose partitioned watermarks", _partitioned_watermarks),
    Pass("check PARTITION BY", _check_partitioning),
    Pass("refresh tables", _refresh_tables),
    Pass("note the awaited punctuation", _await_punctuation),
    Pass("scan each relation of a join once", _scan_once),
    Pass("check partitioned watermarks", _check_partitioned_watermarks),
)


@deep_stack()
def plan(
    logical: Logical,
    settings: Mapping[str, Any],
    *,
    keep_bad_rows: bool | None = None,
    emit_changes: Position | None = None,
    cores: int = 1,
    cluster: Cluster | None = None,
    follows: Collection[int] = (),
    on_time: int | None = None,
) -> PhysicalPlan:
    """Chooses operators and a runtime. ``keep_bad_rows`` is the query's own ON BAD ROW clause,
    ``emit_changes`` the position of EMIT CHANGES, ``cores`` the number of cores to use,
    ``cluster`` the executors of Spark that the runtime auto may choose; ``follows`` as in
    ``Question``, and ``on_time`` as in ``lower.updates.derived.PlansQuery``.

    Raises NotSupportedError for what this version cannot run, PlanError for what cannot run."""
    refuse(logical)
    refuse_over_updates(logical, settings)
    refuse_refresh(logical, settings)

    emits = emit_changes is not None
    changelog = emits or changing(logical)
    root = (
        _of_relation(logical, settings, emits=emits) if changelog else _of_stream(logical, settings)
    )

    if on_time is not None:
        root = without_late_rows(root, on_time)

    def of_query(query: Logical, *, follows: Collection[int], on_time: int | None) -> PhysicalPlan:
        return plan(
            optimize(query, join_order=settings["join_order"]),
            settings,
            keep_bad_rows=keep_bad_rows,
            cores=cores,
            follows=follows,
            on_time=on_time,
        )

    root = with_queries(root, of_query)
    for step in PASSES:
        root = step.run(root, Question(logical, settings, follows))
    keys = logical.keys if changelog and isinstance(logical, Sort) else ()
    keep = choose.keep_bad_rows(root, settings, keep_bad_rows)
    runtime = choose_runtime([root], settings, cores)
    made = PhysicalPlan(root, runtime, keep, changelog=changelog, order=keys, emits_changes=emits)
    if runtime.name == scale_out.RUNTIME:
        return replace(made, runtime=scale_out.chosen(made, settings["tasks_by"]))
    if cluster is not None and settings["runtime"] == "auto":
        return replace(made, runtime=choose_spark(made, settings, cluster, cores))
    return made


def _of_stream(node: Logical, settings: Mapping[str, Any]) -> Physical:
    """The operators of a stream or table, with its unions chosen."""
    return ordering.choose_unions(lower(node, settings), settings)


def _of_relation(logical: Logical, settings: Mapping[str, Any], *, emits: bool) -> Physical:
    """The changelog of a relation as users see it. LIMIT takes the first changes of an endless
    relation and of EMIT CHANGES (``emits``), but the first rows of a relation that is read to its
    end."""
    counted = logical if isinstance(logical, Limit) else None
    if counted is not None and not emits and counted.input.is_bounded:
        counted = None
    relation = logical if counted is None else counted.input
    root = changes(relation, clock(relation), lambda node: _of_stream(node, settings))
    root = for_reading(root)
    return root if counted is None else ordering.with_limit(root, counted.limit, counted.offset)
