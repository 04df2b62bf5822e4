"""Schemas: the columns of a stream or a relation, and the punctuations of an iterable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cql.base.types import DataType, list_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Field:
    """A column. ``nullable`` False guarantees that the column holds no NULL.

    ``of`` is the query's name for the column's relation, for display."""

    name: str
    type: DataType
    nullable: bool = True
    comment: str | None = None
    of: str = field(default="", compare=False, repr=False)

    def of_relation(self, name: str) -> Field:
        """This column, of the relation that the query calls ``name``."""
        return Field(self.name, self.type, self.nullable, self.comment, name)

    def __str__(self) -> str:
        return f"{self.name} {self.type}" + ("" if self.nullable else " not null")


@dataclass(frozen=True, slots=True)
class Schema:
    """An ordered list of columns; names are matched without regard to case, as in Spark."""

    fields: tuple[Field, ...]

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Field:
        return self.fields[index]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def part(self, columns: Iterable[int], of: str) -> Schema:
        """The columns at these indices, of the relation that the query calls ``of``."""
        return Schema(tuple([self.fields[c].of_relation(of) for c in columns]))

    def padded(self, pads: bool) -> Schema:
        """The columns of an outer join's side; with ``pads``, each is nullable (a row without a
        partner)."""
        if not pads or all(f.nullable for f in self.fields):
            return self
        return Schema(tuple([replace(f, nullable=True) for f in self.fields]))

    def find(self, name: str) -> int | None:
        """Index of the column called ``name`` (an exact match wins), None if there is none."""
        for index, f in enumerate(self.fields):
            if f.name == name:
                return index
        folded = name.lower()
        return next((k for k, f in enumerate(self.fields) if f.name.lower() == folded), None)

    def to_arrow(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(f.name, f.type.to_arrow(), f.nullable) for f in self.fields])


def of_table(schema: Schema) -> Schema:
    """The columns of a table with rows of ``schema``: lists for segments of signals."""
    return Schema(tuple([replace(f, type=list_of(f.type)) for f in schema]))


def is_channel(kind: DataType) -> bool:
    """Whether a column of this type has several samples of a signal in a row."""
    return kind.element is not None and (kind.element.is_numeric or kind.element.is_sample)


def of_samples(schema: Schema) -> Schema:
    """The columns of the samples in rows of ``schema``: elements for channels that are arrays."""
    return Schema(tuple([_of_samples(f) for f in schema]))


def _of_samples(field: Field) -> Field:
    element = field.type.element
    if element is None or not is_channel(field.type):
        return field
    return replace(field, type=element, nullable=field.nullable or field.type.contains_null)


NO_COLUMNS = Schema(())


@dataclass(frozen=True, slots=True)
class Punctuation:
    """A punctuation that an iterable may give between its rows.

    No later row has a ``column`` below ``value`` (out-of-order paper §3.2). ``value`` has the
    column's type."""

    column: str
    value: Any
