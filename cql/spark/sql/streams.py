"""A query text as a stream of Spark: the offsets of its tables, and the tasks between two offsets.

An offset names the files that were read. The rows between two offsets are those that the query
gives for good when its tables grow from the files of the one to the files of the other. They depend
on nothing else, so that Spark may ask for them again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cql.catalog.spark.tables.files import DataFile, Files
from cql.errors import CatalogError, CqlError, NotSupportedError, Position
from cql.planner.nodes import logical
from cql.planner.nodes.physical import sources
from cql.planner.nodes.statements import Name
from cql.planner.placement.scale_out import Whole, placement
from cql.spark.run.growing import GrowingPlan, MicroBatches
from cql.spark.sql.offsets import ANEW, files_read, read_of
from cql.spark.sql.texts import PlannedText

#: JSON data: of each table what was read (``offsets.read_of``), by its full name.
Offset = Mapping[str, Any]


class PlannedStream(PlannedText):
    """The plan of a text whose tables grow. ``registered`` as in ``PlannedText``. ``arrival``: the
    files of a table are read in the order in which they come; else in the order of the table, and a
    query for which that matters refuses a new file that lies between old ones.

    Raises NotSupportedError for a query whose rows do not stay."""

    def __init__(self, registered: str, text: str, *, arrival: bool = False) -> None:
        super().__init__(registered, text, measured=False)
        plan = self._prepared.plan
        made = GrowingPlan(self._prepared, placement(plan, "time"), self._settings.partitions)
        found = sources(plan.root)
        self._tables = {s.relation.name: self._key(s.relation.name) for s in found}
        try:
            self._refuse(made)
        except CqlError as error:
            raise error.with_text(text) from error.__cause__
        self._in_order = made.in_order and not arrival
        self._batches = MicroBatches(made)
        self._known: dict[Name, tuple[DataFile, ...]] = dict.fromkeys(self._tables, ())
        self._all: Mapping[Name, Files] | None = None

    def first(self) -> Offset:
        """The offset before all files."""
        return self._offset({n: replace(f, files=()) for n, f in self._listed().items()})

    def hold(self) -> None:
        """From now on, ``latest`` gives the files of now."""
        self._all = self._listed()

    def latest(self, start: Offset, most: int | None) -> Offset:
        """The offset behind ``start`` and the files that came since; behind ``most`` of these.

        Raises CatalogError if a file that ``start`` names was removed or written again."""
        listed = self._listed() if self._all is None else self._all
        read = self._read(start, listed)
        waiting = {name: self._new(files, listed[name]) for name, files in read.items()}
        turns = sorted((k, name) for name, new in waiting.items() for k in range(len(new)))
        if not turns:
            return start
        taken = Counter(name for _, name in turns[:most])
        return self._offset(
            {
                name: replace(files, files=(*files.files, *waiting[name][: taken[name]]))
                for name, files in read.items()
            }
        )

    def tasks_between(self, start: Offset, end: Offset) -> list[str]:
        """The tasks of a batch, as JSON texts. Raises CatalogError as ``latest`` does."""
        if start == end:
            return []
        listed = self._listed()
        before, files = self._read(start, listed), self._read(end, listed)
        for name, held in before.items():
            if files[name].files[: len(held.files)] != held.files:
                raise _other(f"of table {held.table}, its offsets do not follow each other")
        old = {name: len(held.files) for name, held in before.items()}
        return list(map(json.dumps, self._batches.tasks(files, old)))

    def _refuse(self, made: GrowingPlan) -> None:
        why = made.whole
        if self._bound.emit_changes is not None or self._prepared.changelog:
            why = Whole("the result is a relation that changes", self._bound.emit_changes)
        if why is not None:
            raise NotSupportedError(
                f"spark.readStream.format('cql') is not supported for this query: {why.why}",
                position=why.pos or _clause(self._bound.plan) or self._bound.pos,
                hint="spark.read.format('cql') reads the rows of now",
            )
        for source in sources(made.plan.root):
            name = source.relation.name
            if source.relation.kind == "materialized view":
                what = "a materialized view, whose refreshes replace rows"
            elif self._files(source).format != "parquet":
                what = "no table of Parquet files"
            elif not self._catalog.grows(name):
                what = "a table whose files only Spark can list"
            else:
                continue
            raise NotSupportedError(
                f"spark.readStream.format('cql') cannot read {source.name}: it is {what}",
                position=source.pos,
                hint="spark.read.format('cql') reads the rows of now",
            )

    def _key(self, name: Name) -> str:
        return ".".join(self._catalog.full_name(name))

    def _listed(self) -> dict[Name, Files]:
        """The files that the tables have now."""
        self._catalog.list_anew()
        found = {name: self._catalog.files(name) for name in self._tables}
        return {name: files for name, files in found.items() if files is not None}

    def _offset(self, read: Mapping[Name, Files]) -> Offset:
        self._known = {name: files.files for name, files in read.items()}
        return {
            self._tables[name]: read_of(files, arrival=not self._in_order)
            for name, files in read.items()
        }

    def _read(self, offset: Offset, listed: Mapping[Name, Files]) -> dict[Name, Files]:
        if offset.keys() != set(self._tables.values()):
            raise _other(f"it has read {', '.join(sorted(offset))}")
        return {
            name: files_read(offset[key], listed[name], self._known[name])
            for name, key in self._tables.items()
        }

    def _new(self, read: Files, listed: Files) -> list[DataFile]:
        """The listed files that were not read, in the order of the table."""
        held = {file.path for file in read.files}
        new = [file for file in listed.files if file.path not in held]
        if self._in_order and listed.files[: len(held)] != read.files:
            raise CatalogError(
                f"the new file {_first_between(read.files, listed.files)} of {listed.table} is read"
                " before older ones",
                hint="give new files names behind the others, as INSERT INTO of a session does, or"
                " take files as they come: option('fileOrder', 'arrival')",
            )
        return new


def _first_between(read: Sequence[DataFile], listed: Sequence[DataFile]) -> str:
    """The first listed file that was not read, or is read in another order."""
    pairs = zip(read, listed, strict=False)
    return next(file.path for held, file in pairs if held.path != file.path)


def _other(why: str) -> CatalogError:
    return CatalogError(f"the checkpoint is one of another stream: {why}", hint=ANEW)


def _clause(node: logical.Logical) -> Position | None:
    """The place of the first clause that keeps a state."""
    if not isinstance(node, _PASSING):
        found: Position | None = getattr(node, "pos", None)
        if found is not None:
            return found
    return next((p for below in node.inputs if (p := _clause(below)) is not None), None)


_PASSING = (logical.Scan, logical.Values, logical.Filter, logical.Project, logical.Union)
