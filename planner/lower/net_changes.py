"""Changelogs as streams and for reading: where rows that enter and leave at one instant must be
netted, and where no row does both."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from cql.planner.lower.joins.latest_rows import with_latest_rows
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import (
    ArrivalExec,
    AsofJoinExec,
    BucketExec,
    ChangeAggregateExec,
    DupelimExec,
    FilterExec,
    KeyWindowsExec,
    LateRowsExec,
    LimitExec,
    LookupExec,
    MergeUnionExec,
    NumberExec,
    OnTimeExec,
    OopJoinExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    RelationExec,
    RelationJoinExec,
    RowNumberExec,
    SetOperationExec,
    SlackExec,
    SortExec,
    SourceExec,
    StreamExec,
    SubqueryJoinExec,
    TableJoinExec,
    TopExec,
    UnionExec,
    UnnestExec,
    ValuesExec,
    WidAggregateExec,
    WindowJoinExec,
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
        case SourceExec() | ValuesExec() | FilterExec() | ProjectExec() | BucketExec():
            return None
        case UnionExec() | MergeUnionExec() | PunctuatedSortExec() | LimitExec() | SlackExec():
            return None
        case WidAggregateExec() | SortExec() | NumberExec() | KeyWindowsExec() | LateRowsExec():
            return None
        case OnTimeExec() | DupelimExec() | ArrivalExec() | RelationExec() | SubqueryJoinExec():
            return None
        case LookupExec() | OopJoinExec() | TableJoinExec() | UnnestExec() | RelationJoinExec():
            return None
        case AsofJoinExec() | WindowJoinExec() | ChangeAggregateExec() | SetOperationExec():
            return None
        case TopExec() | RowNumberExec() | StreamExec():
            return None
        case _:
            assert_never(node)


def _shows_all(node: ProjectExec) -> bool:
    """Whether changes of one instant that differ still differ: the projection keeps all columns, or
    drops such as are equal in them."""
    kept = {e.index for e in node.exprs if isinstance(e, Column)}
    return len(kept | node.input.equal_columns) == len(node.input.schema)


def _is_raw(node: Physical) -> bool:
    """Whether no operator looks at a relation as a whole: all changes are a window's own rows."""
    match node:
        case FilterExec() | ProjectExec():
            return _is_raw(node.input)
        case UnionExec():
            return all(map(_is_raw, node.inputs))
        case ChangeAggregateExec() | SetOperationExec() | TopExec() | RowNumberExec():
            return False
        case RelationJoinExec():
            return False
        case SourceExec() | ValuesExec() | BucketExec() | MergeUnionExec() | PunctuatedSortExec():
            return True
        case LimitExec() | SlackExec() | WidAggregateExec() | SortExec() | NumberExec():
            return True
        case KeyWindowsExec() | LateRowsExec() | OnTimeExec() | DupelimExec() | ArrivalExec():
            return True
        case RelationExec() | SubqueryJoinExec() | LookupExec() | OopJoinExec() | TableJoinExec():
            return True
        case UnnestExec() | AsofJoinExec() | WindowJoinExec() | StreamExec():
            return True
        case _:
            assert_never(node)


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
        case ChangeAggregateExec() | SetOperationExec() | TopExec() | RowNumberExec():
            return True
        case UnionExec():
            return False
        case SourceExec() | ValuesExec() | BucketExec() | MergeUnionExec() | PunctuatedSortExec():
            return False
        case LimitExec() | SlackExec() | WidAggregateExec() | SortExec() | NumberExec():
            return False
        case KeyWindowsExec() | LateRowsExec() | OnTimeExec() | DupelimExec() | ArrivalExec():
            return False
        case RelationExec() | SubqueryJoinExec() | LookupExec() | OopJoinExec() | TableJoinExec():
            return False
        case UnnestExec() | AsofJoinExec() | WindowJoinExec() | StreamExec():
            return False
        case _:
            assert_never(node)


def for_reading(root: Physical) -> Physical:
    """A relation's changelog as users see it: ``_time`` and ``_weight`` first."""
    if not (_is_raw(root) or _is_net(root)):
        root = StreamExec(root, "net", "of each instant the difference to the one before")
    fields = root.schema.fields
    columns = [Column(k, f.name, f.type, f.nullable) for k, f in enumerate(fields)]
    shown = (*columns[-2:], *columns[:-2])
    return ProjectExec(root, shown, tuple(c.name for c in shown), "the change before its row")
