"""The tables that the local Spark would know, by its registry: an unknown name starts no JVM."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import platformdirs

Name = tuple[str, ...]
REGISTRY = "_cql"
_CATALOG = "spark_catalog"
_STREAM, _LOG_OF = "cql.stream.", "cql.log_of"


def warehouse() -> Path:
    """The default folder of the tables of the local Spark."""
    return platformdirs.user_data_path("cql-streams") / "warehouse"


def spark_is_up() -> bool:
    """Whether this process has a Spark session already, one of ours or the user's."""
    session = sys.modules.get("pyspark.sql.session")
    context = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark")
    return (
        getattr(getattr(session, "SparkSession", None), "_instantiatedSession", None) is not None
        or getattr(getattr(context, "SparkContext", None), "_active_spark_context", None)
        is not None
    )


def names() -> list[Name] | None:
    """The tables of the registry, the streams over them and the views of logs, as (database, name);
    None if some entry cannot be read."""
    found: list[Name] = []
    for file in sorted((warehouse() / REGISTRY).glob("*.json")):
        try:
            entry = json.loads(file.read_text(encoding="utf-8"))
            name = tuple(str(part) for part in entry["name"])
            properties = dict(entry["properties"])
            view = json.loads(properties[_LOG_OF])["view"] if _LOG_OF in properties else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        found.append(name[1:])
        if view is not None:
            found.append((*name[1:-1], str(view)))
        found += [(name[1], k.removeprefix(_STREAM)) for k in properties if k.startswith(_STREAM)]
    return found


def is_unknown(name: Name) -> bool:
    """Whether a local Spark that starts now certainly has no table or stream of this name: its
    catalog begins with the tables of the registry only."""
    if spark_is_up():
        return False
    known = names()
    if known is None:
        return False
    parts = tuple(part.lower() for part in name)
    if len(parts) == 3 and parts[0] == _CATALOG:
        parts = parts[1:]
    return parts not in {tuple(part.lower() for part in n) for n in known}
