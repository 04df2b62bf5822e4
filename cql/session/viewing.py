"""The methods of a session for materialized views."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cql.errors import BindError, PlanError
from cql.query.result import Result, done, explained

if TYPE_CHECKING:
    from collections import deque

    from cql.base.settings import Settings
    from cql.errors import Position
    from cql.planner.bind.context import Context
    from cql.planner.nodes import statements as st
    from cql.planner.nodes.physical import PhysicalPlan
    from cql.planner.nodes.statements import Name
    from cql.query.prepared import Origin
    from cql.query.query import Query
    from cql.query.run import Run
    from cql.session.definitions import Definitions
    from cql.session.names import SessionCatalog
    from cql.spark.job.job import Job
    from cql.views.views import Views


class Viewing(ABC):
    """A base class of ``Session``."""

    _catalog: SessionCatalog
    _definitions: Definitions
    _settings: Settings
    #: Seconds since 1970; FRESHNESS goes by it.
    _now: Callable[[], float] = staticmethod(time.time)
    #: Waits until the event, at most so many seconds; between two refreshes in the background.
    _wait: Callable[[threading.Event, float], object] = staticmethod(threading.Event.wait)
    _numbers: Iterator[int]
    _inserts: deque[Query]

    @abstractmethod
    def _make_run(self, plan: PhysicalPlan, settings: Settings, job: Callable[[], Job]) -> Run:
        """A run of ``plan``."""

    @abstractmethod
    def _notice(self, message: str, where: str = "") -> None:
        """Shows a notice, each text once."""

    def _views(self, name: Name, pos: Position | None, *, create: bool = False) -> Views:
        """The materialized views of the catalog that ``name`` belongs to."""
        from cql.views.views import Views

        spark = self._catalog.views(name, pos, create=create)
        return Views(spark, lambda: self._settings, self._make_run, self._notice, self._now)

    def _create_materialized_view(self, bound: st.CreateMaterializedView, origin: Origin) -> Result:
        views, name = self._views(bound.name, bound.pos, create=True), ".".join(bound.name)
        if self._definitions.is_taken(bound, "materialized view"):
            return done(f"materialized view {name} exists already")
        other = self._definitions.query_of(bound.name)
        if other is not None:
            raise BindError(
                f"{name} is a {other.kind}",
                position=bound.pos,
                hint=f"DROP {other.kind.upper()} {name}",
            )
        return views.create(bound, origin)

    def _refresh_view(self, bound: st.RefreshView, origin: Origin) -> Result | Query:
        views = self._views(bound.name, bound.pos)
        if bound.every is None:
            return views.refresh(bound)
        query = views.refresher(bound, origin, f"q{next(self._numbers)}", self._wait)
        self._inserts.append(query)
        return query

    def _explain_refresh(self, bound: st.RefreshView, mode: str, pos: Position | None) -> Result:
        if mode not in ("physical", "logical"):
            raise PlanError(f"EXPLAIN {mode.upper()} of a REFRESH is not supported", position=pos)
        return explained(self._views(bound.name, bound.pos).explain(bound, mode))

    def _listed_views(self, place: Name | None, pos: Position | None) -> Iterator[tuple[Any, ...]]:
        """Of each materialized view: name, query, freshness, time of the last refresh. Without
        ``place``, a database, starts no Spark."""
        catalog = self._catalog
        names = catalog.running() if place is None else catalog.tables_in(place, pos)
        if place is not None or catalog.spark_runs:
            yield from self._views(("default", "v"), pos).show(names)

    def _freshen(self, context: Context) -> None:
        """Refreshes the materialized views that a statement reads, if they are too old."""
        for name, relation in context.relations.items():
            if getattr(relation, "view", None) is not None:
                self._views(name, None).freshen(context)
                return
