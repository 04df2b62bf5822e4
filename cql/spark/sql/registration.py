"""What a session declares, as JSON text: a process without the session plans texts with it.

The process reads the tables that the registration lists, and nothing else: a text cannot name a
file. It lists the files of a table anew for each text, so that rows which are added are seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cql.catalog.spark.catalog import SparkRelation
from cql.catalog.spark.tables.files import Files
from cql.catalog.spark.tables.folder import TableFolder, folder_of
from cql.catalog.spark.tables.row_groups import statistics_of
from cql.catalog.spark.tables.table import full_name
from cql.errors import CatalogError, CqlError, NotSupportedError, did_you_mean
from cql.planner.nodes.catalog import Relation, Statistics
from cql.planner.nodes.statements import Name
from cql.spark.job.functions import function_to_json
from cql.spark.job.job import Job, TaskRelation, changed

if TYPE_CHECKING:
    from cql.base.settings import Settings
    from cql.catalog.spark.session import Session
    from cql.functions.declare import Declared
    from cql.planner.nodes.catalog import Relations
    from cql.planner.nodes.expr import Literal
    from cql.planner.nodes.statements import NamedQuery


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a session, besides its relations."""

    constants: Mapping[str, Literal]
    views: Mapping[Name, NamedQuery]
    streams: Mapping[Name, NamedQuery]
    functions: Mapping[str, Declared]


@dataclass(frozen=True, slots=True)
class Registration:
    """What a session declares. ``declared`` is a job without a text, with the relations by their
    full names in lower case; ``folders`` has the files of those that a process can read by itself.
    ``database``: the catalog and the database of names without one."""

    declared: Job
    folders: Mapping[Name, TableFolder]
    database: Name

    def to_json(self) -> str:
        return json.dumps(
            {
                "declared": self.declared.to_json(),
                "folders": [[name, folder.to_json()] for name, folder in self.folders.items()],
                "database": self.database,
            }
        )

    @staticmethod
    def from_json(text: str) -> Registration:
        """The registration that ``to_json`` wrote. Raises CqlError for another version of the
        library."""
        data = json.loads(text)
        return Registration(
            Job.from_json(data["declared"]),
            {tuple(name): TableFolder.from_json(folder) for name, folder in data["folders"]},
            tuple(data["database"]),
        )


def registration_of(
    spark: Session,
    catalog: Relations,
    relations: Sequence[Name] | None,
    names: Names,
    settings: Settings,
    on_notice: Callable[[str], None],
) -> Registration:
    """Describes the session of ``catalog``, with those of its relations that ``relations`` names
    (None: all). ``on_notice`` receives what cannot be registered.

    Raises CatalogError for an unknown name in ``relations``."""
    database = _folded(full_name(spark, ("here",))[:-1])
    declared: dict[Name, TaskRelation] = {}
    folders: dict[Name, TableFolder] = {}
    for relation, folder in _relations(spark, catalog, relations, on_notice):
        declared[relation.name] = relation
        if folder is not None:
            folders[relation.name] = folder
    job = Job(
        "",
        changed(settings),
        {},
        names.constants,
        names.views,
        names.streams,
        dict(_portable(names.functions, on_notice)),
        declared,
        "",
    )
    return Registration(job, folders, database)


def _relations(
    spark: Session,
    catalog: Relations,
    wanted: Sequence[Name] | None,
    on_notice: Callable[[str], None],
) -> Iterator[tuple[TaskRelation, TableFolder | None]]:
    for name in catalog.names() if wanted is None else wanted:
        try:
            found = catalog.find(name)
            described = None if found is None else _described(spark, name, found)
        except CqlError as error:
            if wanted is not None:
                raise
            on_notice(f"{'.'.join(name)} is not registered in Spark: {error.message}")
            continue
        if described is not None:
            yield described
        elif wanted is not None:
            known = [".".join(each) for each in catalog.names()]
            raise CatalogError(
                f"there is no stream or table {'.'.join(name)}",
                hint=did_you_mean(".".join(name), known, what="there are"),
            )


def _described(
    spark: Session, name: Name, relation: Relation
) -> tuple[TaskRelation, TableFolder | None]:
    """The relation under its full name, and its files if a process can read them by itself."""
    full, folder = _folded(name), None
    if relation.stream is not None and relation.stream.changelog is not None:
        raise CatalogError(
            f"{'.'.join(name)} is a changelog, which Spark SQL cannot read",
            hint="a query of this session can: INSERT its rows into a table",
        )
    if isinstance(relation, SparkRelation):
        full = _folded(full_name(spark, name))
        files = relation.files() if relation.bounded else None
        if files is not None and files.direct:
            folder = folder_of(spark, relation.table, files)
    described = TaskRelation(
        full,
        relation.kind,
        relation.schema,
        relation.stream,
        relation.bounded,
        Statistics(),
        dict(relation.unsupported),
    )
    return described, folder


def _portable(
    functions: Mapping[str, Declared], on_notice: Callable[[str], None]
) -> Iterator[tuple[str, Declared]]:
    """The functions that another process can run."""
    for name, function in functions.items():
        try:
            function_to_json(function)
        except NotSupportedError as error:
            on_notice(f"{error.message}; it is not registered in Spark")
        else:
            yield name, function


@dataclass(frozen=True, slots=True)
class RegisteredCatalog:
    """The relations of a registration (``nodes.catalog.Relations``), with the files that they have
    when a text first refers to them; with statistics of these only if ``measured``."""

    registration: Registration
    measured: bool = True
    _listed: dict[Name, Files | None] = field(default_factory=dict)

    def find(self, name: Name) -> TaskRelation | None:
        found = self.registration.declared.relations.get(self.full_name(name))
        if found is None:
            return None
        statistics = statistics_of(self.files(name)) if self.measured else Statistics()
        return replace(found, name=name, statistics=statistics)

    def names(self) -> Sequence[Name]:
        here = self.registration.database
        known = self.registration.declared.relations
        return [name[1:] if name[:1] == here[:1] else name for name in known]

    def files(self, name: Name) -> Files | None:
        """The files of the relation; None if a process cannot read them by itself."""
        full = self.full_name(name)
        if full not in self._listed:
            folder = self.registration.folders.get(full)
            self._listed[full] = None if folder is None else folder.list_files()
        return self._listed[full]

    def list_anew(self) -> None:
        """From now on, ``files`` gives the files of now."""
        self._listed.clear()

    def grows(self, name: Name) -> bool:
        """Whether a new listing shows files that were added since the registration."""
        folder = self.registration.folders.get(self.full_name(name))
        return folder is not None and folder.folder is not None

    def seen(self) -> list[list[Any]]:
        """The files that a text refers to, as JSON data for ``changed_since``."""
        return [
            [self.registration.folders[full].to_json(), files.digest]
            for full, files in self._listed.items()
            if files is not None and self.registration.folders[full].folder is not None
        ]

    def full_name(self, name: Name) -> Name:
        """The name under which the relation is declared. Names of the session come first."""
        folded = _folded(name)
        if folded in self.registration.declared.relations:
            return folded
        here = self.registration.database
        return (*here[: max(len(here) + 1 - len(name), 0)], *folded)


def changed_since(seen: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The tables that have other files than ``RegisteredCatalog.seen`` described."""
    for described, digest in seen:
        folder = TableFolder.from_json(described)
        if folder.list_files().digest != digest:
            yield folder.table.table


def _folded(name: Sequence[str]) -> Name:
    return tuple(part.lower() for part in name)
