"""The state of one run of ``bind``, shared by all its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from sqlglot import exp

from cql.base.call_timeout import Limit
from cql.base.model import Field, Schema
from cql.base.settings import Settings
from cql.base.slack import parse_slack
from cql.dialect import position_of
from cql.errors import (
    BindError,
    CqlError,
    NotSupportedError,
    PlanError,
    Position,
    did_you_mean,
)
from cql.planner.functions.signature import Signature
from cql.planner.functions.user.aggregates import UserAggregate
from cql.planner.functions.user.functions import UserFunction
from cql.planner.functions.user.operators import UserOperator
from cql.planner.nodes.catalog import Relation, Relations
from cql.planner.nodes.expr import Column, Expr, Literal
from cql.planner.nodes.expr_size import Sizes
from cql.planner.nodes.logical import Logical, Project
from cql.planner.nodes.statements import Name, NamedQuery

if TYPE_CHECKING:
    from cql.planner.bind.scope import Scope

#: Views and CTEs are expanded wherever they are used, so that their sizes multiply. The limits:
#: inputs of a statement after the expansion, and views and CTEs nested in one another.
MAX_INPUTS = 2_000
MAX_EXPANSIONS = 100


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning about a construct that is allowed and may be a mistake."""

    message: str
    pos: Position | None = None


@dataclass(slots=True)
class Context:
    """The names that a statement may refer to besides the catalog; ``bind`` fills ``warnings``, and
    ``relations`` with what the catalog has under each name that the statement refers to.

    ``parameters`` are Python values for ``:name`` (int, float, str, bool, None, datetime, date,
    Decimal, timedelta); ``constants`` come from CREATE CONSTANT; ``views`` and ``streams`` from
    CREATE VIEW and CREATE STREAM … AS. All these names are matched without regard to case.
    ``functions`` are the user's functions and operators, by names in lower case."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Literal] = field(default_factory=dict)
    views: Mapping[Name, NamedQuery] = field(default_factory=dict)
    streams: Mapping[Name, NamedQuery] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    functions: Mapping[str, UserFunction | UserAggregate | UserOperator] = field(
        default_factory=dict
    )
    warnings: list[Notice] = field(default_factory=list)
    relations: dict[Name, Relation | None] = field(default_factory=dict)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures of the user's functions, by names in lower case."""
        limit = self._limit
        return {name: f.within(limit).signature for name, f in self.functions.items()}

    def aggregate(self, name: str) -> UserAggregate | None:
        """The user's aggregate of that name."""
        found = self.functions.get(name.lower())
        return found.within(self._limit) if isinstance(found, UserAggregate) else None

    def operator(self, name: str) -> UserOperator | None:
        """The user's operator of that name."""
        found = self.functions.get(name.lower())
        return found.within(self._limit) if isinstance(found, UserOperator) else None

    @property
    def _limit(self) -> Limit | None:
        """The time limit of one call of a user's function."""
        text = self.settings.function_timeout
        slack = None if text == "off" else parse_slack(text)
        return None if slack is None else Limit(slack.microseconds or 0, text)

    def named(self, name: Name) -> tuple[Name, NamedQuery] | None:
        """The declared name and the query of the view or intermediate stream ``name``, or None."""
        folded = fold(name)
        for known in (self.views, self.streams):
            for key, query in known.items():
                if fold(key) == folded:
                    return key, query
        return None

    def names_value(self, name: str) -> bool:
        """Whether ``name`` is a constant or a parameter."""
        return self.constant(name) is not None or match_name(self.parameters, name) is not None

    def constant(self, name: str) -> Literal | None:
        """The constant ``name``; a match in the same case wins."""
        found: Literal | None = match_name(self.constants, name)
        return found


def fold(name: Name) -> Name:
    return tuple(part.lower() for part in name)


