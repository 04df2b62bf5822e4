"""Streams whose rows are changes (CHANGELOG): in FROM, each is the relation that they make."""

from __future__ import annotations

from sqlglot import exp

from cql.base.window import Window, WindowKind
from cql.planner.bind.context import Binder
from cql.planner.bind.scope import column_of
from cql.planner.nodes.catalog import CHANGE
from cql.planner.nodes.expr import Column, columns_of
from cql.planner.nodes.logical import Logical, Project, Scan, Watermark, Windowed


def relation_of(binder: Binder, scan: Scan, plan: Logical, node: exp.Expr) -> Project:
    """The relation that the changes ``plan`` of ``scan`` make, without CHANGE. With UPDATE KEY it
    has the last row of each key. Without, it is a bag: a row takes out one that is equal to it in
    all stored columns but the event time.

    Raises BindError for changes without an event time."""
    spec = scan.relation.stream
    assert spec is not None
    name = ".".join(scan.relation.name)
    wa = next(iter(plan.progressing), None)
    if wa is None:
        raise binder.error(
            f"the changelog {name} has no column with a watermark: its changes need an order",
            node,
            hint="declare ORDERED BY or WATERMARK; CHANGELOG DEBEZIUM has the column ts_ms",
        )
    names = [n.lower() for n in plan.schema.names]
    change = names.index(CHANGE)
    if spec.update_key is not None:
        rows, by = 1, tuple(names.index(key.lower()) for key in spec.update_key)
    else:
        computed = {c.name.lower() for c in spec.computed}
        times = _read_by(plan, wa)
        stored = (k for k, n in enumerate(names) if n not in computed)
        rows, by = None, tuple(k for k in stored if k not in (*plan.progressing, change, *times))
        nested = next((plan.schema[k] for k in by if plan.schema[k].type.element), None)
        if nested is not None:
            raise binder.unsupported(
                f"a changelog without UPDATE KEY whose rows have the array {nested.name}",
                node,
                "declare UPDATE KEY",
            )
    window = Window(WindowKind.ROWS, wa, rows=rows, partition_by=by, change=change)
    made = Windowed(plan, window, binder.pos(node))
    kept = [column_of(made, k) for k in range(len(names)) if k != change]
    return Project(made, tuple(kept), tuple(c.name for c in kept), binder.pos(node))


def _read_by(plan: Logical, wa: int) -> frozenset[int]:
    """The stored columns, by their places in ``plan``, from which its time ``wa`` is computed."""
    while isinstance(plan, Watermark):
        plan = plan.input
    if not isinstance(plan, Project):
        return frozenset()
    read = columns_of(plan.exprs[wa])
    return frozenset(
        k for k, e in enumerate(plan.exprs) if isinstance(e, Column) and e.index in read
    )


def refuse_window(binder: Binder, plan: Logical, node: exp.Expr) -> None:
    """Raises NotSupportedError for a window over the rows of a changelog."""
    if _is_changelog(plan):
        raise binder.unsupported(
            "a window over a changelog, which is a relation whose rows also leave,",
            node,
            "leave the window out: aggregates and joins follow its changes, and"
            " date_trunc('MINUTE', ts) in GROUP BY makes groups of time",
        )


def _is_changelog(plan: Logical) -> bool:
    if isinstance(plan, Windowed):
        return plan.window.change is not None
    return plan.makes_relation is not False and any(map(_is_changelog, plan.inputs))
