"""The physical plan: operators as plain immutable data, with the reason for each choice.

``cql.executor.graph.build`` turns nodes into running operators; ``cql.planner.explain`` prints
nodes. The modules are by subject; this package names all node classes.
"""

from __future__ import annotations

from typing import TypeAlias

from cql.planner.nodes.physical.base import PhysicalNode
from cql.planner.nodes.physical.columns import forwarded_columns
from cql.planner.nodes.physical.in_order_join import (
    RESULT_TIME,
    Distance,
    JoinOperator,
    WindowJoinExec,
)
from cql.planner.nodes.physical.joins import (
    AsofJoinExec,
    BandExec,
    LookupExec,
    OopJoinExec,
    TableJoinExec,
)
from cql.planner.nodes.physical.late import (
    DupelimExec,
    LateRowsExec,
    NewestExec,
    OnTimeExec,
    SlackExec,
)
from cql.planner.nodes.physical.order import MergeUnionExec, PunctuatedSortExec, SortExec, UnionExec
from cql.planner.nodes.physical.plan import PhysicalPlan, QuerySetPlan, RuntimeChoice
from cql.planner.nodes.physical.relations import (
    ArrivalExec,
    ChangeAggregateExec,
    RelationExec,
    RelationJoinExec,
    RowNumberExec,
    SetOperationExec,
    StreamExec,
    SubqueryJoinExec,
    TopExec,
    change_fields,
)
from cql.planner.nodes.physical.running import ProcessExec, RunningExec
from cql.planner.nodes.physical.signals import (
    ConcatExec,
    FillExec,
    GapsExec,
    RewindowExec,
    SamplesExec,
    SegmentsExec,
    SyncExec,
    ZipExec,
)
from cql.planner.nodes.physical.sources import (
    Awaited,
    SignalInput,
    SourceExec,
    UpdateQueue,
    UpdateWindows,
    ValuesExec,
)
from cql.planner.nodes.physical.steps import (
    BucketExec,
    FilterExec,
    LimitExec,
    NumberExec,
    ProjectExec,
    UnnestExec,
)
from cql.planner.nodes.physical.walk import (
    goes_by_arrival,
    late_rows,
    live,
    queries,
    read_ahead,
    relations,
    sources,
    waits,
    walk,
    windowed,
    with_queries,
)
from cql.planner.nodes.physical.windows import (
    QUERY,
    Flush,
    FlushPolicy,
    KeyWindowsExec,
    SharedPanesExec,
    WidAggregateExec,
)

__all__ = [
    "QUERY",
    "RESULT_TIME",
    "ArrivalExec",
    "AsofJoinExec",
    "Awaited",
    "BandExec",
    "BucketExec",
    "ChangeAggregateExec",
    "ConcatExec",
    "Distance",
    "DupelimExec",
    "FillExec",
    "FilterExec",
    "Flush",
    "FlushPolicy",
    "GapsExec",
    "JoinOperator",
    "KeyWindowsExec",
    "LateRowsExec",
    "LimitExec",
    "LookupExec",
    "MergeUnionExec",
    "NewestExec",
    "NumberExec",
    "OnTimeExec",
    "OopJoinExec",
    "Physical",
    "PhysicalNode",
    "PhysicalPlan",
    "ProcessExec",
    "ProjectExec",
    "PunctuatedSortExec",
    "QuerySetPlan",
    "RelationExec",
    "RelationJoinExec",
    "RewindowExec",
    "RowNumberExec",
    "RunningExec",
    "RuntimeChoice",
    "SamplesExec",
    "SegmentsExec",
    "SetOperationExec",
    "SharedPanesExec",
    "SignalInput",
    "SlackExec",
    "SortExec",
    "SourceExec",
    "StreamExec",
    "SubqueryJoinExec",
    "SyncExec",
    "TableJoinExec",
    "TopExec",
    "UnionExec",
    "UnnestExec",
    "UpdateQueue",
    "UpdateWindows",
    "ValuesExec",
    "WidAggregateExec",
    "WindowJoinExec",
    "ZipExec",
    "change_fields",
    "forwarded_columns",
    "goes_by_arrival",
    "late_rows",
    "live",
    "queries",
    "read_ahead",
    "relations",
    "sources",
    "waits",
    "walk",
    "windowed",
    "with_queries",
]

#: Each class of operators: a test reports one that ``executor.graph`` makes no operator of.
Physical: TypeAlias = (
    SourceExec
    | ValuesExec
    | FilterExec
    | ProjectExec
    | BucketExec
    | UnionExec
    | MergeUnionExec
    | PunctuatedSortExec
    | LimitExec
    | SlackExec
    | WidAggregateExec
    | SortExec
    | NumberExec
    | RunningExec
    | ProcessExec
    | ConcatExec
    | FillExec
    | GapsExec
    | SegmentsExec
    | RewindowExec
    | SamplesExec
    | SyncExec
    | ZipExec
    | KeyWindowsExec
    | LateRowsExec
    | OnTimeExec
    | DupelimExec
    | NewestExec
    | ArrivalExec
    | RelationExec
    | SubqueryJoinExec
    | LookupExec
    | OopJoinExec
    | TableJoinExec
    | UnnestExec
    | RelationJoinExec
    | AsofJoinExec
    | WindowJoinExec
    | ChangeAggregateExec
    | SetOperationExec
    | TopExec
    | RowNumberExec
    | StreamExec
)
