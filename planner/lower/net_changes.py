"""Changelogs as streams and for reading: where rows that enter and leave at one instant must be
netted, and where no row does both."""

from __future__ import annotations

from dataclasses import replace

from cql.planner.lower.joins.latest_rows import with_latest_rows
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import (
    ChangeAggregateExec,
    Changes,
    FilterExec,
    Physical,
    ProjectExec,
    RelationJoinExec,
    StreamExec,
    UnionExec,
)


def as_stream(changelog: Physical, kind: str, why: str) -> Physical:
    """ISTREAM, DSTREAM or RSTREAM (``kind``) of a changelog."""
    if kind != "rstream" and (root := _of_groups(changelog, kind)) is not None:
        fields = root.schema.fields[:-1]
        columns = tuple(Column(k, f.name, f.type, f.nullable) for k, f in enumerate(fields))
        return ProjectExec(root, columns, tuple(f.name for f in fields), "without the weight")
    return with_latest_rows(StreamExec(changelog, kind, why))


def _of_groups(node: Physical, kind: str) -> Physical | None:
    """The changelog of groups with the rows that enter only (istream) or leave only (dstream); None
    if it is another one. At an instant, a group's old row leaves if its new row differs. So all
    rows are net if they show the whole row of their group."""
    match node:
        case ChangeAggregateExec() if node.method != "weights":
            return replace(node, shows=kind)
        case FilterExec() | ProjectExec() if isinstance(node, FilterExec) or _shows_all(node):
            below = _of_groups(node.input, kind)
            return None if below is None else replace(node, input=below)
        case _:
            return None


def _shows_all(node: ProjectExec) -> bool:
    kept = {e.index for e in node.exprs if isinstance(e, Column)}
    return len(kept) == len(node.input.schema)


def _is_raw(node: Physical) -> bool:
    """Whether no operator looks at a relation as a whole: all changes are a window's own rows."""
    match node:
        case FilterExec() | ProjectExec():
            return _is_raw(node.input)
        case UnionExec():
            return all(map(_is_raw, node.inputs))
        case _:
            return not isinstance(node, Changes)


def _is_net(node: Physical) -> bool:
    """Whether no row both enters and leaves at one instant. Two rows may become equal when columns
    are dropped or computed, or if they come from the two inputs of a union."""
    match node:
        case FilterExec():
            return _is_net(node.input)
        case ProjectExec():
            return _shows_all(node) and _is_net(node.input)
        case RelationJoinExec():
            # a row without a partner may equal a row whose partner is all NULL
            return node.kind in ("inner", "mark")
        case _:
            return isinstance(node, Changes)


def for_reading(root: Physical) -> Physical:
    """A relation's changelog as users see it: ``_time`` and ``_weight`` first."""
    if not (_is_raw(root) or _is_net(root)):
        root = StreamExec(root, "net", "of each instant the difference to the one before")
    fields = root.schema.fields
    columns = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(fields)]
    shown = (*columns[-2:], *columns[:-2])
    return ProjectExec(root, shown, tuple(c.name for c in shown), "the change before its row")
