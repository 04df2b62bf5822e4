"""A session: a catalog, settings, names, and the queries that run in it.

``connect`` makes a session. ``Session.sql`` takes any text of the dialect; it gives a ``Query`` for
SELECT and INSERT, and a ``Result`` for every other statement.
"""

from __future__ import annotations

import atexit
import itertools
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from cql.base.compile_notice import WATCH
from cql.base.foreign import error_text
from cql.base.lru import LruCache
from cql.base.settings import Settings, find_setting
from cql.base.uninterruptible import load_module
from cql.errors import (
    BindError,
    CqlError,
    NotSupportedError,
    ParseError,
    PlanError,
    Position,
    RunError,
    did_you_mean,
    unreachable,
)
from cql.executor.run.worker_scaling import cores
from cql.query.prepared import Origin, prepare, target
from cql.query.query import PreparedQuery, Query
from cql.query.query_set import QuerySet, RunOfAll
from cql.query.result import Analysis, Result, done, explained
from cql.query.run import Run
from cql.session.declare import (
    parts_of,
    quoted,
)
from cql.session.hints import HINT, hinted, refuse_run_hints
from cql.session.pushing import Pushing
from cql.session.pyspark_names import pyspark_names
from cql.session.registering import Registering
from cql.session.viewing import Viewing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as SparkDataFrame
    from sqlglot import exp

    from cql.base.model import Schema
    from cql.executor.run.execution import Execution
    from cql.functions.declare import Declared, Functions
    from cql.planner.bind.context import Context
    from cql.planner.nodes import statements as st
    from cql.planner.nodes.expr import Literal
    from cql.planner.nodes.physical import PhysicalPlan, QuerySetPlan
    from cql.spark.job.job import Job

Name: TypeAlias = tuple[str, ...]
#: Makes the run of a plan in this process.
Engine: TypeAlias = "Callable[[PhysicalPlan, Settings], Run]"


_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class CqlWarning(UserWarning):
    """A warning about a statement that is valid but perhaps not intended."""


def connect(spark: Any = None, *, functions: Functions | None = None, **settings: Any) -> Session:
    """A new session.

    With a SparkSession ``spark``, the session looks up every name there that it does not know
    itself. Without a SparkSession, the first name with a database (``default.flights``) starts a
    local Spark; ``spark=False`` never starts Spark. ``functions`` are functions of yours: a list of
    declared or annotated functions, a mapping from names to functions, a module, or the path of a
    module (``cql.function``). ``settings`` are the settings of ``SET``, which ``\\help SETTINGS``
    in the shell explains. Raises SettingError for an unknown setting or a bad value."""
    session = Session(spark, settings=Settings.of(**settings))
    if functions is not None:
        session.register_functions(functions)
    return session


