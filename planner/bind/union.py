"""Unions of queries, as a bag or as a set; columns are matched by position."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from cql.planner.bind.context import Binder, Bound
from cql.planner.bind.scope import column_of
from cql.planner.bind.text_keys import closed_by_text
from cql.planner.functions import registry
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import Aggregate, Logical, Project, Union


def unite(binder: Binder, members: Sequence[Bound], names: Sequence[str], node: exp.Expr) -> Bound:
    """The bag union of ``members``: columns are matched by position and cast to common types. A
    hidden window column stays if all members have it. Raises BindError for different numbers of
    columns, types without a common type, and times in different units."""
    width = members[0].width
    for member, name in zip(members[1:], names[1:], strict=True):
        if member.width != width:
            raise binder.error(
                f"UNION needs as many columns on both sides: {names[0]} has {width}, {name} has"
                f" {member.width}",
                node,
            )
    columns = [_by_position(binder, members, names, at, node) for at in range(width)]
    hidden = _common_hidden(members)
    for name in hidden:
        found = [m.plan.schema.find(name) for m in members]
        columns.append(
            [column_of(m.plan, at) for m, at in zip(members, found, strict=True) if at is not None]
        )
    out = [members[0].plan.schema[k].name for k in range(width)] + hidden
    plans = tuple(
        _selected(member.plan, tuple(column[k] for column in columns), tuple(out))
        for k, member in enumerate(members)
    )
    union = Union(plans, binder.pos(node))
    _check_units(binder, union, names, node)
    return Bound(union, len(hidden))


def _by_position(
    binder: Binder, members: Sequence[Bound], names: Sequence[str], at: int, node: exp.Expr
) -> list[Expr]:
    exprs = [column_of(m.plan, at) for m in members]
    listed = ", ".join(
        f"{name}.{m.plan.schema[at].name}" for name, m in zip(names, members, strict=True)
    )
    return registry.unify(exprs, binder.pos(node), f"column {at + 1} of the union ({listed})")


def _common_hidden(members: Sequence[Bound]) -> list[str]:
    first = members[0].plan.schema.fields[members[0].width :]
    found = []
    for f in first:
        alike = all(
            any((g.name, g.type) == (f.name, f.type) for g in m.plan.schema.fields[m.width :])
            and m.plan.schema.find(f.name) == _hidden_index(m, f.name)
            for m in members
        )
        if alike:
            found.append(f.name)
    return found


def _hidden_index(bound: Bound, name: str) -> int | None:
    names = bound.plan.schema.names
    return next((k for k in range(bound.width, len(names)) if names[k] == name), None)


def _selected(plan: Logical, exprs: tuple[Expr, ...], names: tuple[str, ...]) -> Logical:
    """``plan`` under a Project of ``exprs``; or ``plan`` if ``exprs`` are all its columns."""
    plain = [e.index if isinstance(e, Column) else None for e in exprs]
    if plain == list(range(len(plan.schema))):
        return plan
    return Project(plan, exprs, names)


def _check_units(binder: Binder, union: Union, names: Sequence[str], node: exp.Expr) -> None:
    """Raises BindError if a progressing column counts different units in two members."""
    infos = [member.progressing for member in union.inputs]
    for at, info in infos[0].items():
        for other, name in zip(infos[1:], names[1:], strict=True):
            theirs = other[at].unit if at in other else None
            if info.unit is None or theirs is None:
                continue
            if info.unit is not theirs:
                column = union.schema[at].name
                raise binder.error(
                    f"{column} counts {info.unit.value} in {names[0]} and {theirs.value} in {name}",
                    node,
                    hint="convert one of them in a subquery",
                )


def distinct(binder: Binder, bound: Bound, node: exp.Expr) -> Bound:
    """Each different row once: an aggregate by all columns. The first row of a group may leave
    immediately."""
    shown = bound.plan.schema.fields[: bound.width]
    keys = tuple(Column(k, f.name, f.type, f.nullable) for k, f in enumerate(shown))
    names = tuple(f.name for f in shown)
    made = Aggregate(bound.plan, None, keys, (), names, binder.pos(node), distinct=True)
    return Bound(closed_by_text(made))
