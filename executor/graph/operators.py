"""Which running operator each node of a plan has.

A stage, a union and a merge have no entry: ``executor.graph.build`` makes them from several nodes
or inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch

from cql.base.uninterruptible import load_module
from cql.executor.operators.contract import Operator
from cql.executor.operators.flow.dupelim import DupelimOperator
from cql.executor.operators.flow.late_output import LateRowsOperator
from cql.executor.operators.flow.limit import LimitOperator
from cql.executor.operators.flow.unnest import UnnestOperator
from cql.executor.operators.joins.asof_join import AsofJoinOperator
from cql.executor.operators.joins.lookup_join import TableJoinOperator
from cql.executor.operators.joins.oop_join import OopJoinOperator
from cql.executor.operators.joins.relation_join import RelationJoinOperator
from cql.executor.operators.joins.subquery_lookup import LookupOperator
from cql.executor.operators.order.bounded_disorder import SlackOperator
from cql.executor.operators.relations.change_aggregate import ChangeAggregateOperator
from cql.executor.operators.relations.keyed_rows import KeyedRowsOperator
from cql.executor.operators.relations.ranking import RankingOperator
from cql.executor.operators.relations.set_operations import WeightsOperator
from cql.executor.operators.relations.stream_of_relation import stream_operator
from cql.executor.operators.relations.subquery_join import SubqueryJoinOperator
from cql.executor.operators.relations.window_relation import RelationOperator, relation_operator
from cql.executor.operators.workspace import Workspace
from cql.planner.nodes.physical import (
    AsofJoinExec,
    ChangeAggregateExec,
    ConcatExec,
    DupelimExec,
    FillExec,
    GapsExec,
    KeyWindowsExec,
    LateRowsExec,
    LimitExec,
    LookupExec,
    NewestExec,
    OopJoinExec,
    Physical,
    ProcessExec,
    RelationExec,
    RelationJoinExec,
    RewindowExec,
    RowNumberExec,
    RunningExec,
    SamplesExec,
    SegmentsExec,
    SetOperationExec,
    SlackExec,
    SortExec,
    StreamExec,
    SubqueryJoinExec,
    SyncExec,
    TableJoinExec,
    TopExec,
    UnnestExec,
    WindowJoinExec,
    ZipExec,
)

#: Nodes whose operators pass late rows on in morsels of their own, or with own columns.
PASS_LATE_ROWS = (
    SlackExec
    | DupelimExec
    | LimitExec
    | LookupExec
    | RunningExec
    | ProcessExec
    | UnnestExec
    | TableJoinExec
)


@dataclass(frozen=True, slots=True)
class Site:
    """What an operator is made with. ``windows`` gives the operators of the windows below, one for
    each partition. ``numbered``: it is a partition whose output has order columns."""

    name: str
    workspace: Workspace
    windows: Callable[[], Sequence[RelationOperator]]
    numbered: bool


@singledispatch
def operator_of(node: Physical, site: Site) -> Operator:
    """The operator of a node. Raises AssertionError for a class of nodes without an entry."""
    raise AssertionError(f"no operator runs a {type(node).__name__}")


# -- flow and order --------------------------------------------------------------------------------


@operator_of.register
def _(node: SlackExec, site: Site) -> Operator:
    return SlackOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: DupelimExec, site: Site) -> Operator:
    return DupelimOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: NewestExec, site: Site) -> Operator:
    load_module("cql.executor.operators.updates.newest")
    from cql.executor.operators.updates.newest import NewestOperator

    return NewestOperator(site.name, node, site.workspace, numbered=site.numbered)


@operator_of.register
def _(node: RunningExec, site: Site) -> Operator:
    load_module("cql.executor.operators.flow.running")
    from cql.executor.operators.flow.running import RunningOperator

    return RunningOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: ProcessExec, site: Site) -> Operator:
    load_module("cql.executor.operators.flow.process")
    from cql.executor.operators.flow.process import ProcessOperator

    return ProcessOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: SegmentsExec, site: Site) -> Operator:
    load_module("cql.executor.operators.signals.segments_of_rows")
    from cql.executor.operators.signals.segments_of_rows import SegmentsOperator

    return SegmentsOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: RewindowExec, site: Site) -> Operator:
    load_module("cql.executor.operators.signals.rewindow")
    from cql.executor.operators.signals.rewindow import RewindowOperator

    return RewindowOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: ConcatExec, site: Site) -> Operator:
    load_module("cql.executor.operators.signals.concat")
    from cql.executor.operators.signals.concat import ConcatOperator

    return ConcatOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: FillExec, site: Site) -> Operator:
    load_module("cql.executor.operators.signals.fill")
    from cql.executor.operators.signals.fill import FillOperator

    return FillOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: ZipExec, site: Site) -> Operator:
    load_module("cql.executor.operators.signals.zip")
    from cql.executor.operators.signals.zip import ZipOperator

    return ZipOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: SamplesExec, site: Site) -> Operator:
    load_module("cql.executor.operators.signals.rows_of_segments")
    from cql.executor.operators.signals.rows_of_segments import SamplesOperator

    return SamplesOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: GapsExec, site: Site) -> Operator:
    load_module("cql.executor.operators.signals.gaps")
    from cql.executor.operators.signals.gaps import GapsOperator

    return GapsOperator(site.name, site.workspace)


@operator_of.register
def _(node: SyncExec, site: Site) -> Operator:
    load_module("cql.executor.operators.signals.sync")
    from cql.executor.operators.signals.sync import SyncOperator

    return SyncOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: LateRowsExec, site: Site) -> Operator:
    return LateRowsOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: LimitExec, site: Site) -> Operator:
    return LimitOperator(site.name, node)


@operator_of.register
def _(node: SortExec, site: Site) -> Operator:
    load_module("cql.executor.operators.order.sort")
    from cql.executor.operators.order.sort import SortOperator

    return SortOperator(site.name, node, site.workspace, numbered=site.numbered)


@operator_of.register
def _(node: KeyWindowsExec, site: Site) -> Operator:
    load_module("cql.executor.operators.windows.key_windows")
    from cql.executor.operators.windows.key_windows import KeyWindowsOperator

    return KeyWindowsOperator(site.name, node, site.workspace)


# -- joins -----------------------------------------------------------------------------------------


@operator_of.register
def _(node: OopJoinExec, site: Site) -> Operator:
    return OopJoinOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: WindowJoinExec, site: Site) -> Operator:
    load_module("cql.executor.operators.joins.in_order_join")
    from cql.executor.operators.joins.in_order_join import WindowJoinOperator

    return WindowJoinOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: AsofJoinExec, site: Site) -> Operator:
    return AsofJoinOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: TableJoinExec, site: Site) -> Operator:
    return TableJoinOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: LookupExec, site: Site) -> Operator:
    return LookupOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: UnnestExec, site: Site) -> Operator:
    return UnnestOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: RelationJoinExec, site: Site) -> Operator:
    return RelationJoinOperator(site.name, node, site.workspace)


# -- relations -------------------------------------------------------------------------------------


@operator_of.register
def _(node: RelationExec, site: Site) -> RelationOperator:
    return relation_operator(site.name, node, site.workspace, numbered=site.numbered)


@operator_of.register
def _(node: ChangeAggregateExec, site: Site) -> Operator:
    if node.method == "weights":
        return WeightsOperator(site.name, node, site.workspace, numbered=site.numbered)
    return ChangeAggregateOperator(
        site.name, node, site.workspace, site.windows(), numbered=site.numbered
    )


@operator_of.register
def _(node: SetOperationExec, site: Site) -> Operator:
    return WeightsOperator(site.name, node, site.workspace, numbered=site.numbered)


@operator_of.register
def _(node: SubqueryJoinExec, site: Site) -> Operator:
    return SubqueryJoinOperator(site.name, node, site.workspace, numbered=site.numbered)


@operator_of.register
def _(node: RowNumberExec, site: Site) -> Operator:
    if node.keeps_one_row:
        return KeyedRowsOperator(site.name, node, site.workspace, numbered=site.numbered)
    return RankingOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: TopExec, site: Site) -> Operator:
    return RankingOperator(site.name, node, site.workspace)


@operator_of.register
def _(node: StreamExec, site: Site) -> Operator:
    return stream_operator(site.name, node, site.workspace)
