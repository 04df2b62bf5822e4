"""Functions that users write in Python, for the planner and the interpreter.

User functions are pure: the engine may keep a result, compute it again, or not compute it if no
operator reads it. ``executor.udf`` compiles the calls from kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cql.base.call_timeout import Limit, Strike, TimeLimitError, within
from cql.base.foreign import error_text
from cql.base.reentrancy import OneAtATime
from cql.base.types import DataType
from cql.errors import Position
from cql.planner.functions.signature import Signature, argument
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.python_values import from_python, to_python
from cql.planner.nodes.expr import Call, Expr, Value

#: The category of SHOW FUNCTIONS.
CATEGORY = "user"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class UserFunction:
    """A scalar function. Two declarations are never equal: a plan keeps the declaration with which
    it was made. ``sees_null``: the function gets NULL arguments as None; otherwise a NULL argument
    gives NULL without a call. ``limit`` is the time limit of a call. ``parallel``: whether several
    threads may run the function in Python at once (None: allowed, without a gain in speed); if not,
    a call holds ``lock``."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[tuple[str, DataType], ...]
    returns: DataType
    sees_null: bool = False
    help: str = ""
    limit: Limit | None = None
    parallel: bool | None = None
    lock: OneAtATime | None = None
    _limited: dict[Limit, UserFunction] = field(init=False, repr=False, default_factory=dict)
    __wrapped__: Callable[..., Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "__wrapped__", self.function)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the Python function itself."""
        return self.function(*args, **named)

    def within(self, limit: Limit | None) -> UserFunction:
        """The function with the time limit ``limit``. Equal limits return the same object, so that
        its code is compiled once."""
        if limit == self.limit:
            return self
        assert limit is not None
        if limit not in self._limited:
            self._limited[limit] = replace(self, limit=limit)
        return self._limited[limit]

    @property
    def types(self) -> tuple[DataType, ...]:
        return tuple(kind for _, kind in self.parameters)

    @property
    def shape(self) -> tuple[DataType, ...]:
        """The types of the arguments that kernels pass, as in ``UserMethod``."""
        return self.types

    @property
    def results(self) -> tuple[DataType, ...]:
        return (self.returns,)

    @property
    def gives_tuple(self) -> bool:
        return False

    def compute(self, values: Sequence[Value]) -> tuple[Value, ...] | None:
        made = self.evaluate(values)
        return None if made is None else (made,)

    @property
    def usage(self) -> str:
        inner = ", ".join(f"{name} {kind}" for name, kind in self.parameters)
        return f"{self.name}({inner}) → {self.returns}"

    @property
    def has_text(self) -> bool:
        """Whether an argument or the result is text; such a function runs in Python only."""
        return any(kind.is_text for kind in (*self.types, self.returns))

    def evaluate(self, values: Sequence[Value]) -> Value:
        """The value for arguments in storage form. Raises EvaluationError for any exception of the
        function, TimeLimitError for a call above its limit."""
        if not self.sees_null and any(v is None for v in values):
            return None
        given = [to_python(v, kind) for v, kind in zip(values, self.types, strict=True)]
        made = called(self.name, self.function, *given, limit=self.limit, lock=self.lock)
        return from_python(made, self.returns, f"{self.name} returned")

    def build(self, args: tuple[Expr, ...], pos: Position | None) -> Expr:
        typed = tuple(
            argument(arg, kind, self.usage, k, pos)
            for k, (arg, kind) in enumerate(zip(args, self.types, strict=True), 1)
        )
        return Call(self.name, typed, self.returns, True, pos, self)

    @property
    def signature(self) -> Signature:
        arity = len(self.parameters)
        return Signature(self.name, CATEGORY, self.usage, self.help, (arity, arity), self.build)


def called(
    name: str,
    function: Callable[..., Any],
    *args: object,
    limit: Limit | None = None,
    lock: OneAtATime | None = None,
) -> object:
    """``function(*args)``, with the ``lock`` held. Raises EvaluationError, which names the
    function, for any exception of the function, and TimeLimitError for a call above ``limit``."""
    try:
        timed = function if limit is None else partial(within, limit, name, function)
        return timed(*args) if lock is None else lock.call(timed, *args)
    except (EvaluationError, TimeLimitError, KeyboardInterrupt, Strike):
        raise
    except BaseException as error:
        raise EvaluationError("function", f"{name} raised {error_text(error)}") from None
