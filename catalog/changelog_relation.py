"""Streams whose rows are changes, as queries read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.catalog import debezium
from cql.catalog.changelog import ChangelogSource, CodeDecoder, Decoder
from cql.executor.protocols import Source
from cql.planner.nodes.catalog import CHANGE, Relation, Statistics, StreamSpec


@dataclass(frozen=True, slots=True)
class ChangelogRelation:
    """A stream whose rows are changes, as queries read it. ``base`` is the stream with its rows as
    they are stored, which INSERT and pushes fill."""

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
    def schema(self) -> Schema:
        spec = self.stream
        assert spec is not None
        assert spec.changelog is not None
        codes = (spec.changelog.column or "").lower()
        fields = (f for f in self.stored if f.name.lower() != codes)
        return Schema((*fields, Field(CHANGE, BIGINT, False)))

    @property
    def stored(self) -> Schema:
        """The columns of the rows, with that of the codes."""
        return self.base.schema if self._has_codes else debezium.row_schema(self.base.schema)

    @property
    def _has_codes(self) -> bool:
        spec = self.stream
        return spec is not None and spec.changelog is not None and spec.changelog.column is not None

    @property
    def bounded(self) -> bool:
        return self.base.bounded

    @property
    def statistics(self) -> Statistics:
        return replace(self.base.statistics, nulls={})

    @property
    def unsupported(self) -> Mapping[str, str]:
        return self.base.unsupported

    def has_default(self, column: str) -> bool:
        return self.base.has_default(column)

    def default(self, column: str) -> object:
        return self.base.default(column)

    def source(self) -> Source:
        spec = self.stream
        assert spec is not None
        assert spec.changelog is not None
        not_null = frozenset(name.lower() for name in spec.changelog.not_null)
        decoder: Decoder
        if spec.changelog.column is not None:
            marks = [p.marked_by for p in spec.progress if p.marked_by is not None]
            decoder = CodeDecoder(spec.changelog.column, spec.update_key, not_null, marks)
        else:
            times = [p.column for p in spec.progress]
            stored = self.base.schema
            decoder = debezium.EnvelopeDecoder(stored, times, spec.update_key, not_null)
        return ChangelogSource(self.base.source(), decoder, self.schema, spec)


def as_changes(relation: Relation | None) -> Relation | None:
    """``relation`` as queries read it."""
    if relation is None or relation.stream is None or relation.stream.changelog is None:
        return relation
    return ChangelogRelation(relation)
