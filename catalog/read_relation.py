"""Streams that queries read otherwise than they are stored: as changes, or as samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cql.base.model import Schema
from cql.executor.protocols import Source
from cql.planner.nodes.catalog import Relation, Statistics, StreamSpec


@dataclass(frozen=True, slots=True)
class ReadRelation(ABC):
    """A stream as queries read it. ``base`` is the stream with its rows as they are stored, which
    INSERT and pushes fill."""

    base: Relation

    @property
    def name(self) -> tuple[str, ...]:
        return self.base.name

    @property
    def kind(self) -> str:
        return self.base.kind

    @property
    def stream(self) -> StreamSpec | None:
        return self.base.stream

    @property
    @abstractmethod
    def schema(self) -> Schema: ...

    @property
    @abstractmethod
    def stored(self) -> Schema:
        """The columns of the rows as INSERT fills them."""

    @property
    def bounded(self) -> bool:
        return self.base.bounded

    @property
    @abstractmethod
    def statistics(self) -> Statistics: ...

    @property
    def unsupported(self) -> Mapping[str, str]:
        return self.base.unsupported

    def has_default(self, column: str) -> bool:
        return self.base.has_default(column)

    def default(self, column: str) -> object:
        return self.base.default(column)

    @abstractmethod
    def source(self) -> Source: ...


class SourceOver:
    """A source that makes its rows of those of ``_inner``."""

    _inner: Source

    @property
    def bounded(self) -> bool:
        return self._inner.bounded

    def __getattr__(self, name: str) -> Any:
        """The optional attributes of a source: lag, paced, replayable, version."""
        if name in ("lag", "paced", "replayable", "version", "rereadable"):
            return getattr(self._inner, name)
        raise AttributeError(name)
