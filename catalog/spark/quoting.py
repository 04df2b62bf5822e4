"""The only way to Spark's SQL parser: fixed statements, with names and values quoted here.

All other requests are typed calls, which have no text to break out of. SQL text can act beyond its
statement in two ways: by closing a quote, and by Spark's own ``${env:…}``, ``${spark.…}``
substitution, which works inside quotes too and would write an environment variable into the
catalog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from pyspark.sql import SparkSession

from cql.catalog.spark.session import spark_call
from cql.errors import CatalogError


class Template(Enum):
    """Every statement that the engine can send as text. A new one needs a change of this list."""

    ADD_PARTITIONS = "ALTER TABLE {table} ADD IF NOT EXISTS {partitions}"
    #: The newest row of each key in a log of changes, unless the key was deleted.
    CREATE_LOG_VIEW = (
        "CREATE VIEW {view} TBLPROPERTIES ({properties}) AS SELECT {columns} FROM (SELECT *,"
        " row_number() OVER (PARTITION BY {key} ORDER BY {sequence} DESC) AS {place} FROM {log})"
        " WHERE {place} = 1 AND NOT {deleted}"
    )


Specification = Mapping[str, str | None]


class Columns(tuple[str, ...]):
    """A list of columns."""


class Properties(dict[str, str]):
    """A list of table properties."""


Value = Sequence[str] | Sequence[Specification] | Columns | Properties


def run(session: SparkSession, template: Template, **parts: Value) -> None:
    """Sends one of the fixed statements.

    A part is a table's name or a list of columns (their parts are quoted as identifiers), or a list
    of partitions or properties, whose values are quoted as literals (None is NULL).
    """
    if not isinstance(template, Template):
        raise CatalogError("only the fixed statements of quoting may be sent to Spark")
    texts = {key: _rendered(value) for key, value in parts.items()}
    statement = template.value.format_map(texts)
    doing = template.name.lower().replace("_", " ")
    with spark_call(session, doing):
        escaped = session.conf.get("spark.sql.parser.escapedStringLiterals", "false")
        if escaped == "true" and "\\" in statement:
            raise CatalogError(
                f"{doing}: a value has a quote, a backslash or a dollar sign, which cannot be "
                "written while spark.sql.parser.escapedStringLiterals is on",
                hint="set spark.sql.parser.escapedStringLiterals to false",
            )
        session.sql(statement)


def name_parts(name: str | Sequence[str]) -> tuple[str, ...]:
    """The one to three parts of a table's name.

    In a string, dots separate the parts and backticks keep a dot inside a part (a doubled backtick
    stands for one); any other character belongs to the name. A sequence is taken as it is.
    """
    parts = tuple(_split(name)) if isinstance(name, str) else tuple(name)
    if not 1 <= len(parts) <= 3:
        raise CatalogError(
            f"{'.'.join(parts)!r} has {len(parts)} parts",
            hint="a table's name is table, database.table or catalog.database.table",
        )
    for part in parts:
        _check(part)
    return parts


def quoted(name: str | Sequence[str]) -> str:
    """``name`` as Spark writes it safely: every part in backticks."""
    return ".".join(identifier(part) for part in name_parts(name))


def identifier(name: str) -> str:
    """One name in backticks, embedded backticks doubled."""
    _check(name)
    return "`" + name.replace("`", "``") + "`"


def literal(value: str | None) -> str:
    """A string literal: quotes, backslashes, control characters and ``$`` are escaped."""
    if value is None:
        return "NULL"
    if "\0" in value:
        raise CatalogError("a value has a NUL character, which Spark cannot store")
    return "'" + "".join(_escaped(char) for char in value) + "'"


def _rendered(value: Value) -> str:
    if isinstance(value, Columns):
        return ", ".join(_plain(identifier(column)) for column in value)
    if isinstance(value, Properties):
        return ", ".join(f"{literal(k)} = {literal(v)}" for k, v in value.items())
    specs = [item for item in value if not isinstance(item, str)]
    if not specs:
        return _plain(quoted([item for item in value if isinstance(item, str)]))
    return " ".join(f"PARTITION ({_assignments(spec)})" for spec in specs)


def _assignments(spec: Specification) -> str:
    if not spec:
        raise CatalogError("a partition needs at least one column")
    return ", ".join(f"{_plain(identifier(k))} = {literal(v)}" for k, v in spec.items())


def _escaped(char: str) -> str:
    if char in "'\\\"":
        return "\\" + char
    if char == "$" or ord(char) < 32 or ord(char) == 127:
        return f"\\u{ord(char):04x}"
    return char


def _plain(text: str) -> str:
    # Inside backticks nothing can be escaped, and Spark substitutes there as well.
    if "${" in text:
        raise CatalogError(
            f"the name {text} has ${{ in it, which Spark would replace", hint="rename it"
        )
    return text


def _check(part: str) -> None:
    if not part:
        raise CatalogError(
            "a name is empty", hint="give every part of the name at least one letter"
        )
    if any(ord(char) < 32 or ord(char) == 127 for char in part):
        raise CatalogError(f"the name {part!r} has a control character", hint="rename it")


def _split(name: str) -> list[str]:
    parts: list[str] = []
    rest = name
    while True:
        if rest.startswith("`"):
            part, rest = _backticked(rest, name)
        else:
            part, dot, after = rest.partition(".")
            rest = dot + after
        parts.append(part)
        if not rest:
            return parts
        if not rest.startswith("."):
            raise CatalogError(
                f"the name {name!r} goes on after its closing backtick",
                hint="double a backtick that belongs to the name",
            )
        rest = rest[1:]


def _backticked(rest: str, name: str) -> tuple[str, str]:
    part = ""
    at = 1
    while True:
        end = rest.find("`", at)
        if end < 0:
            raise CatalogError(
                f"the name {name!r} opens a backtick and never closes it",
                hint="double a backtick that belongs to the name",
            )
        part += rest[at:end]
        if not rest.startswith("``", end):
            return part, rest[end + 1 :]
        part += "`"
        at = end + 2
