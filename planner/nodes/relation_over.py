"""Relations that are another relation but for some of its properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cql.base.model import Schema
from cql.planner.nodes.catalog import Relation, Statistics, StreamSpec

if TYPE_CHECKING:
    from cql.executor.protocols import Source


@dataclass(frozen=True, slots=True)
class RelationOver:
    """A relation over ``base``, which it is but for what a subclass says."""

    base: Relation

    @property
    def name(self) -> tuple[str, ...]:
        return self.base.name

    @property
    def kind(self) -> str:
        return self.base.kind

    @property
    def schema(self) -> Schema:
        return self.base.schema

    @property
    def stream(self) -> StreamSpec | None:
        return self.base.stream

    @property
    def bounded(self) -> bool:
        return self.base.bounded

    @property
    def statistics(self) -> Statistics:
        return self.base.statistics

    @property
    def unsupported(self) -> Mapping[str, str]:
        return self.base.unsupported

    def has_default(self, column: str) -> bool:
        return self.base.has_default(column)

    def default(self, column: str) -> object:
        return self.base.default(column)

    def source(self) -> Source:
        return self.base.source()


@dataclass(frozen=True, slots=True)
class Watermarked(RelationOver):
    """A relation for which the query declares progress (``WATERMARK ts DELAY OF …``)."""

    spec: StreamSpec = field(default_factory=StreamSpec)

    @property
    def kind(self) -> str:
        return "stream"

    @property
    def stream(self) -> StreamSpec:
        return self.spec
