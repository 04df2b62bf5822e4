"""The logical plan: the meaning of a query, with every name and type resolved.

The plan also has nodes for clauses that this version cannot run: their queries bind, and the
planner refuses them by clause. The modules are by subject; this package names all node classes.
"""

from __future__ import annotations

from typing import TypeAlias

from cql.planner.nodes.logical.base import LogicalNode
from cql.planner.nodes.logical.derived import DerivedStream, derived_streams, is_pulled
from cql.planner.nodes.logical.joins import ASOF, Join, SetOperation, SubqueryJoin, is_inner
from cql.planner.nodes.logical.parts import (
    ANY_ORDER,
    BY_TIME,
    FIRST_ROW,
    HOLISTIC,
    KEY_WINDOW,
    NUMBERED,
    SEQUENCE,
    TIME,
    WEIGHT,
    WINDOW_COLUMNS,
    AggregateCall,
    KeyWindows,
    Partitioning,
    RefreshItem,
    SortKey,
)
from cql.planner.nodes.logical.relations import Aggregate, RelationToStream, Unsupported, Windowed
from cql.planner.nodes.logical.running import Process, Running, RunningCall
from cql.planner.nodes.logical.signals import (
    Concat,
    Fill,
    Gaps,
    Rewindow,
    Samples,
    Sync,
    Zip,
    samples_of,
)
from cql.planner.nodes.logical.sources import Scan, Values
from cql.planner.nodes.logical.steps import (
    Bucket,
    Filter,
    Limit,
    Newest,
    Number,
    Project,
    RowNumber,
    Sort,
    Union,
    Unnest,
    Watermark,
)

__all__ = [
    "ANY_ORDER",
    "ASOF",
    "BY_TIME",
    "FIRST_ROW",
    "HOLISTIC",
    "KEY_WINDOW",
    "NUMBERED",
    "SEQUENCE",
    "TIME",
    "WEIGHT",
    "WINDOW_COLUMNS",
    "Aggregate",
    "AggregateCall",
    "Bucket",
    "Concat",
    "DerivedStream",
    "Fill",
    "Filter",
    "Gaps",
    "Join",
    "KeyWindows",
    "Limit",
    "Logical",
    "LogicalNode",
    "Newest",
    "Number",
    "Partitioning",
    "Process",
    "Project",
    "RefreshItem",
    "RelationToStream",
    "Rewindow",
    "RowNumber",
    "Running",
    "RunningCall",
    "Samples",
    "Scan",
    "SetOperation",
    "Sort",
    "SortKey",
    "SubqueryJoin",
    "Sync",
    "Union",
    "Unnest",
    "Unsupported",
    "Values",
    "Watermark",
    "Windowed",
    "Zip",
    "derived_streams",
    "is_inner",
    "is_pulled",
    "samples_of",
]

#: Each class of nodes: mypy reports one that ``planner.lower.lower`` does not lower.
Logical: TypeAlias = (
    Scan
    | Values
    | Filter
    | Project
    | Union
    | Newest
    | Aggregate
    | Bucket
    | Unnest
    | Number
    | Watermark
    | Running
    | Process
    | Concat
    | Fill
    | Gaps
    | Rewindow
    | Sync
    | Zip
    | Sort
    | Limit
    | RowNumber
    | Windowed
    | Join
    | SetOperation
    | SubqueryJoin
    | RelationToStream
    | Unsupported
)
