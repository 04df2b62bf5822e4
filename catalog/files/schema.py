"""One schema for several files: the columns of all files, in types that hold all their values.

Files differ: a file may have no values in a column, a narrower type, or be older than the column. A
column that a file lacks is NULL in its rows. Types without a common type are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cql.base.model import Field
from cql.base.types import NULL, STRING, DataType
from cql.catalog.convert import CONVERT, article, common, find_name, read_schema
from cql.errors import CatalogError


@dataclass(slots=True)
class Merged:
    """``origin`` is the file that gave a column its type; ``unsupported`` are the columns that no
    query can use, with the reason."""

    fields: list[Field] = field(default_factory=list)
    unsupported: dict[str, str] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)


def merged(files: Iterable[tuple[str, pa.Schema]], what: str, *, text: bool) -> Merged:
    """The columns of the files (path and schema), in the order in which they first appear. A column
    without a value in any file is STRING in ``text`` formats. Raises CatalogError, which names the
    column and both files, for types that have no common type."""
    into = Merged()
    for number, (path, arrow) in enumerate(files):
        own, unsupported = read_schema(arrow, f"file {path}")
        for name, reason in unsupported.items():
            _leave_out(into, name, reason, path, what, text)
        places = {}
        for column in own:
            known = [f.name for f in into.fields]
            there = find_name(column.name, known, own.names, f"{what}, file {path}")
            if there is not None:
                places[there] = _join(into, known.index(there), column, path, what, text)
            elif column.name in into.unsupported:
                if column.type != NULL:
                    reason = into.unsupported[column.name]
                    raise _type_conflict(what, column, path, into.origin[column.name], reason, text)
            else:
                into.fields.append(replace(column, nullable=column.nullable or number > 0))
                places[column.name] = column
                into.origin[column.name] = path
        for index, old in enumerate(into.fields):
            if old.name not in places:
                into.fields[index] = replace(old, nullable=True)
    if text:
        into.fields = [replace(f, type=STRING) if f.type == NULL else f for f in into.fields]
    return into


def _join(into: Merged, index: int, column: Field, path: str, what: str, text: bool) -> Field:
    old = into.fields[index]
    kind = common(old.type, column.type, text=text)
    if kind is None:
        found = f"holds it as {old.type}"
        raise _type_conflict(what, column, path, into.origin[old.name], found, text)
    if kind != old.type:
        into.origin[old.name] = path
    made = replace(old, type=kind, nullable=old.nullable or column.nullable)
    into.fields[index] = made
    return made


def _leave_out(into: Merged, name: str, reason: str, path: str, what: str, text: bool) -> None:
    for index, old in enumerate(into.fields):
        if old.name.lower() == name.lower():
            if old.type != NULL:
                raise _type_conflict(what, old, into.origin[old.name], path, reason, text)
            del into.fields[index]
            break
    into.unsupported.setdefault(name, reason)
    into.origin.setdefault(name, path)


def _type_conflict(
    what: str, column: Field, path: str, other: str, found: str, text: bool
) -> CatalogError:
    remedy = (
        "declare its type, CREATE STREAM s (column TYPE, ...)" if text else "convert one of them"
    )
    return CatalogError(
        f"{what}: column {column.name} is {article(column.type)} in file {path}, and file {other} "
        f"does not fit it: {found}",
        hint=f"{remedy}, or make two streams of the files",
    )


def drifted(where: str, wanted: Field, found: str | DataType, origin: str | None) -> CatalogError:
    """The error for a file that is opened later and does not fit the stream's schema."""
    of = f"as in file {origin}" if origin is not None else "as declared"
    what = f"it holds it as {found}" if isinstance(found, DataType) else found
    if origin is not None:
        remedy = "the schema changed: convert the file, or declare the columns anew"
    elif isinstance(found, DataType):
        remedy = f"declare {wanted.name} {found}, and CAST it in the query"
    else:
        remedy = CONVERT
    return CatalogError(
        f"{where} does not fit column {wanted.name} {wanted.type} {of}: {what}",
        hint=remedy,
    )


def spread(paths: Sequence[str], most: int) -> Sequence[str]:
    """At most ``most`` of the paths, at even distances, the first and the last among them."""
    if len(paths) <= most:
        return paths
    return [paths[i * (len(paths) - 1) // (most - 1)] for i in range(most)]
