"""Changelogs as streams and for reading: where rows that enter and leave at one instant must be
netted, and where no row does both."""

from __future__ import annotations

from cql.planner.lower.joins.latest_rows import with_latest_rows
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import Physical, ProjectExec, StreamExec


def as_stream(changelog: Physical, kind: str, why: str) -> Physical:
    """ISTREAM, DSTREAM or RSTREAM (``kind``) of a changelog."""
    if kind != "rstream" and (root := changelog.showing(kind)) is not None:
        fields = root.schema.fields[:-1]
        columns = tuple(Column(k, f.name, f.type, f.nullable) for k, f in enumerate(fields))
        return ProjectExec(root, columns, tuple(f.name for f in fields), "without the weight")
    return with_latest_rows(StreamExec(changelog, kind, why))


def for_reading(root: Physical) -> Physical:
    """A relation's changelog as users see it: ``_time`` and ``_weight`` first."""
    if not (root.is_raw or root.is_net):
        root = StreamExec(root, "net", "of each instant the difference to the one before")
    fields = root.schema.fields
    columns = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(fields)]
    shown = (*columns[-2:], *columns[:-2])
    return ProjectExec(root, shown, tuple(c.name for c in shown), "the change before its row")
