"""A session: a catalog, settings, names, and the queries that run in it.

``connect`` makes one. ``Session.sql`` takes any text of the dialect: it gives a ``Query`` for
SELECT and INSERT and a ``Result`` for everything else.
"""

from __future__ import annotations

import atexit
import itertools
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from cql.declare import Clauses, Names, Slack, declare, parts_of
from cql.errors import (
    BindError,
    CqlError,
    NotSupportedError,
    ParseError,
    PlanError,
    Position,
    did_you_mean,
    unreachable,
)
from cql.query import Query, Recipe, Run, Target, pyspark_names
from cql.result import Result, done, explained
from cql.settings import Settings, find_setting

if TYPE_CHECKING:
    from sqlglot import exp

    from cql.executor.protocols import Sink
    from cql.functions import Declared, Functions, Type
    from cql.model import Schema
    from cql.planner import statements as st
    from cql.planner.context import Context
    from cql.planner.expr import Literal
    from cql.planner.physical import PhysicalPlan
    from cql.types import DataType

Name: TypeAlias = tuple[str, ...]
RunPlan: TypeAlias = "Callable[[PhysicalPlan, Settings], Run]"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a statement comes from: its text, the whole text, and the settings it runs under."""

    text: str
    source: str
    settings: Settings


_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class CqlWarning(UserWarning):
    """Something that is allowed and perhaps not meant."""


def connect(spark: Any = None, *, functions: Functions | None = None, **settings: Any) -> Session:
    """A new session.

    With ``spark`` a SparkSession, every name that the session does not know is looked up there.
    Without one, a local Spark is started when a name with a database (``default.flights``) is
    first used; ``spark=False`` never starts one. ``functions`` are functions of yours: a list of
    declared or annotated ones, a mapping of names to them, a module, or the path of one
    (``cql.function``). ``settings`` are those of ``SET``, which
    ``\\help SETTINGS`` in the shell explains; an unknown one raises SettingError."""
    session = Session(spark, settings=Settings.of(**settings))
    if functions is not None:
        session.register_functions(functions)
    return session


@pyspark_names
class Session:
    """Made by ``connect``; a context manager that closes itself. Methods may be called from any
    thread. ``on_notice`` takes the text of a notice, once each; by default a CqlWarning is issued.
    """

    def __init__(
        self, spark: Any = None, *, settings: Settings | None = None, run: RunPlan | None = None
    ) -> None:
        from cql.names import SessionCatalog

        self.catalog = SessionCatalog(spark)
        self.on_notice: Callable[[str], None] = _warn
        self._settings = settings if settings is not None else Settings()
        self._run = run if run is not None else _execution
        self._constants: dict[str, Literal] = {}
        self._functions: dict[str, Declared] = {}
        self._views: dict[Name, st.NamedQuery] = {}
        self._streams: dict[Name, st.NamedQuery] = {}
        self._noticed: set[str] = set()
        self._numbers = itertools.count(1)
        self._inserts: deque[Query] = deque(maxlen=100)
        self._selects: weakref.WeakSet[Query] = weakref.WeakSet()
        self._latest: Query | None = None
        self._ran: Query | None = None  # the latest one before it that has run
        self._lock = threading.RLock()
        self._closed = False
        _open_sessions.add(self)

    def __repr__(self) -> str:
        running = sum(q.is_active for q in self.queries())
        return f"<cql.Session {'closed' if self._closed else f'{running} running'}>"

    # ----------------------------------------------------------------- statements

    def sql(self, text: str, /, **parameters: Any) -> Query | Result:
        """Runs the statements of ``text`` and gives what the last one gives.

        ``parameters`` are the values of ``:name`` in the text. A SELECT is a lazy Query. An INSERT
        over bounded input has run when this returns (its Query says how many rows, and has the
        ledgers); over unbounded input it runs on in the background."""
        last: Query | Result | None = None
        for item in self.statements(text, parameters):
            if isinstance(item, Query) and item.is_insert:
                if item.bounded:
                    item.insert()
                else:
                    item.start()
            last = item
        if last is None:
            raise ParseError("there is no statement in this text", text=text)
        return last

    def statements(
        self, text: str, parameters: Mapping[str, Any] | None = None
    ) -> Iterator[Query | Result]:
        """What the statements of ``text`` give, each when it is asked for: a Query has not run
        yet (neither has an INSERT), everything else has."""
        from cql.dialect import parse

        self._check_open()
        if not isinstance(text, str):
            raise ParseError(f"a statement is text, not {type(text).__name__}")
        for tree in parse(text):
            with self._lock:
                try:
                    item = self._statement(tree, text, parameters or {})
                except CqlError as error:
                    raise error.with_text(text) from error.__cause__
            yield item

    def _statement(
        self, tree: exp.Expression, text: str, parameters: Mapping[str, Any]
    ) -> Query | Result:
        from cql.planner.bind import bind
        from cql.planner.context import Context

        settings = self._hinted(tree)
        context = Context(
            parameters=parameters,
            constants=self._constants,
            views=self._views,
            streams=self._streams,
            settings=settings,
            functions=self._functions,
        )
        bound = bind(tree, self.catalog, context)
        meta = tree.meta
        own = text[meta.get("text_start", 0) : meta.get("text_end", len(text))].strip()
        self._tell(context)
        try:
            return self._execute(bound, Origin(own, text, settings))
        except CqlError as error:
            # A catalog knows no text: it happened at the name that the statement is about.
            error.position = error.position or bound.pos
            raise

    def _hinted(self, tree: exp.Expression) -> Settings:
        """The settings under the hints of a statement, which stand behind its first SELECT."""
        from cql.dialect import nodes, position_of

        outermost = _outermost(tree)
        clause = outermost.args.get("hint") if outermost is not None else None
        settings = self._settings
        known = clause.expressions if clause is not None else []
        for hint in tree.find_all(nodes.PlanHint):
            place, name = position_of(hint), str(hint.this)
            if not any(hint is k for k in known):
                raise PlanError(
                    "a hint stands behind the first SELECT of a statement",
                    position=place,
                    hint=f"move {name} there: it holds for the whole statement",
                )
            find_setting(name, place)
            if len(hint.expressions) != 1:
                raise PlanError(
                    f"the hint {name} takes one value", position=place, hint=f"{name}(value)"
                )
            value = hint.expressions[0]
            settings = settings.with_(name, value.name, position_of(value))
        return settings

    def _execute(self, bound: st.Statement, origin: Origin) -> Query | Result:
        from cql.planner import statements as st

        match bound:
            case st.Query():
                return self._select(bound, origin)
            case st.Insert():
                return self._insert(bound, origin)
            case st.CreateStream():
                return self._create_stream(bound)
            case st.CreateView():
                return self._create_view(bound)
            case st.CreateTable():
                return self._create_table(bound, origin)
            case st.CreateConstant():
                return self._create_constant(bound)
            case st.Drop():
                return self._drop(bound)
            case st.Set():
                return self._set(bound)
            case st.Reset():
                return self._reset(bound)
            case st.Explain():
                return self._explain(bound, origin)
            case st.Show():
                from cql import listing

                return listing.show(self, bound)
            case st.Describe():
                from cql import listing

                return listing.describe(self, bound)
            case st.StopQuery():
                return self._stop_query(bound)
            case _:
                return unreachable(bound)

    # ----------------------------------------------------------------- queries

    def _select(self, bound: st.Query, origin: Origin) -> Query:
        query = Query(self._recipe(bound, origin), name=f"q{next(self._numbers)}")
        self._selects.add(query)
        return self._made(query)

    def _insert(self, bound: st.Insert, origin: Origin, *, create: bool = False) -> Query:
        from cql.planner.logical import TIME, WEIGHT

        recipe = self._recipe(bound.query, origin)
        changing = recipe.changelog or bound.query.emit_changes is not None
        if changing and not create and bound.columns[:2] != (TIME, WEIGHT):
            raise PlanError(
                "rows of this query also change and leave: a table takes rows that stay",
                position=bound.query.pos or bound.pos,
                hint="INSERT INTO … ISTREAM(SELECT …) gives the rows that enter; a table that"
                f" begins with columns {TIME} and {WEIGHT} takes the changes",
            )
        epoch = None if recipe.bounded else origin.settings.epoch_ms / 1000
        target = self._target(bound.target, recipe.schema, epoch, bound.pos, create=create)
        query = Query(recipe, target, f"q{next(self._numbers)}")
        self._inserts.append(query)
        return self._made(query)

    def _target(
        self,
        name: Name,
        schema: Schema,
        epoch: float | None,
        pos: Position | None,
        *,
        create: bool | None = None,
    ) -> Target:
        """Where rows of ``schema`` go; ``create`` None makes a table where there is none."""

        def sink() -> Sink:
            try:
                new = self.catalog.find(name) is None if create is None else create
                return self.catalog.sink(name, schema, create=new)
            except CqlError as error:
                error.position = error.position or pos
                raise

        return Target(".".join(name), sink, epoch)

    def _made(self, query: Query) -> Query:
        """EXPLAIN makes queries, too, and runs none."""
        if self._latest is not None and self._latest.has_run:
            self._ran = self._latest
        self._latest = query
        return query

    def _recipe(self, bound: st.Query, origin: Origin) -> Recipe:
        """Optimizes and plans; every refusal of the planner comes from here."""
        from cql.explanation import explanation
        from cql.planner import lower, physical, rules

        logical = rules.optimize(bound.plan)
        plan = lower.plan(
            logical,
            origin.settings,
            keep_bad_rows=bound.keep_bad_rows,
            emit_changes=bound.emit_changes,
        )

        bounded, kept = physical.bounded(plan.root), None
        target, late = bound.late_output, physical.late_rows(plan.root)
        if target is not None and late is not None:
            epoch = None if bounded else origin.settings.epoch_ms / 1000
            kept = self._target(target.name, late.schema, epoch, target.pos)

        def run() -> Run:
            made = self._run(plan, origin.settings)
            made.on_notice = self._notice
            return made

        return Recipe(
            text=origin.text,
            source=origin.source,
            schema=plan.root.schema,
            bounded=bounded,
            windowed=physical.windowed(plan.root),
            run=run,
            explain=lambda mode, latest: explanation(mode, logical, plan, latest, run),
            event_time_type=_event_time_type(plan),
            changelog=plan.changelog and not plan.emits_changes,
            order=plan.order,
            late=kept,
        )

    def queries(self) -> list[Query]:
        """Queries that run or have run: all that are running, and the latest INSERTs."""
        known = [*self._inserts, *(q for q in list(self._selects) if q.is_active)]
        return sorted((q for q in known if q.status != "ready"), key=lambda q: int(q.name[1:]))

    def latest_query(self) -> Query:
        """The query that SHOW LATE and SHOW BAD ROWS are about; PlanError if there is none."""
        for query in (self._latest, self._ran, *reversed(self.queries())):
            if query is not None and query.has_run:
                return query
        raise PlanError("no query has run yet in this session")

    def stop(self, query: int | str) -> bool:
        """Stops a query by its name or number (``q1``, ``1``); True once it has ended."""
        return self._find_query(str(query), None).stop()

    def _find_query(self, name: str, position: Position | None) -> Query:
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

    def _stop_query(self, bound: st.StopQuery) -> Result:
        query = self._find_query(bound.name, bound.pos)
        if not query.is_active:
            return done(f"{query.name} is not running: it has {_ENDED[query.status]}")
        ended = query.stop()
        return done(f"{query.name} {'has stopped' if ended else 'is stopping'}")

    def _explain(self, bound: st.Explain, origin: Origin) -> Result:
        from cql.explanation import logical_text
        from cql.planner import statements as st

        inner = bound.statement
        if not isinstance(inner, st.Query | st.Insert):
            raise PlanError("EXPLAIN takes a SELECT or an INSERT", position=bound.pos)
        if bound.mode == "logical":
            # Also of a query that binds and cannot run yet.
            return explained(logical_text(inner.query if isinstance(inner, st.Insert) else inner))
        query = self._execute(inner, origin)
        assert isinstance(query, Query)
        return explained(query.explain(bound.mode))

    # ----------------------------------------------------------------- names

    def names(self) -> list[str]:
        """All names that a query may use, as text; starts no JVM."""
        known = {".".join(n) for n in (*self._views, *self._streams, *self.catalog.names())}
        return sorted(known)

    def named_queries(self) -> dict[Name, st.NamedQuery]:
        """Views and named intermediate streams."""
        return {**self._views, **self._streams}

    def constants(self) -> dict[str, Literal]:
        return dict(self._constants)

    def function(
        self,
        returns: Type | Callable[..., Any] | None = None,
        *,
        args: Sequence[Type] | None = None,
        name: str | None = None,
        null_handling: str = "default",
    ) -> Any:
        """``cql.function`` that also registers: a decorator for functions of this session."""
        from cql.functions import function as declaring

        made = declaring(returns, args=args, name=name, null_handling=null_handling)
        if callable(returns) and not isinstance(returns, type):
            return self._register(made)
        return lambda function: self._register(made(function))

    def aggregate(
        self,
        returns: Type | None = None,
        *,
        args: Sequence[Type] | None = None,
        name: str | None = None,
        null_handling: str = "default",
    ) -> Any:
        """``cql.aggregate`` that also registers: a decorator for aggregates of this session."""
        from cql.aggregates import aggregate, is_definition

        made = aggregate(returns, args=args, name=name, null_handling=null_handling)
        if is_definition(returns):
            return self._register(made)
        return lambda definition: self._register(made(definition))

    def register_function(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Type] | None = None,
        returns: Type | None = None,
        *,
        null_handling: str = "default",
    ) -> None:
        """Makes a Python function (or a class that is an aggregate: ``cql.aggregate``) known to the
        queries that follow, as ``name``; one of that name is replaced, and queries that were made
        before keep the one that they have. Types and NULLs: see ``cql.function``."""
        from cql.functions import declare as declared

        self._register(declared(function, name, args, returns, null_handling))

    def register_functions(self, functions: Functions) -> None:
        """All functions of a list, a mapping, a module or a Python file; see ``connect``."""
        from cql.functions import collect

        for function in collect(functions):
            self._register(function)

    def drop_function(self, name: str) -> None:
        """Forgets a function of the user's; BindError if there is none."""
        with self._lock:
            if self._functions.pop(name.lower(), None) is None:
                known = [f.name for f in self._functions.values()]
                raise BindError(
                    f"there is no function {name} of yours",
                    hint=did_you_mean(name, known, what="there are"),
                )

    def functions(self) -> dict[str, Declared]:
        """The user's functions, by names in lower case."""
        return dict(self._functions)

    def _register(self, function: Declared) -> Declared:
        self._check_open()
        with self._lock:
            self._functions[function.name.lower()] = function
        return function

    def schema_of(self, name: Name) -> Schema | None:
        """The columns of a stream, table or view; None if there is none of that name."""
        if any(_fold(n) == _fold(name) for n in self.named_queries()):
            query = next(self.statements(f"SELECT * FROM {_quoted(name)}"))
            assert isinstance(query, Query)
            return query.schema
        relation = self.catalog.find(name)
        return None if relation is None else relation.schema

    def create_stream(
        self,
        name: str,
        data: Any,
        ordered_by: Names | None = None,
        *,
        unit: str | None = None,
        watermark: Mapping[str, Slack] | str | None = None,
        slack: Slack | None = None,
        update_key: Names | None = None,
        rate: float | None = None,
        punctuated: Mapping[str, str] | Names | None = None,
        max_advance: Slack | None = None,
        idle_after: Slack | None = None,
        heartbeat: tuple[Slack, Slack] | None = None,
        bounded: bool | None = None,
        replace: bool = False,
        **options: Any,
    ) -> None:
        """Declares a stream over ``data``: an Arrow table or batch reader, a pandas, polars or
        Spark frame, the name of a table, a path (with the ``options`` of its format), or an
        iterable or function of batches, mappings or tuples.

        ``ordered_by``: the columns that progress; ``unit``: what one step of an integer one is
        (``'seconds'``); ``slack``: by how much they may fall back (``'5 seconds'``, a timedelta, or
        a number of their units). ``watermark`` is another spelling: ``{'ts': '5 seconds'}``.
        ``punctuated``: the columns on which the source says itself how far it is, by
        ``cql.Punctuation`` between its rows, or by rows with a true marker, ``{'ts': 'marker'}``.
        ``max_advance``, ``idle_after`` and ``heartbeat=(every, slack)`` are the clauses of CREATE
        STREAM.
        ``bounded=False``: an iterable that never ends, or a folder or Spark table to follow. A
        streaming DataFrame of Spark has no end by itself; ``poll='100 ms'`` says how often Spark
        looks for more rows of it, or of a table that is followed."""
        self._check_open()
        clauses = Clauses(
            ordered_by,
            unit,
            watermark,
            slack,
            update_key,
            rate,
            punctuated,
            max_advance,
            idle_after,
            heartbeat,
        )
        with self._lock:
            declare(self.catalog, parts_of(name), data, clauses, bounded, options, replace=replace)

    def register_table(self, name: str, data: Any, *, replace: bool = False) -> None:
        """Makes a table in memory, with the rows of ``data`` (anything of columns or rows)."""
        self._check_open()
        with self._lock:
            self.catalog.local.create_table(parts_of(name), data, replace=replace)

    def _create_stream(self, bound: st.CreateStream) -> Result:
        if self._taken(bound, "stream"):
            return done(f"stream {'.'.join(bound.name)} exists already")
        self.catalog.create_stream(bound.name, bound.definition, replace=bound.replace)
        return done(f"stream {'.'.join(bound.name)} created")

    def _create_view(self, bound: st.CreateView) -> Result:
        kind, name = bound.definition.kind, ".".join(bound.name)
        if self._taken(bound, kind):
            return done(f"{kind} {name} exists already")
        self._forget(bound.name)
        table = self._views if kind == "view" else self._streams
        table[bound.name] = bound.definition
        return done(f"{kind} {name} created")

    def _create_table(self, bound: st.CreateTable, origin: Origin) -> Query | Result:
        from cql.planner import statements as st

        name = ".".join(bound.name)
        if self._taken(bound, "table"):
            return done(f"table {name} exists already")
        if bound.query is not None:
            if bound.replace:
                raise NotSupportedError(
                    "CREATE OR REPLACE TABLE … AS is not supported",
                    position=bound.pos,
                    hint=f"DROP TABLE IF EXISTS {name}, then CREATE TABLE {name} AS …",
                )
            if bound.format is not None:
                self.catalog.check_format(bound.name, bound.format)
            insert = st.Insert(bound.name, bound.schema.names, bound.query, bound.pos)
            return self._insert(insert, origin, create=True)
        if bound.replace:
            self.catalog.drop(bound.name, "table")
        self.catalog.create_table(bound.name, bound.schema, format=bound.format)
        return done(f"table {name} created")

    def _create_constant(self, bound: st.CreateConstant) -> Result:
        old = next((n for n in self._constants if n.lower() == bound.name.lower()), None)
        if old is not None:
            if not bound.replace:
                raise BindError(
                    f"constant {old} exists already",
                    position=bound.pos,
                    hint="CREATE OR REPLACE CONSTANT gives it another value",
                )
            del self._constants[old]
        self._constants[bound.name] = bound.value
        return done(f"constant {bound.name} created")

    def _taken(self, bound: st.CreateStream | st.CreateView | st.CreateTable, kind: str) -> bool:
        """Whether IF NOT EXISTS makes the statement do nothing; BindError if the name is taken."""
        known = next((n for n in self.named_queries() if _fold(n) == _fold(bound.name)), None)
        relation = self.catalog.find(bound.name) if known is None else None
        if (known is None and relation is None) or bound.replace:
            return False
        if bound.if_not_exists:
            return True
        what = self.named_queries()[known].kind if known is not None else None
        what = relation.kind if relation is not None else what
        raise BindError(
            f"{what} {'.'.join(bound.name)} exists already",
            position=bound.pos,
            hint=f"CREATE OR REPLACE {kind.upper()} …, or CREATE {kind.upper()} IF NOT EXISTS …",
        )

    def _forget(self, name: Name) -> bool:
        """Drops a view or named stream; False if there is none of that name."""
        for table in (self._views, self._streams):
            for known in list(table):
                if _fold(known) == _fold(name):
                    del table[known]
                    return True
        return False

    def _drop(self, bound: st.Drop) -> Result:
        name = ".".join(bound.name)
        if not self._drop_one(bound):
            if bound.if_exists:
                return done(f"there is no {bound.kind} {name}")
            known = self._constants if bound.kind == "constant" else self.names()
            other = None if bound.kind == "constant" else self._kind_of(bound.name)
            hint = did_you_mean(name, known, what="known")
            raise BindError(
                f"there is no {bound.kind} {name}",
                position=bound.pos,
                hint=hint if other is None else f"it is a {other}: DROP {other.upper()} {name}",
            )
        return done(f"{bound.kind} {name} dropped")

    def _kind_of(self, name: Name) -> str | None:
        """What ``name`` stands for: a view, a stream or a table."""
        for known, query in self.named_queries().items():
            if _fold(known) == _fold(name):
                return query.kind
        relation = self.catalog.find(name)
        return None if relation is None else relation.kind

    def _drop_one(self, bound: st.Drop) -> bool:
        match bound.kind:
            case "constant":
                wanted = bound.name[-1].lower()
                for known in [n for n in self._constants if n.lower() == wanted]:
                    del self._constants[known]
                    return True
                return False
            case "view" | "stream":
                named = {_fold(n): q.kind for n, q in self.named_queries().items()}
                if named.get(_fold(bound.name)) == bound.kind:
                    return self._forget(bound.name)
        return self.catalog.drop(bound.name, bound.kind)

    # ----------------------------------------------------------------- settings

    @property
    def settings(self) -> Settings:
        return self._settings

    def set(self, name: str, value: Any) -> None:
        """Changes a setting for the statements that follow; raises SettingError."""
        self._settings = self._settings.with_(name, value)

    def _set(self, bound: st.Set) -> Result:
        from cql import listing

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

    def _tell(self, context: Context) -> None:
        """Shows the notices of a statement, each text once in a session."""
        for notice in context.warnings:
            place = notice.pos
            where = f" (line {place.line}, column {place.column})" if place else ""
            self._notice(notice.message, where)

    def _notice(self, message: str, where: str = "") -> None:
        if message not in self._noticed:
            self._noticed.add(message)
            self.on_notice(message + where)

    def warm_up(self) -> None:
        """Loads what the first query needs anyway."""
        import cql.executor.execution
        import cql.planner.bind  # noqa: F401

    def close(self) -> None:
        """Stops what runs, and the Spark that this session started. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        running = [q for q in self.queries() if q.is_active]
        for query in running:
            query.stop(timeout=0)
        for query in running:
            query.stop()
        self.catalog.close()

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


def _warn(message: str) -> None:
    warnings.warn(message, CqlWarning, stacklevel=6)


def _execution(plan: PhysicalPlan, settings: Settings) -> Run:
    from cql.executor.execution import Execution

    return Execution(plan, settings)


def _outermost(tree: exp.Expression) -> exp.Expression | None:
    """The SELECT whose hints hold for a whole statement; None if it runs no query."""
    from sqlglot import exp

    from cql.dialect import nodes

    node: Any = tree.this if isinstance(tree, nodes.Explain) else tree
    if isinstance(node, nodes.InsertInto | nodes.CreateTable):
        node = node.args.get("query")
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    return node if isinstance(node, exp.Select) else None


def _event_time_type(plan: PhysicalPlan) -> DataType | None:
    from cql.planner.physical import sources

    for source in sources(plan.root):
        spec = source.relation.stream
        for progress in spec.progress if spec is not None else ():
            index = source.relation.schema.find(progress.column)
            if index is not None:
                return source.relation.schema[index].type
    return None


def _fold(name: Name) -> Name:
    return tuple(part.lower() for part in name)


_ENDED = {
    "ready": "not been started",
    "finished": "finished",
    "stopped": "been stopped",
    "failed": "failed",
}


def _quoted(name: Name) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name)
