"""Spark's databases: their list, their tables, and the one in use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.session import Session, spark_call
from cql.errors import CatalogError, CqlError, Position, did_you_mean

Name = tuple[str, ...]


def use(session: Session, name: Name) -> str:
    """``USE database``, ``USE catalog`` or ``USE catalog.database``; returns what is in use."""
    if len(name) > 2:
        raise CatalogError(
            f"{'.'.join(name)} is no database", hint="write USE database, or catalog.database"
        )
    with spark_call(session, f"using {quoted(name)}"):
        catalogs = {c.name.lower(): c.name for c in session.catalog.listCatalogs()}
    database = name
    if name[0].lower() in catalogs and (len(name) == 2 or not _exists(session, name)):
        with spark_call(session, f"using {quoted(name)}"):
            session.catalog.setCurrentCatalog(catalogs[name[0].lower()])
        database = name[1:]
    elif len(name) == 2:
        raise _missing(session, name)
    if database:
        if not _exists(session, database):
            raise _missing(session, database)
        with spark_call(session, f"using {quoted(name)}"):
            session.catalog.setCurrentDatabase(database[0])
    with spark_call(session, f"using {quoted(name)}"):
        return f"{session.catalog.currentCatalog()}.{session.catalog.currentDatabase()}"


def databases(session: Session, catalog: Name | None) -> list[str]:
    """The databases of the current catalog, sorted by name. Raises CatalogError if ``catalog`` is
    another one."""
    with spark_call(session, "listing the databases"):
        before = session.catalog.currentCatalog()
        if catalog is not None and catalog[-1].lower() != before.lower():
            raise CatalogError(
                f"{'.'.join(catalog)} is not the catalog that is in use",
                hint=f"USE {'.'.join(catalog)} first; in use is {before}",
            )
        return sorted(d.name for d in session.catalog.listDatabases())


def tables(session: Session, database: Name) -> list[Name]:
    """The tables and views of a database."""
    if not _exists(session, database):
        raise _missing(session, database)
    with spark_call(session, f"listing the tables of {quoted(database)}"):
        listed = session.catalog.listTables(quoted(database))
        return [(*database, str(t.name)) for t in listed if not t.isTemporary]


def _exists(session: Session, database: Sequence[str]) -> bool:
    with spark_call(session, f"looking up the database {quoted(database)}"):
        return bool(session.catalog.databaseExists(quoted(database)))


def _missing(session: Session, database: Sequence[str]) -> CatalogError:
    with spark_call(session, "listing the databases"):
        known = [d.name for d in session.catalog.listDatabases()]
    return CatalogError(
        f"there is no database {quoted(database)}",
        hint=did_you_mean(database[-1], known, what="there are"),
    )


@contextlib.contextmanager
def at(pos: Position | None) -> Iterator[None]:
    """Gives an error without a position the position of the statement."""
    try:
        yield
    except CqlError as error:
        error.position = error.position or pos
        raise
