"""Aggregate functions that users write in Python: a flat state, and the functions that change it.

The state of a group is a tuple of numbers and booleans. ``init()`` returns the state without rows,
``update(state, x, …)`` the state after a row, ``merge(a, b)`` the state of two parts of a group
together, and ``final(state)`` the result. Rows arrive in any order, so that the order must not
matter: ``merge`` is commutative and associative, and merging with ``init()`` changes nothing.
``retract(state, x, …)`` undoes an update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from cql.base.call_timeout import Limit
from cql.base.foreign import object_text
from cql.base.reentrancy import OneAtATime
from cql.base.types import BOOLEAN, DataType
from cql.errors import BindError, Position
from cql.planner.functions.signature import Builder, Signature, argument
from cql.planner.functions.user.functions import CATEGORY, called
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.python_values import from_python, to_python
from cql.planner.nodes.expr import Expr, Value
from cql.planner.nodes.logical import AggregateCall

#: The types of a function's arguments. A nested tuple is one argument: a state.
Shape: TypeAlias = tuple[DataType | tuple[DataType, ...], ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class UserMethod:
    """One of the functions of an aggregate. ``gives_tuple``: the function returns a state."""

    name: str  # with the name of the aggregate: "mean.update"
    function: Callable[..., Any]
    shape: Shape
    results: tuple[DataType, ...]
    gives_tuple: bool
    sees_null: bool = False
    limit: Limit | None = None  # time limit of one call
    lock: OneAtATime | None = None  # one for all functions of an aggregate; see ``UserFunction``

    @property
    def parallel(self) -> bool | None:
        """See ``UserFunction``."""
        return None if self.lock is None else False

    def compute(self, values: Sequence[Value]) -> tuple[Value, ...] | None:
        """The results for flat arguments in storage form; None is NULL. Raises EvaluationError."""
        rest = list(values)
        given: list[object] = []
        for part in self.shape:
            if isinstance(part, tuple):
                given.append(tuple(to_python(rest.pop(0), kind) for kind in part))
            else:
                given.append(to_python(rest.pop(0), part))
        made = called(self.name, self.function, *given, limit=self.limit, lock=self.lock)
        if not self.gives_tuple:
            (kind,) = self.results
            return None if made is None else (from_python(made, kind, f"{self.name} returned"),)
        return self.checked(made)

    def checked(self, made: object) -> tuple[Value, ...]:
        """The state ``made``, which a function returned, in storage form. Raises EvaluationError
        for an object that is no state."""
        state = parts(made)
        if state is None or len(state) != len(self.results):
            raise EvaluationError(
                "function",
                f"{self.name} returned {object_text(made)}, not a tuple of {len(self.results)}",
            )
        if any(v is None for v in state):
            raise EvaluationError(
                "function", f"{self.name} returned a state with None: {object_text(made)}"
            )
        what = f"{self.name} returned a state with"
        kinds = self.results
        return tuple(from_python(v, kind, what) for v, kind in zip(state, kinds, strict=True))


def parts(made: object) -> tuple[object, ...] | None:
    """The items of a tuple or a list, without calling methods of a subclass; None for any other
    object."""
    kind = type(made)
    if issubclass(kind, tuple):
        return tuple(tuple.__iter__(cast("tuple[object, ...]", made)))
    if issubclass(kind, list):
        return tuple(list.__iter__(cast("list[object]", made)))
    return None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class UserAggregate:
    """An aggregate function. ``start`` is the state without rows, in storage form. ``merge`` None:
    states of parts of a group cannot be merged. ``retract`` None: rows cannot be retracted from a
    state. ``sees_null``: ``update`` also gets rows with NULL arguments."""

    name: str
    parameters: tuple[tuple[str, DataType], ...]
    returns: DataType
    state: tuple[DataType, ...]
    start: tuple[Value, ...]
    update: UserMethod
    merge: UserMethod | None
    retract: UserMethod | None
    final: UserMethod
    sees_null: bool = False
    help: str = ""
    definition: object = field(default=None, repr=False)  # the class that declares it
    _limited: dict[Limit, UserAggregate] = field(init=False, repr=False, default_factory=dict)

    def within(self, limit: Limit | None) -> UserAggregate:
        """The aggregate with the time limit ``limit``; see ``UserFunction.within``."""
        if limit is None:
            return self
        if limit not in self._limited:
            self._limited[limit] = replace(
                self,
                update=replace(self.update, limit=limit),
                merge=None if self.merge is None else replace(self.merge, limit=limit),
                retract=None if self.retract is None else replace(self.retract, limit=limit),
                final=replace(self.final, limit=limit),
            )
        return self._limited[limit]

    @property
    def parallel(self) -> bool | None:
        """Whether several threads may run its functions at once; see ``UserFunction``."""
        return self.update.parallel

    @property
    def methods(self) -> tuple[UserMethod, ...]:
        every = (self.update, self.merge, self.retract, self.final)
        return tuple(m for m in every if m is not None)

    @property
    def usage(self) -> str:
        inner = ", ".join(f"{name} {kind}" for name, kind in self.parameters)
        return f"{self.name}({inner}) → {self.returns}"

    @property
    def signature(self) -> Signature:
        arity = len(self.parameters)
        return Signature(self.name, CATEGORY, self.usage, self.help, (arity, arity), self._refuse())

    def _refuse(self) -> Builder:
        def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
            raise BindError(f"{self.name} is an aggregate function", position=pos)

        return build

    def resolve(
        self,
        args: Sequence[Expr],
        distinct: bool,
        where: Expr | None,
        pos: Position | None,
    ) -> AggregateCall:
        """The typed call; see ``aggregates.resolve_aggregate``. Raises BindError for wrong
        arguments."""
        wanted = len(self.parameters)
        if len(args) != wanted:
            raise BindError(
                f"{self.name} takes {wanted} argument{'' if wanted == 1 else 's'}, not {len(args)}",
                position=pos,
                hint=f"usage: {self.usage}",
            )
        if distinct and wanted != 1:
            raise BindError(
                f"{self.name}(DISTINCT …) takes one argument, not {wanted}",
                position=pos,
                hint="aggregate over a subquery in FROM: (SELECT DISTINCT …)",
            )
        if distinct and self.sees_null:
            raise BindError(
                f"{self.name}(DISTINCT …) is not possible: it counts rows that are NULL",
                position=pos,
            )
        if where is not None:
            where = argument(where, BOOLEAN, "FILTER(WHERE condition)", 1, pos)
        typed = tuple(
            argument(arg, kind, self.usage, k, pos)
            for k, (arg, (_, kind)) in enumerate(zip(args, self.parameters, strict=True), 1)
        )
        return AggregateCall(
            self.name, typed, self.returns, True, distinct, where, pos, function=self
        )
