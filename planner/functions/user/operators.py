"""Operators that users write in Python: called for each row of a stream, with a state of declared
arrays, they emit rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cql.base.call_timeout import Limit
from cql.base.types import DataType
from cql.errors import BindError, Position
from cql.planner.functions.folding import fold
from cql.planner.functions.signature import Builder, Signature, argument
from cql.planner.functions.user.functions import CATEGORY
from cql.planner.nodes.expr import Expr, Literal


@dataclass(frozen=True, slots=True)
class StateField:
    """An array of the state: ``dtype`` is the name of numpy's type; a number has no ``shape``."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def text(self) -> str:
        inner = ", ".join(map(str, self.shape))
        return f"{self.name} {self.dtype}" + (f"[{inner}]" if self.shape else "")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class UserOperator:
    """An operator: ``function(state, row, emit, …)``, with the constants of ``parameters`` behind.
    At the end of the input, ``finish(state, emit, …)`` is called for each key. Two declarations are
    never equal, as those of ``UserFunction``. ``limit`` of a call."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[tuple[str, DataType], ...]
    returns: tuple[tuple[str, DataType], ...]
    state: tuple[StateField, ...]
    help: str = ""
    limit: Limit | None = None
    finish: Callable[..., Any] | None = None
    _limited: dict[Limit, UserOperator] = field(init=False, repr=False, default_factory=dict)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the Python function itself."""
        return self.function(*args, **named)

    def within(self, limit: Limit | None) -> UserOperator:
        """The operator with the time limit ``limit``; see ``UserFunction.within``."""
        if limit is None:
            return self
        if limit not in self._limited:
            self._limited[limit] = replace(self, limit=limit)
        return self._limited[limit]

    @property
    def parallel(self) -> bool | None:
        """See ``UserFunction``: its calls follow one another."""
        return None

    @property
    def sees_null(self) -> bool:
        """Whether it gets NULL, as None."""
        return True

    @property
    def usage(self) -> str:
        inner = "".join(f", {name} {kind}" for name, kind in self.parameters)
        made = ", ".join(f"{name} {kind}" for name, kind in self.returns)
        return f"{self.name}(TABLE t{inner}) → ({made})"

    @property
    def state_text(self) -> str:
        """The declaration of the state."""
        return ", ".join(f.text for f in self.state)

    @property
    def signature(self) -> Signature:
        return Signature(self.name, CATEGORY, self.usage, self.help, (0, None), self._refuse())

    def _refuse(self) -> Builder:
        def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
            raise self.misplaced(pos)

        return build

    def misplaced(self, pos: Position | None) -> BindError:
        """The error for a call of the operator that is no item of FROM."""
        return BindError(
            f"{self.name} is an operator over a table, and no function of values",
            position=pos,
            hint=f"SELECT … FROM {self.usage.partition(' → ')[0]}",
        )

    def resolve(self, args: Sequence[Expr], pos: Position | None) -> tuple[Literal, ...]:
        """The values of its parameters. Raises BindError for arguments that are no constants of
        their types, and for another number of them."""
        if len(args) != len(self.parameters):
            count = len(self.parameters)
            wanted = "no argument" if not count else f"{count} argument{'s' if count > 1 else ''}"
            raise BindError(
                f"{self.name} takes a table and {wanted}, not {len(args)}",
                position=pos,
                hint=f"usage: {self.usage}",
            )
        return tuple(
            self._constant(arg, kind, k, pos)
            for k, (arg, (_, kind)) in enumerate(zip(args, self.parameters, strict=True), 2)
        )

    def _constant(self, arg: Expr, kind: DataType, k: int, pos: Position | None) -> Literal:
        found = fold(argument(arg, kind, self.usage, k, pos))
        if not isinstance(found, Literal):
            raise BindError(
                f"argument {k} of {self.name} must be a constant",
                position=arg.pos or pos,
                hint=f"usage: {self.usage}; values of rows are columns of the table",
            )
        return found
