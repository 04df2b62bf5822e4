"""Physical plans as JSON: a plan prints, and another process reads it.

The text is a list of records, each a node or an expression with its fields; fields with their
default are left out. A record refers to earlier records by their number, so that what a plan shares
stays shared. A source is the name of its relation with the relation's declaration and statistics; a
user's function is its name with the hash of its content. The reader gets both from its own catalog
and functions, and refuses a declaration or content that differs.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Protocol, TypeAlias

from cql.base.call_timeout import Limit
from cql.base.model import Field, Schema
from cql.base.recursion import deep_stack
from cql.base.types import DataType
from cql.base.window import Window, WindowKind, WindowOperator
from cql.errors import PlanError, Position
from cql.planner.functions.user.aggregates import UserAggregate
from cql.planner.functions.user.content_hash import content_hash
from cql.planner.nodes.catalog import Queue, Relation
from cql.planner.nodes.declaration_json import (
    schema_to_json,
    spec_from_json,
    spec_to_json,
    statistics_to_json,
    type_from_json,
    type_to_json,
)
from cql.planner.nodes.expr import Call, Case, Cast, Expr
from cql.planner.nodes.logical import (
    AggregateCall,
    KeyWindows,
    Partitioning,
    RefreshItem,
    RunningCall,
    SortKey,
)
from cql.planner.nodes.physical import (
    Awaited,
    BandExec,
    Distance,
    Flush,
    FlushPolicy,
    JoinOperator,
    Physical,
    PhysicalNode,
    SharedPanesExec,
    SignalInput,
    UpdateQueue,
    UpdateWindows,
)
from cql.planner.nodes.plan_walk import Function, PlanWalk, Scalar
from cql.planner.nodes.relation_over import Watermarked
from cql.planner.nodes.rewrite import arguments

#: A value of JSON.
Json: TypeAlias = Any
#: The version of the form.
FORMAT = 1

#: The classes of records with numbers: nodes and those expressions that have parts.
_NUMBERED = (PhysicalNode, Call, Case, Cast, AggregateCall)
_PARTS = (
    *(Awaited, BandExec, Distance, Flush, KeyWindows, Partitioning, SortKey, Window),
    *(RefreshItem, RunningCall, SignalInput, UpdateQueue, UpdateWindows),
)
_RECORDS: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *typing.get_args(Physical),
        SharedPanesExec,
        *typing.get_args(Expr),
        AggregateCall,
        *_PARTS,
        Field,
        Schema,
        Position,
    )
}
_ENUMS: Mapping[str, type[Enum]] = {
    kind.__name__: kind for kind in (FlushPolicy, JoinOperator, Queue, WindowKind, WindowOperator)
}


class Finds(Protocol):
    """Finds a relation by its name; a catalog does."""

    def find(self, name: tuple[str, ...]) -> Relation | None: ...


@deep_stack()
def to_json(plan: Physical) -> str:
    """The operators of a plan as JSON, one record per line."""
    writer = _Writer()
    root = writer.of(plan)
    records = ",\n".join(json.dumps(record) for record in writer.records)
    return f'{{"format": {FORMAT}, "root": {json.dumps(root)}, "records": [\n{records}\n]}}\n'


@deep_stack()
def from_json(text: str, relations: Finds, functions: Mapping[str, Function]) -> Physical:
    """The plan that ``to_json`` wrote, over ``relations`` and with ``functions``, by names in lower
    case.

    Raises PlanError for a relation or function that is missing or differs, and for any other text
    than that of a plan in this form; CatalogError for a damaged table."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise PlanError(
                f"the plan has format {data['format']}, and this version reads {FORMAT}"
            )
        reader = _Reader(relations, functions)
        for record in data["records"]:
            reader.add(record)
        root = reader.value(data["root"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise PlanError(f"the text is no plan: {type(error).__name__} {error}") from error
    if not isinstance(root, PhysicalNode):
        raise PlanError("the text is no plan: its root is no operator")
    return typing.cast(Physical, root)


class _Writer(PlanWalk[Json]):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Json] = []

    def fields(self, kind: type) -> Sequence[str]:
        return () if kind is DataType else arguments(kind)

    def scalar(self, value: Scalar) -> Json:
        match value:
            case Enum():
                return {"enum": [type(value).__name__, value.name]}
            case float():
                return {"float": value.hex()}
            case bytes():
                return {"bytes": value.hex()}
            case bool() | int() | str() | None:
                return value

    def items(self, value: tuple[Any, ...] | frozenset[Any], parts: Sequence[Json]) -> Json:
        return list(parts) if isinstance(value, tuple) else {"set": list(parts)}

    def function(self, value: Function) -> Json:
        limit = _limit_of(value)
        written = {"function": value.name, "hash": content_hash(value)}
        return written if limit is None else {**written, "limit": dataclasses.astuple(limit)}

    def relation(self, value: Relation) -> Json:
        if isinstance(value, Watermarked):
            return {**self.relation(value.base), "declares": spec_to_json(value.spec)}
        statistics = statistics_to_json(value.statistics)
        return {"relation": list(value.name), **_declaration(value), "statistics": statistics}

    def record(self, value: Any, parts: Sequence[tuple[str, Json]]) -> Json:
        if isinstance(value, DataType):
            return {"type": type_to_json(value)}
        kind: type = type(value)
        defaults = _defaults(kind)
        shown = {
            name: made
            for name, made in parts
            if name not in defaults or not _same(getattr(value, name), defaults[name])
        }
        written = {"is": kind.__name__, **shown}
        if not isinstance(value, _NUMBERED):
            return written
        self.records.append(written)
        return {"at": len(self.records) - 1}


class _Reader:
    def __init__(self, relations: Finds, functions: Mapping[str, Function]) -> None:
        self._relations = relations
        self._functions = functions
        self._records: list[Any] = []

    def add(self, record: Json) -> None:
        """Reads the next record, which may refer to the records before it."""
        self._records.append(self.value(record))

    def value(self, data: Json) -> Any:
        match data:
            case list():
                return tuple([self.value(part) for part in data])
            case {"is": name}:
                read = {key: self.value(part) for key, part in data.items() if key != "is"}
                return _RECORDS[name](**read)
            case {"at": int() as number} if 0 <= number < len(self._records):
                return self._records[number]
            case {"type": described}:
                return type_from_json(described)
            case {"enum": [kind, name]}:
                return _ENUMS[kind][name]
            case {"float": digits}:
                return float.fromhex(digits)
            case {"bytes": digits}:
                return bytes.fromhex(digits)
            case {"set": parts}:
                return frozenset(self.value(part) for part in parts)
            case {"relation": name}:
                return self._relation(tuple(name), data)
            case {"function": name}:
                return self._function(name, data)
            case bool() | int() | str() | None:
                return data
            case _:
                raise ValueError(f"unknown value {data!r}")

    def _relation(self, name: tuple[str, ...], data: Mapping[str, Json]) -> Relation:
        found, shown = self._relations.find(name), ".".join(name)
        if found is None:
            raise PlanError(f"the plan reads {shown}, and there is no such relation here")
        here = json.loads(json.dumps(_declaration(found)))
        for part, declared in here.items():
            if data[part] != declared:
                raise PlanError(
                    f"the plan reads {shown}, and its {part} is another one here",
                    hint="plan the query anew",
                )
        return Watermarked(found, spec_from_json(data["declares"])) if "declares" in data else found

    def _function(self, name: str, data: Mapping[str, Json]) -> Function:
        found = self._functions.get(name.lower())
        if found is None:
            raise PlanError(f"the plan calls {name}, and there is no such function here")
        if content_hash(found) != data["hash"]:
            raise PlanError(
                f"the plan calls {name}, and the function of that name is another one here",
                hint="plan the query anew",
            )
        return found.within(Limit(*data["limit"])) if "limit" in data else found


def _limit_of(function: Function) -> Limit | None:
    return function.update.limit if isinstance(function, UserAggregate) else function.limit


def _declaration(relation: Relation) -> dict[str, Json]:
    return {
        "bounded": relation.bounded,
        "schema": schema_to_json(relation.schema),
        "stream": None if relation.stream is None else spec_to_json(relation.stream),
    }


@cache
def _defaults(kind: type) -> Mapping[str, object]:
    return {
        f.name: f.default
        for f in dataclasses.fields(kind)
        if f.init and f.default is not dataclasses.MISSING
    }


def _same(value: object, default: object) -> bool:
    """Whether ``value`` may be left out. Equal values of other types count as different."""
    if value is default:
        return True
    return type(value) is type(default) and isinstance(value, bool | int | str) and value == default
