"""PARTITION BY HASH|RANGE(…) INTO n: splits the keyed operator of a SELECT over several workers
(ordered-multicore paper, §4). The operator is the aggregate or, in a SELECT without an aggregate,
the last join of FROM."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from cql.base.types import DataType, Kind
from cql.dialect import nodes, to_sql
from cql.planner.bind.context import Binder
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import (
    Aggregate,
    Bucket,
    Filter,
    Join,
    Logical,
    Partitioning,
    Project,
)
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.show import show

#: The most partitions of one operator; each partition has its own state.
MOST = 256


def of_aggregate(
    binder: Binder, clause: nodes.PartitionBy, wanted: Sequence[Expr], parts: int, made: Aggregate
) -> Partitioning:
    """The partitioning of the aggregate ``made``. ``wanted`` are the keys that the clause names,
    over the aggregate's input. Raises BindError for an aggregate without keys, for an expression
    that is no key of GROUP BY, and for a type that RANGE does not take."""
    if not made.keys:
        raise binder.error(
            "PARTITION BY splits groups, and this aggregate has one", clause, "add GROUP BY k"
        )
    places = []
    for key, node in zip(wanted, clause.expressions, strict=True):
        if key not in made.keys:
            names = ", ".join(map(show, made.keys))
            raise binder.error(f"{show(key)} is not among the keys of GROUP BY ({names})", node)
        places.append(made.keys.index(key))
    _check_range(binder, clause, [made.keys[k].type for k in places])
    return Partitioning(str(clause.this), parts, tuple(places), binder.pos(clause))


def of_join(
    binder: Binder, clause: nodes.PartitionBy, wanted: Sequence[Expr], parts: int, plan: Logical
) -> Logical:
    """``plan``, the plan of FROM, with its last join split by ``wanted`` (columns of ``plan``).
    Which of these columns are keys of the join is known only after WHERE has become part of the
    join. Raises BindError for an expression that is no column, for a FROM without a join, and for
    a type that RANGE does not take."""
    places = []
    for key, node in zip(wanted, clause.expressions, strict=True):
        if not isinstance(key, Column):
            raise binder.error(
                f"{show(key)} is no column, by which rows that join are split",
                node,
                hint="name a column that the condition of the join compares",
            )
        places.append(key.index)
    _check_range(binder, clause, [key.type for key in wanted])
    made = Partitioning(str(clause.this), parts, tuple(places), binder.pos(clause))
    marked = _marked(plan, made) if _has_join(clause.parent) else None
    if marked is None:
        raise binder.error(
            "PARTITION BY splits an aggregate or a join by its keys, and this SELECT has neither",
            clause,
            hint="write it behind the GROUP BY or the join that has the keys",
        )
    return marked


def _has_join(select: exp.Expr | None) -> bool:
    """Whether the FROM of ``select`` itself has a join; joins inside its subqueries and views do
    not count."""
    assert select is not None
    from_ = select.args.get("from_")
    item = from_.this if from_ is not None else select
    while not item.args.get("joins") and isinstance(item.this, exp.Table | exp.Subquery):
        item = item.this
    return bool(select.args.get("joins") or item.args.get("joins"))


def _marked(plan: Logical, partitioning: Partitioning) -> Logical | None:
    """``plan`` with its outermost join split by columns of ``plan``; None if it has no join."""
    if isinstance(plan, Join):
        return replace(plan, partitioning=partitioning)
    if isinstance(plan, Project):
        columns = [plan.exprs[k] for k in partitioning.keys]
        if not all(isinstance(e, Column) for e in columns):
            return None
        places = tuple(e.index for e in columns if isinstance(e, Column))
        partitioning = replace(partitioning, keys=places)
    if not isinstance(plan, Project | Filter | Bucket):
        return None
    below = _marked(plan.input, partitioning)
    return None if below is None else replace(plan, input=below)


def _check_range(binder: Binder, clause: nodes.PartitionBy, types: Sequence[DataType]) -> None:
    if clause.this != "RANGE":
        return
    if len(types) > 1:
        raise binder.error(
            "RANGE takes one key", clause.expressions[1], hint="HASH(a, b) takes several"
        )
    (kind,) = types
    if not (kind.is_integer or kind.is_timestamp or kind.kind in (Kind.DATE, Kind.DECIMAL)):
        raise binder.error(
            f"RANGE takes a whole number, a decimal, a date or a time, and this is {kind}",
            clause.expressions[0],
            hint=f"PARTITION BY HASH({to_sql(clause.expressions[0])}) INTO …",
        )
