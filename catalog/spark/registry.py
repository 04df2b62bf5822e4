"""The tables of our own sessions, remembered next to their data.

Our sessions keep their catalog in memory (Hive's metastore would add seconds to every start). So
each table that the engine makes is also one JSON file in ``<warehouse>/_cql``, replaced atomically.
A later session enters the table again when its name is first looked up. A session that the user
made has its own metastore and is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from cql.catalog.spark import known_tables, log_view
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.session import Session, is_own, spark_call, warehouse_of
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.table import Table, local_path
from cql.errors import CatalogError

FOLDER = known_tables.REGISTRY
_FORMAT = 1

# Per session, the names it has had: a name that is gone again was dropped, and must stay dropped.
_entered: weakref.WeakKeyDictionary[Any, set[tuple[str, ...]]] = weakref.WeakKeyDictionary()


def ensure(session: Session, name: str | Sequence[str]) -> bool:
    """Whether ``session`` has this table or view. A table of the registry is entered first."""
    if spark_table.exists(session, name):
        return True
    if not is_own(session):
        return False
    full = spark_table.full_name(session, name)
    file = _file(session, full)
    if full[0].lower() != spark_table.SESSION_CATALOG:
        return False
    if not file.exists():
        return _ensure_log_view(session, full)
    if _key(full) in _entered.get(session._sc, ()):
        _remove(file)
        return False
    table = _read(file)
    folder = local_path(table.location) if table.location is not None else None
    if folder is None or not folder.is_dir():
        _remove(file)
        return False
    _create_database(session, full[1])
    spark_table.create(session, table)
    if table.partition_columns:
        with spark_call(session, f"listing the partitions of {quoted(full)}"):
            session.catalog.recoverPartitions(quoted(full))
    _entered.setdefault(session._sc, set()).add(_key(full))
    return True


def _ensure_log_view(session: Session, full: tuple[str, ...]) -> bool:
    """Whether ``full`` is the view of a log of changes in the registry, which is entered with
    it."""
    log = log_view.log_name(full)
    file = _file(session, log)
    if _key(full) in _entered.get(session._sc, ()) or not file.exists():
        return False
    view = log_view.view_of(_read(file))
    if view is None or view.name.lower() != full[-1].lower() or not ensure(session, log):
        return False
    log_view.create(session, spark_table.load(session, log), view)
    _entered.setdefault(session._sc, set()).add(_key(full))
    return True


def record(session: Session, name: str | Sequence[str]) -> None:
    """Records a table as it is now. Does nothing for a session that is not ours, nor for a table in
    a catalog that remembers its tables itself."""
    if not is_own(session):
        return
    table = spark_table.load(session, name)
    if table.name[0].lower() != spark_table.SESSION_CATALOG:
        return
    if table.location is None:
        return  # a view lives as long as its session
    _write(_file(session, table.name), table)
    _entered.setdefault(session._sc, set()).add(_key(table.name))


def drop(session: Session, name: str | Sequence[str]) -> bool:
    """Drops a table, its entry here and, if its folder lies in our warehouse, its data; with the
    view of a log of changes, also the log."""
    if not ensure(session, name):
        return False
    table = spark_table.load(session, name)
    log = table.properties.get(log_view.LOG)
    with spark_call(session, f"dropping the table {quoted(name)}"):
        session.catalog.dropTable(quoted(table.name), ifExists=True)
    if is_own(session):
        _remove(_file(session, table.name))
        folder = local_path(table.location) if table.location is not None else None
        if folder is not None and warehouse_of(session) in folder.resolve().parents:
            shutil.rmtree(folder, ignore_errors=True)
    if log is not None:
        drop(session, (*table.name[:-1], log))
    return True


def names(session: Session) -> list[str]:
    """The tables in the registry of ``session`` (database.table), entered or not."""
    if not is_own(session):
        return []
    folder = warehouse_of(session) / FOLDER
    files = sorted(file.name.removesuffix(".json") for file in folder.glob("*.json"))
    return [".".join(unquote(part) for part in name.split(".")) for name in files]


def tables(session: Session) -> list[Table]:
    """The tables in the registry of ``session`` as they were recorded; calls no JVM."""
    if not is_own(session):
        return []
    return [_read(file) for file in sorted((warehouse_of(session) / FOLDER).glob("*.json"))]


def _key(full: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in full)


def _file(session: Session, full: Sequence[str]) -> Path:
    # Spark's session catalog ignores case; the escapes keep a name from leaving the folder.
    name = ".".join(quote(part, safe="").replace(".", "%2E") for part in _key(full)[1:])
    return warehouse_of(session) / FOLDER / f"{name}.json"


def _create_database(session: Session, database: str) -> None:
    with spark_call(session, f"creating the database {database}"):
        if not session.catalog.databaseExists(quoted((database,))):
            session.catalog.createDatabase(quoted((database,)), ifNotExists=True)


def _write(file: Path, table: Table) -> None:
    entry = {
        "format": _FORMAT,
        "name": list(table.name),
        "schema": spark_table.schema_to_json(table.schema),
        "provider": table.provider,
        "location": table.location,
        "partition_columns": list(table.partition_columns),
        "options": dict(table.options),
        "properties": dict(table.properties),
        "comment": table.comment,
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump(entry, out, indent=1)
                out.flush()
                os.fsync(out.fileno())
            os.replace(fresh, file)
        except BaseException:  # Ctrl-C, too: no half file stays
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise
    except OSError as error:
        raise CatalogError(
            f"the table {quoted(table.name)} cannot be remembered in {file.parent}: "
            f"{error.strerror}",
            hint="free some space, or give the warehouse folder to this user",
        ) from error


def _read(file: Path) -> Table:
    try:
        entry = json.loads(file.read_text(encoding="utf-8"))
        if entry["format"] != _FORMAT:
            raise ValueError(f"format {entry['format']}, known is {_FORMAT}")
        return Table(
            name=tuple(entry["name"]),
            schema=spark_table.schema_from_json(entry["schema"]),
            provider=entry["provider"],
            location=entry["location"],
            partition_columns=tuple(entry["partition_columns"]),
            options=dict(entry["options"]),
            properties=dict(entry["properties"]),
            comment=entry["comment"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CatalogError(
            f"the registry entry {file} cannot be read: {error}",
            hint="delete that file (the table's data stays) and create the table again",
        ) from error


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
