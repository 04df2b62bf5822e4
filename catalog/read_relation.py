"""Streams that queries read otherwise than they are stored: as changes, or as samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from cql.base.model import Schema
from cql.executor.protocols import Source
from cql.planner.nodes.catalog import Statistics
from cql.planner.nodes.relation_over import RelationOver


class ReadRelation(RelationOver, ABC):
    """A stream as queries read it. ``base`` is the stream with its rows as they are stored, which
    INSERT and pushes fill."""

    __slots__ = ()

    @property
    @abstractmethod
    def schema(self) -> Schema: ...

    @property
    @abstractmethod
    def stored(self) -> Schema:
        """The columns of the rows as INSERT fills them."""

    @property
    @abstractmethod
    def statistics(self) -> Statistics: ...

    @abstractmethod
    def source(self) -> Source: ...


#: What a source may have beyond the protocol (``executor.protocols``).
_OPTIONAL = frozenset(("lag", "paced", "replayable", "rereadable", "version"))


class SourceOver:
    """A source that makes its rows of those of ``_inner``, and has its optional attributes."""

    _inner: Source

    @property
    def bounded(self) -> bool:
        return self._inner.bounded

    def __getattr__(self, name: str) -> Any:
        if name in _OPTIONAL:
            return getattr(self._inner, name)
        raise AttributeError(name)
