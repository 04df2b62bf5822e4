"""Plans whose output depends on where their inputs are cut into morsels. Every runtime cuts these
inputs alike (the design's sameness)."""

from __future__ import annotations

from typing import assert_never

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
    PhysicalPlan,
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
    sources,
    walk,
)


def depends_on_morsels(plan: PhysicalPlan) -> bool:
    """Whether another morsel size would change the order of the output rows, or the changes."""
    return plan.emits_changes or _meets_itself(plan.root) or any(map(_is_slow, walk(plan.root)))


def _meets_itself(root: Physical) -> bool:
    """Whether a source reaches an operator at several inputs: each morsel arrives at the one input,
    then at the other."""
    read = [node for node in walk(root) if isinstance(node, SourceExec)]
    return len(read) > len(sources(root))


def _is_slow(node: Physical) -> bool:
    """Whether rows without a partner leave a few at a time, with each morsel (slow flush)."""
    match node:
        case OopJoinExec():
            return node.smooth and node.kind not in ("inner", "semi")
        case SourceExec() | ValuesExec() | FilterExec() | ProjectExec() | BucketExec():
            return False
        case NumberExec() | UnnestExec() | LimitExec() | LateRowsExec() | OnTimeExec():
            return False
        case SlackExec() | DupelimExec() | UnionExec() | MergeUnionExec() | PunctuatedSortExec():
            return False
        case SortExec() | WidAggregateExec() | KeyWindowsExec() | ArrivalExec() | RelationExec():
            return False
        case ChangeAggregateExec() | SetOperationExec() | TopExec() | RowNumberExec():
            return False
        case StreamExec() | SubqueryJoinExec() | RelationJoinExec() | LookupExec():
            return False
        case TableJoinExec() | AsofJoinExec() | WindowJoinExec():
            return False
        case _:
            assert_never(node)
