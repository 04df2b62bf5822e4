"""Declarations of streams and tables as JSON data, for other processes: properties of Spark tables,
and jobs of Spark tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cql.base.model import Field, Schema
from cql.base.types import DataType, Kind, decimal
from cql.planner.nodes.catalog import (
    Changelog,
    Computed,
    Heartbeat,
    Progress,
    Queue,
    Refresh,
    Statistics,
    StreamSpec,
    TimeUnit,
)


def spec_to_json(spec: StreamSpec) -> dict[str, Any]:
    computed = spec.computed_progress
    return {
        "progress": [progress_to_json(p) for p in spec.progress],
        "update_key": spec.update_key,
        "queue": None if spec.queue is None else spec.queue.value,
        "lazy_windows": spec.lazy_windows,
        "staleness": spec.staleness,
        "refresh": [dataclasses.asdict(item) for item in spec.refresh],
        "rate_hz": spec.rate_hz,
        "tolerance": spec.tolerance,
        "keep_bad_rows": spec.keep_bad_rows,
        "idle_after": spec.idle_after,
        "heartbeat": dataclasses.asdict(spec.heartbeat) if spec.heartbeat else None,
        "deferred": spec.deferred,
        "by": spec.by,
        "computed": [dataclasses.asdict(c) for c in spec.computed],
        "computed_progress": None if computed is None else progress_to_json(computed),
        "changelog": dataclasses.asdict(spec.changelog) if spec.changelog else None,
    }


def spec_from_json(data: Mapping[str, Any]) -> StreamSpec:
    heartbeat, computed_progress = data.get("heartbeat"), data.get("computed_progress")
    changelog = data.get("changelog")
    return StreamSpec(
        tuple(progress_from_json(p) for p in data["progress"]),
        tuple(data["update_key"]) if data["update_key"] is not None else None,
        None if data["queue"] is None else Queue(data["queue"]),
        data["lazy_windows"],
        data["rate_hz"],
        data["keep_bad_rows"],
        data.get("idle_after"),
        Heartbeat(**heartbeat) if heartbeat else None,
        tuple((clause, text) for clause, text in data["deferred"]),
        data.get("by"),
        tuple(Computed(**c) for c in data.get("computed") or ()),
        progress_from_json(computed_progress) if computed_progress else None,
        Changelog(changelog["column"], tuple(changelog["not_null"])) if changelog else None,
        data.get("staleness"),
        tuple(Refresh(**item) for item in data.get("refresh") or ()),
        data.get("tolerance"),
    )


def progress_to_json(progress: Progress) -> dict[str, Any]:
    unit = progress.unit.value if progress.unit else None
    described = {**dataclasses.asdict(progress), "unit": unit}
    described["apart"] = described.pop("max_skew")  # the key in tables that exist
    return described


def progress_from_json(data: Mapping[str, Any]) -> Progress:
    given = {**data, "unit": TimeUnit(data["unit"]) if data["unit"] else None}
    given["max_skew"] = given.pop("apart", None)
    return Progress(**given)


def schema_to_json(schema: Schema) -> list[list[Any]]:
    """For each column its name, type, nullability and comment."""
    return [[f.name, type_to_json(f.type), f.nullable, f.comment] for f in schema]


def schema_from_json(data: list[list[Any]]) -> Schema:
    return Schema(tuple(map(_field, data)))


def _field(data: list[Any]) -> Field:
    if len(data) == 6:  # the form with kind, precision and scale, in tables that exist
        name, kind, precision, scale, nullable, comment = data
        type_ = decimal(precision, scale) if kind == "decimal" else DataType(Kind(kind))
        return Field(name, type_, nullable, comment)
    name, described, nullable, comment = data
    return Field(name, type_from_json(described), nullable, comment)


def type_to_json(type_: DataType) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": type_.kind.value}
    described |= {n: v for n in _DIGITS if (v := getattr(type_, n))}
    if type_.element is not None:
        described["element"] = type_to_json(type_.element)
    if type_.contains_null:
        described["contains_null"] = True
    if type_.rate is not None:
        described["rate"] = list(type_.rate)
    if type_.fields:
        described["fields"] = [[name, type_to_json(kind)] for name, kind in type_.fields]
    return described


_DIGITS = ("precision", "scale", "length", "declared", "samples")


def type_from_json(data: Mapping[str, Any]) -> DataType:
    element, rate = data.get("element"), data.get("rate")
    digits: dict[str, Any] = {name: int(data.get(name, 0)) for name in _DIGITS}
    return DataType(
        Kind(data["kind"]),
        **digits,
        element=None if element is None else type_from_json(element),
        contains_null=bool(data.get("contains_null", False)),
        rate=None if rate is None else (int(rate[0]), int(rate[1])),
        fields=tuple((name, type_from_json(kind)) for name, kind in data.get("fields", ())),
    )


def statistics_to_json(statistics: Statistics) -> dict[str, Any]:
    """Without ``extents``, which only the choice of a runtime reads."""
    return {
        "rows": statistics.rows,
        "rate": statistics.rate,
        "distinct": dict(statistics.distinct),
        "nulls": dict(statistics.nulls),
        "estimated_rows": statistics.estimated_rows,
    }


def statistics_from_json(data: Mapping[str, Any]) -> Statistics:
    names = ("rows", "rate", "distinct", "nulls", "estimated_rows")
    return Statistics(*(data[name] for name in names))
