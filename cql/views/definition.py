"""The definition of a materialized view as JSON, which its table keeps in the property
``cql.view``: every session that shares the catalog knows the view.

A definition holds what decides the plan: the text of the query, its parameters and constants, the
session's views and named streams that it uses, settings, and the full name of each relation.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cql.base.settings import Settings
from cql.catalog.signals.sample_blocks import SampleRelation
from cql.catalog.spark.catalog import SparkRelation
from cql.catalog.spark.tables.table import full_name, is_temporary
from cql.errors import CatalogError, CqlError, NotSupportedError, Position
from cql.planner.bind.context import Context
from cql.planner.nodes import statements as st
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.logical import derived_streams
from cql.planner.nodes.statements import Name, NamedQuery
from cql.query.prepared import Origin
from cql.spark.job.job import Job, job_of
from cql.spark.job.version import version_hash

if TYPE_CHECKING:
    from cql.catalog.spark.catalog import SparkCatalog
    from cql.planner.nodes.catalog import Relation

_FORMAT = 1
#: Settings that a refresh takes from its session: they decide how a query runs, not its rows.
OF_RUN = (
    *("runtime", "workers", "partitions", "morsel_rows", "slice_us", "fuse", "worklist"),
    *("scheduler", "lp_threshold", "qst_capacity", "ct_window_us", "reorder", "reorder_buffer"),
    *("tuple_burst", "segments", "sample_order", "max_state", "kernel_cache"),
    *("progress", "epoch_ms"),
    *("shared_windows", "function_timeout"),
)


@dataclass(frozen=True, slots=True)
class Definition:
    """``names`` are the names of relations in the text, each with its full name in Spark's catalog.
    ``freshness`` is a number of microseconds."""

    text: str
    settings: Mapping[str, Any]
    parameters: Mapping[str, Literal]
    constants: Mapping[str, Literal]
    views: Mapping[Name, NamedQuery]
    streams: Mapping[Name, NamedQuery]
    names: Mapping[Name, Name]
    freshness: int | None = None

    def to_json(self) -> str:
        described = json.loads(
            Job(
                self.text,
                self.settings,
                self.parameters,
                self.constants,
                self.views,
                self.streams,
                {},
                {},
                "",
            ).to_json()
        )
        kept = ("text", "settings", "parameters", "constants", "views", "streams")
        return json.dumps(
            {
                "format": _FORMAT,
                **{key: described[key] for key in kept},
                "names": [[name, full] for name, full in self.names.items()],
                "freshness": self.freshness,
            },
            sort_keys=True,
        )

    @staticmethod
    def from_json(text: str, view: str) -> Definition:
        """The definition that ``to_json`` wrote. Raises CatalogError, which names the ``view``, for
        any other text."""
        try:
            data = json.loads(text)
            if data["format"] != _FORMAT:
                raise ValueError(f"format {data['format']}, known is {_FORMAT}")
            empty = {"version": version_hash(), "plan": "", "functions": [], "relations": []}
            job = Job.from_json(json.dumps({**data, **empty}))
            return Definition(
                job.text,
                job.settings,
                job.parameters,
                job.constants,
                job.views,
                job.streams,
                {tuple(name): tuple(full) for name, full in data["names"]},
                data["freshness"],
            )
        except (ValueError, KeyError, TypeError, AttributeError, CqlError) as error:
            raise CatalogError(
                f"the definition of materialized view {view} cannot be read: {error}",
                hint="CREATE OR REPLACE MATERIALIZED VIEW makes it anew",
            ) from error

    @property
    def identity(self) -> str:
        """The hash of all that decides the rows."""
        return hashlib.sha256(replace(self, freshness=None).to_json().encode()).hexdigest()

    def context(self, settings: Settings) -> Context:
        """The names for binding the text. ``settings`` are those of the session that runs it."""
        own = {name: settings[name] for name in OF_RUN}
        return Context(
            self.parameters,
            self.constants,
            self.views,
            self.streams,
            Settings.of(**{**self.settings, **own}),
        )


def defined(bound: st.CreateMaterializedView, origin: Origin, spark: SparkCatalog) -> Definition:
    """The definition that a statement gives. Raises NotSupportedError for a query that reads
    anything but Spark's catalog, or calls a function of the user's."""
    what = f"materialized view {'.'.join(bound.name)}"
    if bound.query.late_output is not None:
        raise _refused("LATE OUTPUT", what, bound.query.late_output.pos, "leave it out")
    for scan in derived_streams(bound.query.plan):
        raise _refused(
            f"{'.'.join(scan.relation.name)}, a query with an update queue,",
            what,
            scan.pos,
            "CREATE STREAM … AS without UPDATE KEY is expanded in the view",
        )
    context = origin.context
    end = origin.start + len(origin.text)
    text = origin.source[bound.begin : end].strip()
    job = job_of(text, context, "", inserts=False)
    texts = (job.text, *(named.text for named in (*job.views.values(), *job.streams.values())))
    for name in job.functions:
        if not any(re.search(rf"\b{re.escape(name)}\W?\s*\(", t, re.IGNORECASE) for t in texts):
            continue  # the word is the name of something else
        raise _refused(
            f"a function of yours ({name})",
            what,
            bound.query.pos,
            "other sessions do not know it: compute it in a table that the view reads",
        )
    settings = {n: v for n, v in job.settings.items() if n not in OF_RUN}
    session = spark.session()
    names = {
        name: full_name(session, _of_spark(session, relation, name, what, bound.query.pos).name)
        for name, relation in context.relations.items()
        if relation is not None
    }
    if not names:
        raise _refused("a query that reads no table", what, bound.query.pos, "CREATE TABLE … AS")
    return Definition(
        text,
        settings,
        job.parameters,
        job.constants,
        job.views,
        job.streams,
        names,
        bound.freshness,
    )


def _of_spark(
    session: Any, relation: Relation, name: Name, what: str, pos: Position | None
) -> SparkRelation:
    if relation.stream is not None and relation.stream.changelog is not None:
        raise _refused(
            f"{'.'.join(name)}, a changelog,",
            what,
            pos,
            "INSERT INTO a table the changes of a query over it",
        )
    if isinstance(relation, SampleRelation):
        relation = relation.base
    if not isinstance(relation, SparkRelation):
        raise _refused(
            f"{'.'.join(name)}, which only this session has,",
            what,
            pos,
            "store its rows in a table of Spark: CREATE TABLE default.t AS SELECT …",
        )
    if not relation.bounded:
        raise _refused(
            f"{'.'.join(name)}, which has no end,",
            what,
            pos,
            "declare the stream without the option follow",
        )
    if is_temporary(session, relation.table):
        raise _refused(
            f"{'.'.join(name)}, a temporary view of Spark,",
            what,
            pos,
            "read the tables behind it",
        )
    return relation


def _refused(clause: str, what: str, pos: Position | None, hint: str) -> NotSupportedError:
    return NotSupportedError(f"{clause} in {what} is not supported", position=pos, hint=hint)
