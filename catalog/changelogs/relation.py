"""Streams whose rows are changes, as queries read them."""

from __future__ import annotations

from dataclasses import replace

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.catalog.changelogs import debezium
from cql.catalog.changelogs.sources import ChangelogSource, CodeDecoder, Decoder
from cql.catalog.read_relation import ReadRelation
from cql.executor.protocols import Source
from cql.planner.nodes.catalog import CHANGE, Relation, Statistics


class ChangelogRelation(ReadRelation):
    """A stream whose rows are changes."""

    __slots__ = ()

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
    def statistics(self) -> Statistics:
        return replace(self.base.statistics, nulls={})

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