@pyspark_names
class Session(Registering, Pushing, Viewing):
    """A session, made by ``connect``; as a context manager, closes itself on exit.

    Any thread may call its methods. ``on_notice`` receives the text of each notice once; by
    default, the session issues a CqlWarning.
    """

    def __init__(
        self, spark: Any = None, *, settings: Settings | None = None, run: Engine | None = None
    ) -> None:
        from cql.session.definitions import Definitions

        self._definitions = Definitions(spark)
        self._catalog = self._definitions.catalog
        self.on_notice: Callable[[str], None] = _warn
        self._settings = settings if settings is not None else Settings()
        self._run = run if run is not None else _run
        self._functions: dict[str, Declared] = {}
        self._noticed: set[str] = set()
        self._numbers = itertools.count(1)
        self._inserts: deque[Query] = deque(maxlen=100)
        self._selects: weakref.WeakSet[Query] = weakref.WeakSet()
        self._latest: Query | None = None
        self._ran: Query | None = None  # the latest query before ``_latest`` that has run
        self._lock = threading.RLock()
        self._closed = False
        _open_sessions.add(self)

    def __repr__(self) -> str:
        running = sum(q.is_active for q in self.queries())
        return f"<cql.Session {'closed' if self._closed else f'{running} running'}>"

    # ----------------------------------------------------------------- statements

    def sql(self, text: str, /, **parameters: Any) -> Query | Result:
        """Runs the statements of ``text`` and returns the result of the last statement.

        ``parameters`` are the values of ``:name`` in the text. A SELECT gives a lazy Query. An
        INSERT over bounded input has run on return (its Query has the number of rows and the
        ledgers); an INSERT over unbounded input continues in the background."""
        last: Query | Result | None = None
        for item in self._statements(text, parameters):
            if isinstance(item, Query | QuerySet) and item.is_insert:
                if item._live:
                    item.start()
                else:
                    item.insert()
            last = item._result() if isinstance(item, QuerySet) else item
        if last is None:
            raise ParseError("there is no statement in this text", text=text)
        return last

    def _statements(
        self, text: str, parameters: Mapping[str, Any] | None = None
    ) -> Iterator[Query | QuerySet | Result]:
        """Yields the result of each statement of ``text``; executes each on request.

        A yielded Query (also of an INSERT) or QuerySet has not run yet."""
        self._check_open()
        WATCH.report_to(self._notice_compiling)
        for tree in _trees(text):
            try:
                with self._lock:
                    made = self._statement(tree, text, parameters or {})
                item = made.result() if isinstance(made, Analysis) else made
            except CqlError as error:
                raise error.with_text(text) from error.__cause__
            yield item

    def query_set(self, text: str, /, **parameters: Any) -> QuerySet:
        """The SELECTs and INSERTs of ``text`` as a query set, which has not run yet.

        The queries start together, read each stream once, and share the state of equal operators,
        above all the panes of windows that differ only in RANGE, SLIDE and OFFSET. ``parameters``
        are the values of ``:name`` in the text."""
        self._check_open()
        with self._lock:
            try:
                return self._set_of(_trees(text), text, parameters)
            except CqlError as error:
                raise error.with_text(text) from error.__cause__

    together = query_set  # the former name

    def _set_of(
        self, trees: Sequence[exp.Expression], text: str, parameters: Mapping[str, Any]
    ) -> QuerySet:
        from cql.dialect import position_of
        from cql.planner.explain import tree as explain
        from cql.planner.placement.multi_query import plan_query_set
        from cql.session.applied import OF_ALL, Planned, not_applied

        queries: list[Query] = []
        made: set[str] = set()
        for tree in trees:
            refuse_run_hints(tree, self._settings)
            query = self._statement(tree, text, parameters, member=True)
            assert isinstance(query, Query)
            for name in query._makes:
                if name in made:
                    raise PlanError(
                        f"two queries that start together make the table {name}",
                        position=position_of(tree),
                        hint=f"CREATE TABLE {name} (…) beforehand: then both add to it",
                    )
            made.update(query._makes)
            queries.append(query)
        if not queries:
            raise ParseError("there is no statement in this text", text=text)
        settings = self._settings
        if settings.runtime == "spark":
            raise NotSupportedError(
                "runtime = 'spark' is not supported for queries that start together",
                hint="start each query by itself, or SET runtime = 'auto'",
            )
        panes = settings.shared_windows and settings.window_operator in ("auto", "panes")
        plan = plan_query_set([q._plan for q in queries], settings, panes=panes, cores=cores())
        plan = replace(plan, notes=not_applied(Planned((), plan.plans, settings), OF_ALL))
        names = [q.name for q in queries]

        def run() -> RunOfAll:
            execution = _execution(plan, settings)
            for part in execution.queries:
                part.on_notice = self._notice
            return execution

        return QuerySet(
            "+".join(names), queries, run, lambda mode: explain.trees(plan, names, mode)
        )

    def _statement(
        self,
        tree: exp.Expression,
        text: str,
        parameters: Mapping[str, Any],
        *,
        member: bool = False,
    ) -> Query | QuerySet | Result | Analysis:
        """Executes one statement. ``member``: of a query set, whose statements must be queries."""
        from cql.dialect import nodes, position_of
        from cql.planner.bind.context import Context
        from cql.planner.bind.statement import bind

        if member and not isinstance(tree, nodes.MEMBERS):
            raise PlanError(
                "queries that start together are SELECT and INSERT INTO", position=position_of(tree)
            )
        if isinstance(tree, nodes.StatementSet):
            return self._set_of(tree.expressions, text, parameters)
        if isinstance(tree, nodes.Explain) and isinstance(tree.this, nodes.StatementSet):
            made = self._set_of(tree.this.expressions, text, parameters)
            try:
                return explained(made.explain(str(tree.args["mode"] or "physical")))
            except CqlError as error:
                error.position = error.position or position_of(tree)
                raise
        settings = hinted(tree, self._settings) if HINT in text else self._settings
        context = Context(
            parameters=parameters,
            constants=dict(self._definitions.constants),
            views=dict(self._definitions.views),
            streams=dict(self._definitions.streams),
            settings=settings,
            functions=dict(self._functions),
        )
        bound = bind(tree, self._catalog, context)
        if member:
            self._freshen(context)
        start = tree.meta.get("text_start", 0)
        own = text[start : tree.meta.get("text_end", len(text))].strip()
        self._notify(context)
        try:
            return self._execute(bound, Origin(own, text, context, start, member))
        except CqlError as error:
            # The catalog does not know the text; its errors belong to the name in the statement.
            error.position = error.position or bound.pos
            raise

    def _execute(self, bound: st.Statement, origin: Origin) -> Query | Result | Analysis:
        from cql.planner.nodes import statements as st

        match bound:
            case st.Query():
                return self._select(bound, origin)
            case st.Insert():
                return self._insert(bound, origin)
            case st.CreateStream():
                if bound.replace:
                    self._not_written(bound.name, bound.pos)
                return self._definitions.create_stream(bound)
            case st.CreateView():
                return self._definitions.create_view(bound)
            case st.CreateMaterializedView():
                return self._create_materialized_view(bound, origin)
            case st.RefreshView():
                return self._refresh_view(bound, origin)
            case st.CreateTable():
                if bound.replace:
                    self._not_written(bound.name, bound.pos)
                made = self._definitions.create_table(bound)
                if isinstance(made, Result):
                    return made
                return self._insert(made, origin, create=True)
            case st.CreateConstant():
                return self._definitions.create_constant(bound)
            case st.Drop():
                self._not_written(bound.name, bound.pos)
                return self._definitions.drop(bound)
            case st.Set():
                return self._set(bound)
            case st.Reset():
                return self._reset(bound)
            case st.Explain():
                return self._explain(bound, origin)
            case st.Show():
                from cql.session import listing

                return listing.show(self, bound)
            case st.Use():
                return done(f"the database is {self._catalog.use(bound.name, bound.pos)}")
            case st.Describe():
                from cql.session import listing

                return listing.describe(self, bound)
            case st.StopQuery():
                return self._stop_query(bound)
            case _:
                return unreachable(bound)

    # ----------------------------------------------------------------- queries

    def _select(self, bound: st.Query, origin: Origin) -> Query:
        query = Query(self._prepared(bound, origin), name=f"q{next(self._numbers)}")
        self._selects.add(query)
        return self._made(query)

    def _insert(self, bound: st.Insert, origin: Origin, *, create: bool = False) -> Query:
        from cql.planner.nodes.catalog import key_of
        from cql.planner.nodes.logical import TIME, WEIGHT

        made = self._prepared(bound.query, origin, inserts=True)
        changing = made.changelog or bound.query.emit_changes is not None
        applies: tuple[str, ...] = ()
        if changing and bound.columns[:2] != (TIME, WEIGHT):
            applies = bound.key if create else key_of(self._catalog.find(bound.target))
            if not applies and not create:
                raise PlanError(
                    "rows of this query also change and leave: a table takes rows that stay",
                    position=bound.query.pos or bound.pos,
                    hint="INSERT INTO … ISTREAM(SELECT …) gives the rows that enter; a table with"
                    f" a PRIMARY KEY takes the newest row of each key, and one that begins with"
                    f" columns {TIME} and {WEIGHT} the changes",
                )
        epoch = origin.settings.epoch_ms / 1000 if made.live else None
        into = target(
            self._catalog,
            bound.target,
            made.schema,
            epoch,
            bound.pos,
            create=create,
            made=bound if create else None,
            applies=applies,
        )
        query = Query(made, into, f"q{next(self._numbers)}")
        self._inserts.append(query)
        return self._made(query)

    def _made(self, query: Query) -> Query:
        """Records ``query`` as the latest query, and keeps the latest query that has run: EXPLAIN
        makes queries without running them."""
        if self._latest is not None and self._latest._has_run:
            self._ran = self._latest
        self._latest = query
        return query

    def _prepared(self, bound: st.Query, origin: Origin, *, inserts: bool = False) -> PreparedQuery:
        def run(plan: PhysicalPlan, settings: Settings, job: Callable[[], Job]) -> Run:
            self._freshen(origin.context)
            return self._make_run(plan, settings, job)

        def frame(plan: PhysicalPlan, job: Job) -> tuple[Run, SparkDataFrame]:
            from cql.spark.run.result_frame import FrameRun

            self._freshen(origin.context)
            made = FrameRun(plan, job)
            made.on_notice = self._notice
            return made, made.frame()

        return prepare(bound, origin, self._catalog, run, inserts=inserts, frame_plan=frame)

    def _make_run(self, plan: PhysicalPlan, settings: Settings, job: Callable[[], Job]) -> Run:
        WATCH.report_to(self._notice_compiling)
        if plan.runtime.name == "spark":
            from cql.spark.run.driver import SparkRun

            in_order = settings.runtime == "auto"
            run: Run = SparkRun(plan, job(), settings.partitions, in_order=in_order)
        else:
            run = self._run(plan, settings)
        run.on_notice = self._notice
        return run

    def queries(self) -> list[Query]:
        """All running queries, and the latest INSERTs that have run."""
        known = [*self._inserts, *(q for q in list(self._selects) if q.is_active)]
        return sorted((q for q in known if q.status != "ready"), key=lambda q: int(q.name[1:]))

    def _not_written(self, name: Name, pos: Position | None) -> None:
        """Raises RunError if a running query writes into the table ``name``: its rows would be
        lost."""
        table = ".".join(name)
        for query in self.queries():
            if query.is_active and table.lower() in {n.lower() for n in query._writes}:
                raise RunError(
                    f"query {query.name} writes into {table}",
                    position=pos,
                    hint=f"STOP QUERY {query.name} first",
                )

    def _latest_query(self) -> Query:
        """The query that SHOW LATE and SHOW BAD ROWS report; PlanError if there is none."""
        for query in (self._latest, self._ran, *reversed(self.queries())):
            if query is not None and query._has_run:
                return query
        raise PlanError("no query has run yet in this session")

    def stop(self, query: int | str) -> bool:
        """Stops a query, given by name or number (``q1``, ``1``); True if the query has ended."""
        return self._find_query(str(query), None).stop()

    def _find_query(self, name: str, position: Position | None) -> Query:
        """The query with this name or number; BindError at ``position`` if there is none."""
        wanted = name.lower() if name.lower().startswith("q") else f"q{name}"
        known = [*self._inserts, *self._selects]
        found = next((q for q in known if q.name == wanted), None)
        if found is None:
            names = [q.name for q in self.queries()]
            raise BindError(
                f"there is no query {name}",
                position=position,
                hint=did_you_mean(wanted, names, what="queries") or "SHOW QUERIES lists them",
            )
        return found

    def _find_run(self, name: str, position: Position | None) -> Query:
        """The query with this name; RunError at ``position`` if the query has not run."""
        query = self._find_query(name, position)
        try:
            query.progress()
        except RunError as error:
            error.position = error.position or position
            raise
        return query

    def _stop_query(self, bound: st.StopQuery) -> Result:
        query = self._find_query(bound.name, bound.pos)
        if not query.is_active:
            return done(f"{query.name} is not running: it has {_ENDED[query.status]}")
        ended = query.stop()
        return done(f"{query.name} {'has stopped' if ended else 'is stopping'}")

    def _explain(self, bound: st.Explain, origin: Origin) -> Result | Analysis:
        from cql.planner.nodes import statements as st
        from cql.query.explanation import logical_text

        if bound.query is not None:
            if bound.mode == "analyze":
                return explained(self._find_run(bound.query, bound.pos)._explain_run())
            return explained(self._find_query(bound.query, bound.pos).explain(bound.mode))
        inner = bound.statement
        if isinstance(inner, st.RefreshView):
            return self._explain_refresh(inner, bound.mode, bound.pos)
        if not isinstance(inner, st.Query | st.Insert):
            raise PlanError("EXPLAIN takes a SELECT or an INSERT", position=bound.pos)
        if bound.mode == "logical":
            # The logical plan also exists for a query that binds and that this version cannot run.
            selected = inner.query if isinstance(inner, st.Insert) else inner
            return explained(logical_text(selected, origin.settings))
        query = self._execute(inner, origin)
        assert isinstance(query, Query)
        if bound.mode == "analyze":
            return Analysis(query, bound.pos)
        return explained(query.explain(bound.mode))

    # ----------------------------------------------------------------- names

    def _names(self) -> list[str]:
        """All names that a query may use, as text; starts no JVM."""
        return self._definitions.names()

    def _named_queries(self) -> dict[Name, st.NamedQuery]:
        """Views and named intermediate streams."""
        return self._definitions.named_queries()

    def _constants(self) -> dict[str, Literal]:
        return dict(self._definitions.constants)

    def _schema_of(self, name: str | Name) -> Schema | None:
        """The columns of a stream, table or view (``'db.t'`` or its parts); None for an unknown
        name."""
        from cql.catalog.changelogs.relation import ChangelogRelation

        name = name if isinstance(name, tuple) else parts_of(name)
        relation = None
        if self._definitions.query_of(name) is None:
            relation = self._catalog.find(name)
            if relation is None or relation.stream is None or not relation.stream.computed:
                if isinstance(relation, ChangelogRelation):
                    return relation.stored  # without the change
                return None if relation is None else relation.schema
        query = next(self._statements(f"SELECT * FROM {'.'.join(map(quoted, name))}"))
        assert isinstance(query, Query)
        if relation is not None and relation.stream is not None and relation.stream.changelog:
            return replace(query.schema, fields=query.schema.fields[2:])  # without the change
        return query.schema

    # ----------------------------------------------------------------- inside Spark SQL

    def register_in_spark(self, relations: Sequence[str] | None = None) -> None:
        """Registers the format and the table function ``cql`` in this session's Spark, so that
        plain Spark SQL reads queries: ``SELECT * FROM cql('SELECT …')``.

        The texts may read the tables of Parquet or ORC files in Spark's catalog, and the streams
        over them: those of ``relations``, by default those that SHOW TABLES lists. They know the
        views, constants, functions and settings that this session has now; a later call takes what
        it has then."""
        from cql.spark.sql.register import register
        from cql.spark.sql.registration import Names, registration_of

        self._check_open()
        with self._lock:
            spark = self._catalog.spark_session("register_in_spark")
            held = self._definitions
            register(
                spark,
                registration_of(
                    spark,
                    self._catalog,
                    None if relations is None else [parts_of(name) for name in relations],
                    Names(held.constants, held.views, held.streams, self._functions),
                    self._settings,
                    self._notice,
                ),
            )

    # ----------------------------------------------------------------- settings

    @property
    def settings(self) -> Settings:
        return self._settings

    def set(self, name: str, value: Any) -> None:
        """Changes a setting for the statements that follow; raises SettingError."""
        self._settings = self._settings.with_(name, value)

    def _set(self, bound: st.Set) -> Result:
        from cql.session import listing

        if bound.name is None:
            return listing.settings(self._settings, None)
        setting = find_setting(bound.name, bound.pos)
        if bound.value is None:
            return listing.settings(self._settings, setting.name)
        self._settings = self._settings.with_(setting.name, bound.value, bound.value_pos)
        return done(f"{setting.name} = {setting.format(self._settings[setting.name])}")

    def _reset(self, bound: st.Reset) -> Result:
        if bound.name is None:
            self._settings = Settings()
            return done("all settings have their defaults")
        setting = find_setting(bound.name, bound.pos)
        self._settings = self._settings.reset(setting.name)
        return done(f"{setting.name} = {setting.format(self._settings[setting.name])}")

    # ----------------------------------------------------------------- life

    def _notify(self, context: Context) -> None:
        """Shows the notices of a statement, each text once per session."""
        for notice in context.warnings:
            place = notice.pos
            where = f" (line {place.line}, column {place.column})" if place else ""
            self._notice(notice.message, where)

    def _notice(self, message: str, where: str = "") -> None:
        if message not in self._noticed:
            self._noticed.add(message)
            try:
                self.on_notice(message + where)
            except (CqlError, Warning):
                raise
            except Exception as error:
                raise RunError(
                    f"on_notice raised {error_text(error)}",
                    hint=f"it was told: {message}",
                ) from error

    def _notice_compiling(self, message: str) -> None:
        """Shows the notice without a warning: where warnings are errors, a new machine, whose
        kernel cache is empty, would fail."""
        if self.on_notice is _warn:
            print(f"cql: {message}", file=sys.stderr, flush=True)
        else:
            self.on_notice(message)

    def warm_up(self) -> None:
        """Loads the modules that the first query needs."""
        for name in ("cql.executor.run.execution", "cql.planner.bind.statement"):
            load_module(name)

    def close(self) -> None:
        """Stops the running queries, and the Spark that this session started. May be called
        twice."""
        if self._closed:
            return
        self._closed = True
        running = [q for q in self.queries() if q.is_active]
        for query in running:
            query._cut_short()
        for query in running:
            query.stop()
        self._catalog.close()

    def _check_open(self) -> None:
        if self._closed:
            raise CqlError("this session is closed", hint="cql.connect() makes a new one")

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    for session in list(_open_sessions):
        session.close()


#: The parsed statements of the latest texts; the binder must not change them.
_PARSED: LruCache[str, tuple[exp.Expression, ...]] = LruCache(1 << 16, len)


def _trees(text: str) -> tuple[exp.Expression, ...]:
    from cql.dialect import parse

    if not isinstance(text, str):
        return tuple(parse(text))
    return _PARSED.get(text, lambda: tuple(parse(text)))


def _warn(message: str) -> None:
    warnings.warn(message, CqlWarning, stacklevel=6)


def _execution(plan: PhysicalPlan | QuerySetPlan, settings: Settings) -> Execution:
    load_module("cql.executor.run.execution")
    from cql.executor.run.execution import Execution

    return Execution(plan, settings)


def _run(plan: PhysicalPlan, settings: Settings) -> Run:
    return _execution(plan, settings).queries[0]


_ENDED = {
    "ready": "not been started",
    "finished": "finished",
    "stopped": "been stopped",
    "failed": "failed",
}
