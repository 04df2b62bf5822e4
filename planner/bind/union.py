"""Unions of queries, as a bag, as a set, or of update streams; columns are matched by position."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from cql.errors import BindError, NotSupportedError, Position
from cql.planner.bind.context import Binder, Bound
from cql.planner.bind.scope import column_of
from cql.planner.bind.text_keys import closed_by_text
from cql.planner.functions import registry
from cql.planner.nodes.catalog import Queue
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import (
    Aggregate,
    Filter,
    Limit,
    Logical,
    Newest,
    Project,
    Scan,
    Union,
)


def union(binder: Binder, members: Sequence[Bound], names: Sequence[str], node: exp.Expr) -> Bound:
    """UNION or, as ``node`` says, UNION ALL of ``members``; that of update streams is an update
    stream again. Raises as ``unite``; BindError for update streams whose keys differ or are left
    out, NotSupportedError for UNION of update streams."""
    bound, as_set = unite(binder, members, names, node), node.args.get("distinct")
    if any(_replaces(member.plan) for member in members):
        if as_set:
            raise NotSupportedError(
                "UNION of update streams is not supported: their newest rows are one row per key",
                position=binder.pos(node),
                hint="UNION ALL has the newest row of each key",
            )
        key, time = _update_columns(binder, members, names, node)
        return Bound(Newest(bound.plan, key, time, binder.pos(node)), bound.hidden)
    return distinct(binder, bound, node) if as_set else bound


def _replaces(node: Logical) -> bool:
    """Whether ``node`` is an update stream, and not one that is declared to keep all rows."""
    while isinstance(node, Filter | Project | Limit):
        node = node.input
    if isinstance(node, Scan):
        spec = node.relation.stream
        return spec is not None and spec.is_updates and spec.queue is not Queue.APPEND
    return isinstance(node, Newest)


def _update_columns(
    binder: Binder, members: Sequence[Bound], names: Sequence[str], node: exp.Expr
) -> tuple[tuple[int, ...], int]:
    """The columns of the key and of the time, which are those of each member."""
    found = []
    for member, name in zip(members, names, strict=True):
        key, time = member.plan.update_key, member.plan.update_time
        shown = range(member.width)
        if key is None or time is None or time not in shown or not all(k in shown for k in key):
            raise _no_updates(binder, member, name, node)
        found.append((tuple(sorted(key)), time))
    first, plan = found[0], members[0].plan
    for member, name, own in zip(members, names, found, strict=True):
        for what, ours, theirs in (
            ("update key", first[0], own[0]),
            ("time", (first[1],), (own[1],)),
        ):
            types = [[str(p.schema[c].type) for c in ours] for p in (plan, member.plan)]
            if ours != theirs or types[0] != types[1]:
                listed = (_listed(plan, ours), _listed(member.plan, theirs))
                raise BindError(
                    f"UNION ALL of update streams needs the same {what}: {names[0]} has"
                    f" {listed[0]}, {name} has {listed[1]}",
                    position=_place(binder, member, node),
                    hint=f"select the {what} at the same places, with the same types, and declare"
                    " the streams with the same UPDATE KEY",
                )
    return first


def _listed(node: Logical, columns: Sequence[int]) -> str:
    listed = (f"{node.schema[c].name} {node.schema[c].type} at {c + 1}" for c in columns)
    return ", ".join(listed) or "none"


def _no_updates(binder: Binder, member: Bound, name: str, node: exp.Expr) -> BindError:
    """The error for a member without an update key or a time."""
    below = member.plan
    while isinstance(below, Filter | Project | Limit):
        below = below.input
    place = _place(binder, member, node)
    stream = below.relation if isinstance(below, Scan) else None
    spec = None if stream is None else stream.stream
    if stream is None or spec is None or not spec.is_updates:
        return BindError(
            f"UNION ALL of update streams: {name} is no update stream",
            position=place,
            hint="each input is SELECT … FROM a stream with UPDATE KEY, with WHERE or without",
        )
    title = ".".join(stream.name)
    if not spec.progress:
        return BindError(
            f"UNION ALL of update streams: {title} has no time that says which row is newer",
            position=place,
            hint=f"CREATE OR REPLACE STREAM {title} … ORDERED BY a time",
        )
    wanted = [*(spec.update_key or ()), spec.progress[0].column]
    kept = {_source_name(member.plan, c) for c in range(member.width)}
    lost = next(column for column in wanted if column not in kept)
    shown = [f.name.lower() for f in member.plan.schema.fields[: member.width]]
    role = "update key" if lost in (spec.update_key or ()) else "time"
    what = "changes" if lost.lower() in shown else "leaves out"
    return BindError(
        f"UNION ALL of update streams: {name} {what} {lost}, the {role} of {title}",
        position=place,
        hint=f"select {lost} as it is",
    )


def _source_name(node: Logical, column: int) -> str | None:
    """The name of the stream's column that ``column`` is, unchanged."""
    while isinstance(node, Filter | Project | Limit):
        if isinstance(node, Project):
            expr = node.exprs[column]
            if not isinstance(expr, Column):
                return None
            column = expr.index
        node = node.input
    assert isinstance(node, Scan)
    return node.relation.schema[node.columns[column]].name


def _place(binder: Binder, member: Bound, node: exp.Expr) -> Position | None:
    return getattr(member.plan, "pos", None) or binder.pos(node)


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