def match_name(table: Mapping[str, Any], name: str) -> Any:
    """``table[name]`` without regard to case, or None; a match in the same case wins."""
    if name in table:
        return table[name]
    return next((v for k, v in table.items() if k.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound query. The last ``hidden`` columns of the plan are pseudo-columns (the window columns
    of a derived stream), which ``*`` does not show."""

    plan: Logical
    hidden: int = 0

    @property
    def width(self) -> int:
        """The number of columns that ``*`` shows."""
        return len(self.plan.schema) - self.hidden

    def shown(self) -> Logical:
        """The plan without its hidden columns."""
        if not self.hidden:
            return self.plan
        fields = self.plan.schema.fields[: self.width]
        exprs = tuple(Column(k, f.name, f.type, f.nullable) for k, f in enumerate(fields))
        return Project(self.plan, exprs, tuple(f.name for f in fields))


@dataclass(frozen=True, slots=True)
class Env:
    """The names that a query sees from outside: CTEs, and the columns of the outer row."""

    ctes: Mapping[str, tuple[exp.Expr, tuple[str, ...], Env]] = field(default_factory=dict)
    outer: Scope | None = None

    def under(self, scope: Scope) -> Env:
        """The environment of a subquery inside an expression over ``scope``."""
        return replace(self, outer=scope)

    def alone(self) -> Env:
        """The environment of a subquery in FROM, which does not see the outer row."""
        return replace(self, outer=None)


class QueryBinder(Protocol):
    def __call__(self, binder: Binder, node: exp.Expr, env: Env) -> Bound: ...


class Binder:
    """One run of ``bind``: the catalog, the context, and the current place in the text.

    ``query`` is the function that binds a (sub)query. It is a parameter because expressions contain
    queries and queries contain expressions: a direct import would be circular."""

    def __init__(self, catalog: Relations, context: Context, query: QueryBinder) -> None:
        self.catalog = catalog
        self.context = context
        self._query = query
        self._inside: tuple[Name, ...] = ()
        self._expanded = False
        self._at: Position | None = None
        self._inputs = 0
        self._depth = 0
        self._sizes = Sizes()
        #: ids of the queries of WITH that the statement refers to
        self.used: set[int] = set()
        #: a division of an integer by an integer, for the notice of ``bind``
        self.divided: exp.Expr | None = None
        #: the value of each DEFAULT of an INSERT, by the id of its node
        self.defaults: dict[int, Literal] = {}
        #: the SELECT whose hints apply to the whole statement
        self.hinted: exp.Expr | None = None
        #: ids of the queries of views, which may have EMIT
        self.views: set[int] = set()
        #: the places where the statement reads a view with EMIT CHANGES
        self.emitting: list[Position | None] = []

    def query(self, node: exp.Expr, env: Env) -> Bound:
        return self._query(self, node, env)

    def find(self, name: Name) -> Relation | None:
        """The relation called ``name``, or None."""
        found = self.catalog.find(name)
        self.context.relations[name] = found
        return found

    def pos(self, node: exp.Expr) -> Position | None:
        """The place of ``node`` in the statement; inside an expanded view, the place of its use."""
        if self._expanded:
            return self._at
        place = position_of(node)
        while place is None and node.parent is not None:
            node = node.parent
            place = position_of(node)
        return place

    def error(self, message: str, node: exp.Expr, hint: str | None = None) -> BindError:
        return BindError(message, position=self.pos(node), hint=hint)

    def unsupported(
        self, clause: str, node: exp.Expr, hint: str | None = None
    ) -> NotSupportedError:
        return NotSupportedError(f"{clause} is not supported", position=self.pos(node), hint=hint)

    def warn(self, message: str, node: exp.Expr) -> None:
        notice = Notice(message, self.pos(node))
        if notice not in self.context.warnings:
            self.context.warnings.append(notice)

    def count_input(self, node: exp.Expr) -> None:
        """Counts an input. Raises PlanError above ``MAX_INPUTS`` inputs."""
        self._inputs += 1
        if self._inputs > MAX_INPUTS:
            raise PlanError(
                f"the statement reads more than {MAX_INPUTS:,} inputs once its views and CTEs are"
                " expanded",
                position=self.pos(node),
                hint="store an intermediate result in a table",
            )

    def check_size(self, expr: Expr, node: exp.Expr) -> None:
        """Raises PlanError for an expression that aliases and repeated operands make too large."""
        if not self._sizes.fits(expr):
            raise PlanError(
                "this expression is too large once its aliases are expanded",
                position=self.pos(node),
                hint="compute parts of it in subqueries",
            )

    @contextmanager
    def expanding(self, at: exp.Expr) -> Iterator[None]:
        """Enters a view or CTE. Raises PlanError above ``MAX_EXPANSIONS`` nested ones."""
        self._depth += 1
        if self._depth > MAX_EXPANSIONS:
            raise PlanError(
                f"more than {MAX_EXPANSIONS} views and CTEs stand in one another",
                position=self.pos(at),
                hint="store an intermediate result in a table",
            )
        try:
            yield
        finally:
            self._depth -= 1

    def expand(self, name: Name, named: NamedQuery, at: exp.Expr) -> Bound:
        """Binds the query of the view or stream ``name`` at its place of use."""
        if fold(name) in self._inside:
            raise self.error(f"{named.kind} {'.'.join(name)} refers to itself", at)
        with self.in_place(named.kind, name, at), self.expanding(at):
            return self._of_view(named.query)

    @contextmanager
    def in_place(self, kind: str, name: Name, at: exp.Expr) -> Iterator[None]:
        """Binds text that another statement declared under ``name``; errors point at ``at``, where
        the name is used."""
        before = self._inside, self._expanded, self._at
        self._inside, self._expanded, self._at = (*self._inside, fold(name)), True, self.pos(at)
        try:
            yield
        except CqlError as error:
            if not before[1]:
                error.message = f"in {kind} {'.'.join(name)}: {error.message}"
            raise
        finally:
            self._inside, self._expanded, self._at = before

    def define(self, name: Name, query: exp.Expr) -> Bound:
        """Binds the query that a statement declares as ``name``; the query may not refer to
        ``name``."""
        self._inside = (*self._inside, fold(name))
        return self._of_view(query)

    def _of_view(self, query: exp.Expr) -> Bound:
        self.views.add(id(query))
        return self.query(query, Env())


def find_column(binder: Binder, node: exp.Expr, schema: Schema | None) -> Field | None:
    """The column that a clause names; None if the statement lists no columns."""
    if schema is None:
        return None
    at = schema.find(node.name)
    if at is None:
        raise binder.error(
            f"there is no column {node.name}",
            node,
            hint=did_you_mean(node.name, schema.names, what="columns"),
        )
    return schema[at]
