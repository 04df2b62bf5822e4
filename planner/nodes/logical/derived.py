"""A stream whose rows are the results of a query that runs by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cql.base.model import Schema
from cql.planner.nodes.catalog import Relation, Statistics, StreamSpec
from cql.planner.nodes.logical.sources import Scan

if TYPE_CHECKING:
    from cql.executor.protocols import Source
    from cql.planner.nodes.logical import Logical


@dataclass(frozen=True, slots=True)
class DerivedStream:
    """CREATE STREAM … UPDATE KEY … AS ``query``, as a relation: an update queue lies between the
    query and each query that reads the stream (UpStream report, figure 3). The punctuation of the
    query alone raises the watermarks of ``stream``."""

    name: tuple[str, ...]
    query: Logical
    stream: StreamSpec
    bounded: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounded", self.query.is_bounded)

    @property
    def kind(self) -> str:
        return "stream"

    @property
    def schema(self) -> Schema:
        return self.query.schema

    @property
    def statistics(self) -> Statistics:
        return Statistics()

    @property
    def unsupported(self) -> Mapping[str, str]:
        return {}

    def has_default(self, column: str) -> bool:
        del column
        return False

    def default(self, column: str) -> object:
        del column
        return None

    def source(self) -> Source:
        raise AssertionError("the run of the reader runs the query (SourceExec.query)")


def scanned(node: Logical) -> tuple[Relation, ...]:
    """The relations that ``node`` reads."""
    if isinstance(node, Scan):
        return (node.relation,)
    return tuple(found for child in node.inputs for found in scanned(child))


def is_pulled(relation: Relation) -> bool:
    """Whether a query reads the relation as fast as it takes its rows: none waits in a queue."""
    if isinstance(relation, DerivedStream):
        return all(map(is_pulled, scanned(relation.query)))
    return relation.bounded and not getattr(relation.source(), "paced", False)


def derived_streams(node: Logical) -> tuple[Scan, ...]:
    """The scans in ``node`` that read streams of queries that run by themselves."""
    if isinstance(node, Scan):
        return (node,) if isinstance(node.relation, DerivedStream) else ()
    return tuple(found for child in node.inputs for found in derived_streams(child))
