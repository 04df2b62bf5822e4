"""The state of a materialized view after a refresh: the notes of its table's last epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cql.catalog.spark.tables.files import Files
from cql.planner.nodes.statements import Name
from cql.spark.run.growing import New

#: Path, size and time of the last change (nanoseconds).
File: TypeAlias = tuple[str, int, int]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class State:
    """``identity`` and ``plan`` are those of the definition and the plan that gave the rows;
    ``refreshed`` is when the refresh began, in seconds since 1970. ``bases`` are the files of each
    relation that the query names, in their order (None: it is no table of files). Windows that end
    at or before ``closed`` are final, as are pairs of a join with a time before it. ``open`` are
    the view's own files with the other rows."""

    identity: str
    plan: str
    refreshed: float
    bases: Mapping[Name, tuple[File, ...] | None]
    closed: int | None = None
    open: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The notes without ``open``, which the writer adds."""
        return {
            "format": _FORMAT,
            "view": self.identity,
            "plan": self.plan,
            "refreshed": self.refreshed,
            "bases": [[name, files] for name, files in self.bases.items()],
            "closed": self.closed,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any] | None) -> State | None:
        """The state that ``to_json`` wrote; None for other notes: the next refresh is a full
        one."""
        if data is None or data.get("format") != _FORMAT:
            return None
        try:
            return State(
                str(data["view"]),
                str(data["plan"]),
                float(data["refreshed"]),
                {
                    tuple(name): None if files is None else tuple(map(_file, files))
                    for name, files in data["bases"]
                },
                data["closed"],
                tuple(data["open"]),
            )
        except (ValueError, KeyError, TypeError):
            return None


def _file(data: Sequence[Any]) -> File:
    path, size, modified = data
    return str(path), int(size), int(modified)


def files_of(files: Files | None) -> tuple[File, ...] | None:
    if files is None:
        return None
    return tuple((file.path, file.size, file.modified_ns) for file in files.files)


@dataclass(frozen=True, slots=True)
class Changed:
    """Files changed in a way that new rows alone do not follow; ``why`` says how."""

    why: str


def growth(
    known: Mapping[Name, tuple[File, ...] | None],
    now: Mapping[Name, tuple[File, ...] | None],
    *,
    behind: bool,
) -> New | Changed:
    """What the relations gained. ``behind``: new files must be read behind all the others."""
    found: dict[Name, frozenset[int]] = {}
    if known.keys() != now.keys():
        return Changed("its query names other tables")
    for name, files in now.items():
        before, dotted = known[name], ".".join(name)
        if files is None or before is None:
            return Changed(f"{dotted} is no table of files, so nobody knows what it gained")
        made = _new_files(dotted, before, files, behind=behind)
        if isinstance(made, Changed):
            return made
        found[name] = made
    return found


def _new_files(
    table: str, before: tuple[File, ...], files: tuple[File, ...], *, behind: bool
) -> frozenset[int] | Changed:
    held = {path: (size, modified) for path, size, modified in files}
    for path, size, modified in before:
        if path not in held:
            return Changed(f"file {path} of {table} was removed")
        if held[path] != (size, modified):
            return Changed(f"file {path} of {table} was written again")
    old = {path for path, _, _ in before}
    new = frozenset(k for k, (path, _, _) in enumerate(files) if path not in old)
    if behind and new and min(new) < len(before):
        path = files[min(new)][0]
        return Changed(f"the new file {path} of {table} is read before older ones")
    return new
