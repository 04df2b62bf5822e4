"""The materialized views of a session's Spark catalog: their statements, and SELECTs that refresh
the views that they read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cql.catalog.spark import registry
from cql.catalog.spark.catalog import SparkRelation
from cql.catalog.spark.declared import VIEW
from cql.catalog.spark.quoting import quoted
from cql.catalog.spark.tables import table as spark_table
from cql.catalog.spark.tables.replace import ReplacingWriter, notes_of
from cql.catalog.spark.tables.write import create_table
from cql.errors import BindError, CqlError, NotSupportedError, did_you_mean
from cql.planner.nodes.statements import Name
from cql.query.prepared import Origin, RunPlan
from cql.query.query import Query, Target
from cql.query.result import Result, done
from cql.views.background import NoRows, RefreshRun
from cql.views.definition import Definition, defined
from cql.views.plan import ViewPlan, view_plan
from cql.views.refresh import EXPECTED, Refreshed, how, refresh
from cql.views.state import State

if TYPE_CHECKING:
    from cql.base.model import Schema
    from cql.base.settings import Settings
    from cql.base.types import DataType
    from cql.catalog.spark.catalog import SparkCatalog
    from cql.planner.bind.context import Context
    from cql.planner.nodes import statements as st


class Views:
    """``settings`` are the session's at the time of a refresh; ``run_plan`` and ``notify`` are its
    ways to run a plan and to show a notice. ``now`` is the clock, in seconds since 1970."""

    def __init__(
        self,
        spark: SparkCatalog,
        settings: Callable[[], Settings],
        run_plan: RunPlan,
        notify: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._spark, self._settings = spark, settings
        self._run_plan, self._notify, self._now = run_plan, notify, now

    # ----------------------------------------------------------------- statements

    def create(self, bound: st.CreateMaterializedView, origin: Origin) -> Result:
        """CREATE [OR REPLACE] MATERIALIZED VIEW: the table, and its first refresh."""
        dotted, session = ".".join(bound.name), self._spark.session()
        known = self._spark.stored(bound.name)
        if known is not None and known.kind != "materialized view":
            raise BindError(
                f"{dotted} is a {known.kind}",
                position=bound.pos,
                hint=f"DROP {known.kind.upper()} {dotted}, or choose another name",
            )
        definition = defined(bound, origin, self._spark)
        full = spark_table.full_name(session, bound.name)
        self._refuse_circle(full, definition, bound)
        made = self._plan(definition)
        schema = made.rows.to_arrow()
        properties = {VIEW: definition.to_json()}
        if known is not None and _columns(known.schema) == _columns(made.rows):
            before = {VIEW: known.view, "comment": spark_table.load(session, full).comment}
            self._alter(full, {**properties, "comment": bound.comment})
            try:
                return done(self._refreshed(bound.name, definition, made).text(dotted))
            except BaseException:
                self._alter(full, before)
                raise
        if known is not None:
            self._spark.drop(bound.name, "materialized view")
        create_table(session, full, schema, properties, bound.comment)
        try:
            text = self._refreshed(bound.name, definition, made).text(dotted)
        except BaseException:
            with contextlib.suppress(CqlError):
                self._spark.drop(bound.name, "materialized view")
            raise
        return done(text)

    def refresh(self, bound: st.RefreshView) -> Result:
        relation = self._find(bound.name, bound)
        made = self._refresh_now(relation, full=bound.full)
        return done(made.text(".".join(bound.name)))

    def refresher(
        self, bound: st.RefreshView, origin: Origin, name: str, wait: Callable[..., object]
    ) -> Query:
        """REFRESH … EVERY as a query called ``name``, which has not started."""
        relation = self._find(bound.name, bound)
        made, every = self._plan(self._definition(relation)), (bound.every or 0) / 1_000_000
        prepared = replace(
            made.prepared,
            text=origin.text,
            source=origin.source,
            bounded=False,
            live=True,
            run=lambda: RefreshRun(
                lambda: self._refresh_now(self._find(bound.name, bound), full=bound.full),
                every,
                wait,
            ),
        )
        target = Target(".".join(bound.name), lambda: NoRows(made.rows), None)
        return Query(prepared, target, name)

    def explain(self, bound: st.RefreshView, mode: str) -> str:
        """The plan of a view and how a refresh would go, which does not run."""
        relation = self._find(bound.name, bound)
        made = self._plan(self._definition(relation))
        return "\n".join([made.prepared.explain(mode, None), f"refresh: {how(made)}"])

    def describe(self, bound: st.Describe) -> Result:
        """DESCRIBE MATERIALIZED VIEW: one row per property."""
        relation = self._find(bound.name, bound)
        definition = self._definition(relation)
        session = self._spark.session()
        notes, _ = notes_of(session, relation.table)
        state = State.from_json(notes)
        comment = spark_table.load(session, relation.table).comment
        rows: list[tuple[str, str]] = [
            ("query", definition.text),
            ("comment", comment or ""),
            ("freshness", _freshness(definition)),
            ("refresh", how(self._plan(definition))),
            ("refreshed", "never" if state is None else _time(state.refreshed)),
        ]
        for name, files in () if state is None else state.bases.items():
            count = "as it was" if files is None else f"{len(files):,} files"
            rows.append(("reads", f"{'.'.join(name)}: {count}"))
        return Result(("property", "value"), tuple(rows))

    def show(self, names: Sequence[Name]) -> Iterator[tuple[Any, ...]]:
        """SHOW MATERIALIZED VIEWS: of ``names``, the views."""
        for name in sorted(names):
            relation = self._spark.stored(name)
            if relation is None or relation.kind != "materialized view":
                continue
            definition = self._definition(relation)
            notes, _ = notes_of(self._spark.session(), relation.table)
            state = State.from_json(notes)
            when = None if state is None else _time(state.refreshed)
            yield ".".join(name), definition.text, _freshness(definition), when

    # ----------------------------------------------------------------- freshness

    def freshen(self, context: Context) -> None:
        """Refreshes the views among the relations of a statement whose FRESHNESS is over, and
        finishes what a crash has left half published."""
        for relation in context.relations.values():
            if isinstance(relation, SparkRelation) and relation.view is not None:
                self._freshen(relation)

    def _freshen(self, relation: SparkRelation) -> None:
        session = self._spark.session()
        notes, published = notes_of(session, relation.table)
        state, definition = State.from_json(notes), self._definition(relation)
        current = state is not None and state.identity == definition.identity
        if not current or state is None or self._is_stale(state, definition):
            self._refresh_now(relation)
        elif not published:
            with ReplacingWriter(session, relation.table, relation.schema.to_arrow()):
                pass

    def _is_stale(self, state: State, definition: Definition) -> bool:
        if definition.freshness is None:
            return False
        return not 0 <= (self._now() - state.refreshed) * 1_000_000 <= definition.freshness

    # ----------------------------------------------------------------- refreshes

    def _refresh_now(self, relation: SparkRelation, *, full: bool = False) -> Refreshed:
        definition = self._definition(relation)
        return self._refreshed(relation.table, definition, self._plan(definition), full=full)

    def _refreshed(
        self, name: Name, definition: Definition, made: ViewPlan, *, full: bool = False
    ) -> Refreshed:
        """Refreshes the views that the view reads, and then the view itself. The notices name the
        reason why all rows were computed."""
        now, dotted = self._now(), ".".join(name)
        for base in made.bases.values():
            if base.view is not None:
                self._freshen(base)
        try:
            found = refresh(name, definition, made, self._spark, now, full=full)
        except CqlError as error:
            raise _inside(dotted, definition, error) from error.__cause__
        if found.why is not None and found.why not in EXPECTED:
            self._notify(f"materialized view {dotted} was computed anew: {found.why}")
        return found

    def _plan(self, definition: Definition) -> ViewPlan:
        try:
            return view_plan(definition, self._spark, self._settings(), self._run_plan)
        except CqlError as error:
            raise _placed(error, definition) from error.__cause__

    def _definition(self, relation: SparkRelation) -> Definition:
        assert relation.view is not None
        return Definition.from_json(relation.view, ".".join(relation.table))

    def _find(self, name: Name, at: st.RefreshView | st.Describe) -> SparkRelation:
        relation = self._spark.stored(name)
        if relation is None or relation.kind != "materialized view":
            dotted = ".".join(name)
            known = [".".join(n) for n in self._spark.names()]
            other = None if relation is None else f"it is a {relation.kind}"
            raise BindError(
                f"there is no materialized view {dotted}",
                position=at.pos,
                hint=other or did_you_mean(dotted, known, what="known"),
            )
        return relation

    def _refuse_circle(
        self, full: Name, definition: Definition, bound: st.CreateMaterializedView
    ) -> None:
        """Raises NotSupportedError for a view that reads itself, perhaps through other views."""
        waiting, seen = list(definition.names.values()), set[Name]()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            relation = self._spark.stored(name)
            if relation is None or relation.view is None:
                continue
            if _folded(spark_table.full_name(self._spark.session(), relation.table)) == _folded(
                full
            ):
                raise NotSupportedError(
                    f"a materialized view that reads itself ({'.'.join(bound.name)}) is not"
                    " supported",
                    position=bound.query.pos,
                )
            waiting += self._definition(relation).names.values()

    def _alter(self, full: Name, properties: dict[str, str | None]) -> None:
        session = self._spark.session()
        spark_table.alter_properties(session, full, properties)
        registry.record(session, quoted(full))


def _inside(dotted: str, definition: Definition, error: CqlError) -> CqlError:
    """The error with the text of the view, which its place belongs to."""
    prefix = f"in materialized view {dotted}: "
    if error.message and not error.message.startswith(prefix):
        error.message = prefix + error.message
    return _placed(error, definition)


def _placed(error: CqlError, definition: Definition) -> CqlError:
    return error if error.position is None else error.with_text(definition.text)


def _columns(schema: Schema) -> list[tuple[str, DataType]]:
    return [(f.name, f.type) for f in schema]


def _folded(name: Name) -> Name:
    return tuple(part.lower() for part in name)


def _freshness(definition: Definition) -> str:
    if definition.freshness is None:
        return "by REFRESH alone"
    return f"{definition.freshness / 1_000_000:g} seconds"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
