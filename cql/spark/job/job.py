"""A query as JSON text, from which another process makes the same plan.

A plan does not travel. The text of the query does, with all that decides its plan: parameters,
constants, views, settings, and of each relation the schema, the declaration and the statistics. The
process that receives the job plans the text anew, and proves by the hash of its plan that it runs
what was sent.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import exp

from cql.base.model import Schema
from cql.base.settings import Settings
from cql.base.types import Kind
from cql.dialect import parse_one
from cql.errors import CatalogError, CqlError
from cql.planner.bind.expressions.literals import from_python
from cql.planner.nodes.catalog import Relation, Statistics, StreamSpec
from cql.planner.nodes.declaration_json import (
    progress_from_json,
    progress_to_json,
    schema_from_json,
    schema_to_json,
    spec_from_json,
    spec_to_json,
    statistics_from_json,
    statistics_to_json,
    type_from_json,
    type_to_json,
)
from cql.planner.nodes.expr import Literal, Value
from cql.planner.nodes.statements import Name, NamedQuery
from cql.spark.job.functions import function_from_json, function_to_json
from cql.spark.job.version import version_hash

if TYPE_CHECKING:
    from cql.executor.protocols import Source
    from cql.functions.declare import Declared
    from cql.planner.bind.context import Context

Json: TypeAlias = dict[str, Any]
Named: TypeAlias = dict[Name, NamedQuery]


@dataclass(frozen=True, slots=True)
class TaskRelation:
    """A relation without its data: what planning asks of a catalog (``nodes.catalog.Relation``).
    ``defaults`` are the columns that an INSERT may leave out although they are never NULL."""

    name: Name
    kind: str
    schema: Schema
    stream: StreamSpec | None
    bounded: bool
    statistics: Statistics
    unsupported: Mapping[str, str]
    defaults: frozenset[str] = frozenset()
    data: Source | None = field(default=None, compare=False)

    def has_default(self, column: str) -> bool:
        return column in self.defaults

    def default(self, column: str) -> object:
        raise CatalogError(
            f"the default of column {column} is not known here",
            hint="write the value in place of DEFAULT",
        )

    def source(self) -> Source:
        if self.data is None:
            raise CatalogError(f"{'.'.join(self.name)} has no rows in this process")
        return self.data


@dataclass(frozen=True, slots=True)
class Job:
    """A query for another process.

    ``text`` is the statement at its place in the whole text, with spaces in place of all else, so
    that positions in errors hold. ``settings`` are those without their default. Of constants,
    views, streams and functions the job has those whose names occur in the texts. ``plan`` is
    ``plan_hash`` of the operators, ``version`` the ``version_hash`` of the sender."""

    text: str
    settings: Mapping[str, Any]
    parameters: Mapping[str, Literal]
    constants: Mapping[str, Literal]
    views: Mapping[Name, NamedQuery]
    streams: Mapping[Name, NamedQuery]
    functions: Mapping[str, Declared]
    relations: Mapping[Name, TaskRelation | None]
    plan: str
    version: str = field(default_factory=version_hash)

    def to_json(self) -> str:
        """Raises NotSupportedError for a function that cannot travel."""
        return json.dumps(
            {
                "version": self.version,
                "plan": self.plan,
                "text": self.text,
                "settings": dict(self.settings),
                "parameters": {n: literal_to_json(v) for n, v in self.parameters.items()},
                "constants": {n: literal_to_json(v) for n, v in self.constants.items()},
                "views": [[name, _named_to_json(q)] for name, q in self.views.items()],
                "streams": [[name, _named_to_json(q)] for name, q in self.streams.items()],
                "functions": [function_to_json(f) for f in self.functions.values()],
                "relations": [
                    [name, None if r is None else _relation_to_json(r)]
                    for name, r in self.relations.items()
                ],
            },
            allow_nan=False,
        )

    @staticmethod
    def from_json(text: str) -> Job:
        """The job that ``to_json`` wrote. Raises CqlError for a job of another version of the
        library, before it reads anything else of it."""
        data = json.loads(text)
        if data["version"] != version_hash():
            raise CqlError(
                "this process has another version of the library than the sender of the job:"
                f" {version_hash()[:12]} here, {data['version'][:12]} there",
                hint="install the same version for the executors",
            )
        return Job(
            data["text"],
            data["settings"],
            {n: literal_from_json(v) for n, v in data["parameters"].items()},
            {n: literal_from_json(v) for n, v in data["constants"].items()},
            {tuple(name): _named_from_json(q) for name, q in data["views"]},
            {tuple(name): _named_from_json(q) for name, q in data["streams"]},
            {made.name.lower(): made for made in map(function_from_json, data["functions"])},
            {
                tuple(name): None if r is None else _relation_from_json(r)
                for name, r in data["relations"]
            },
            data["plan"],
            data["version"],
        )


def job_of(text: str, context: Context, plan: str, *, inserts: bool) -> Job:
    """The job of a bound statement; see ``Job`` for ``text`` and ``plan``. ``context`` is the one
    with which the statement was bound; ``inserts``: it is an INSERT."""
    words, views, streams = _closure(text, context)
    return Job(
        text,
        changed(context.settings),
        {n: v for n, v in _literals(context.parameters) if n.lower() in words},
        {n: v for n, v in context.constants.items() if n.lower() in words},
        views,
        streams,
        {n: f for n, f in context.functions.items() if n in words},
        {n: None if r is None else _described(r, inserts) for n, r in context.relations.items()},
        plan,
    )


def _closure(text: str, context: Context) -> tuple[set[str], Named, Named]:
    """The words of the text, of the views and named streams that it mentions, and so on, and of the
    computed columns; and these views and streams."""
    words = _words(text)
    for relation in context.relations.values():
        for column in relation.stream.computed if relation and relation.stream else ():
            words |= _words(column.text)
    found: tuple[Named, Named] = {}, {}
    waiting = True
    while waiting:
        waiting = False
        for known, kept in zip((context.views, context.streams), found, strict=True):
            for name, query in known.items():
                if name not in kept and name[-1].lower() in words:
                    kept[name], waiting = query, True
                    words |= _words(query.text)
    return words, *found


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def in_place(source: str, start: int, end: int) -> str:
    """The statement ``source[start:end]``, with spaces in place of all in front of it."""
    return re.sub(r"[^\n]", " ", source[:start]) + source[start:end]


def _described(relation: Relation, inserts: bool) -> TaskRelation:
    """``relation`` without its data. Only an INSERT asks for defaults, which take Spark long."""
    schema = relation.schema
    defaults = [f.name for f in schema if inserts and relation.has_default(f.name)]
    return TaskRelation(
        relation.name,
        relation.kind,
        schema,
        relation.stream,
        relation.bounded,
        relation.statistics,
        dict(relation.unsupported),
        frozenset(defaults),
    )


def changed(settings: Settings) -> dict[str, Any]:
    """The settings that do not have their default."""
    defaults = Settings()
    return {n: settings[n] for n in settings if settings[n] != defaults[n]}


def _literals(parameters: Mapping[str, Any]) -> Iterator[tuple[str, Literal]]:
    """The parameters that have a value in SQL; the statement does not use the others."""
    for name, value in parameters.items():
        try:
            yield name, from_python(value, name, None)
        except CqlError:
            continue


def literal_to_json(literal: Literal) -> Json:
    value: Any = literal.value
    if isinstance(value, float):
        value = value.hex()
    elif isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    return {"type": type_to_json(literal.type), "value": value}


def literal_from_json(data: Mapping[str, Any]) -> Literal:
    type_ = type_from_json(data["type"])
    value: Value = data["value"]
    if isinstance(value, str) and type_.is_fraction:
        value = float.fromhex(value)
    elif isinstance(value, str) and type_.kind is not Kind.STRING:
        value = base64.b64decode(value)
    return Literal(value, type_)


def _named_to_json(query: NamedQuery) -> Json:
    progress = query.progress
    return {
        "kind": query.kind,
        "text": query.text,
        "columns": query.columns,
        "progress": None if progress is None else progress_to_json(progress),
        **({} if query.updates is None else {"updates": spec_to_json(query.updates)}),
    }


def _named_from_json(data: Mapping[str, Any]) -> NamedQuery:
    text, progress = data["text"], data["progress"]
    tree: exp.Expr = parse_one(text)
    return NamedQuery(
        data["kind"],
        tree,
        text,
        tuple(data["columns"]),
        None if progress is None else progress_from_json(progress),
        spec_from_json(data["updates"]) if "updates" in data else None,
    )


def _relation_to_json(relation: TaskRelation) -> Json:
    stream = relation.stream
    return {
        "name": relation.name,
        "kind": relation.kind,
        "schema": schema_to_json(relation.schema),
        "stream": None if stream is None else spec_to_json(stream),
        "bounded": relation.bounded,
        "statistics": statistics_to_json(relation.statistics),
        "unsupported": dict(relation.unsupported),
        "defaults": sorted(relation.defaults),
    }


def _relation_from_json(data: Mapping[str, Any]) -> TaskRelation:
    return TaskRelation(
        tuple(data["name"]),
        data["kind"],
        schema_from_json(data["schema"]),
        None if data["stream"] is None else spec_from_json(data["stream"]),
        data["bounded"],
        statistics_from_json(data["statistics"]),
        data["unsupported"],
        frozenset(data["defaults"]),
    )
