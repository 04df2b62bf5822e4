"""The interface between the expression emitter and the kernel writer, with small helpers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from cql.base.types import DataType, Kind
from cql.errors import Position
from cql.planner.functions.user.aggregates import UserMethod
from cql.planner.functions.user.functions import UserFunction
from cql.planner.nodes.expr import Call, Cast, Expr, Literal, Value


@dataclass(frozen=True, slots=True)
class Code:
    """An emitted expression. ``value`` is numba text in the type's storage dtype; ``valid`` names a
    boolean local, None where the value is never NULL."""

    value: str
    valid: str | None


@dataclass(frozen=True, slots=True)
class Again:
    """How Python computes a failed value again, to learn why it failed: ``compute`` over values of
    ``types``, which the kernel left in its words from ``first`` on. With ``masked``, the values'
    statuses stand behind them (0 NULL, 1 valid, 2 failed). ``of_row``: the row at hand is at
    fault."""

    compute: Callable[[Sequence[Value]], object]
    types: tuple[DataType, ...]
    first: int
    masked: bool = False
    of_row: bool = True


@dataclass(frozen=True, slots=True)
class ErrorSite:
    """A place in a kernel where a row can fail; ``kind`` is overflow, division by zero, cast,
    value, rows (of a subquery) or function (of a user: ``again`` finds the message)."""

    kind: str
    message: str
    pos: Position | None
    again: Again | None = None


@dataclass(frozen=True, slots=True)
class DictionaryTable:
    """A function of one string: its result for every code of the dictionary.

    ``expr`` reads the string as Column(0) of type ``leaf`` (string or binary). Entries have a
    status: 0 NULL, 1 valid, 2 error, 255 not computed yet."""

    expr: Expr
    leaf: DataType

    @property
    def type(self) -> DataType:
        return self.expr.type


@dataclass(frozen=True, slots=True)
class HostSite:
    """A function that Python computes, a column at a time: ``call`` over Column(i) = ``args[i]``.

    Rows have a status as dictionary entries do. A row whose arguments fail has status 2: it fails
    only if its own code reads the result."""

    call: Expr
    args: tuple[Expr, ...]

    @property
    def type(self) -> DataType:
        return self.call.type

    def with_args(self, args: tuple[Expr, ...]) -> HostSite:
        return HostSite(self.call, args)


#: What a kernel can call by address.
Called: TypeAlias = UserFunction | UserMethod


class Scope(Protocol):
    """One row loop under construction, given by the kernel writer.

    A host column has an entry per row; tables and ranks may lack codes of other operators."""

    def load(self, column: int) -> Code:
        """An input column; emits the load at the current place once."""
        ...

    def constant(self, literal: Literal) -> str:
        """Name of a kernel parameter in the literal's storage dtype."""
        ...

    def extra_constant(self, value: int) -> str:
        """Name of a derived int64 parameter."""
        ...

    def table(self, table: DictionaryTable) -> tuple[str, str]:
        """Names of the value and status arrays, indexed by code."""
        ...

    def rank(self) -> str:
        """Name of the int32 array that orders codes by their bytes."""
        ...

    def host(self, site: HostSite) -> tuple[str, str]:
        """Value and status expressions of this row."""
        ...

    def host_arguments(self, site: HostSite) -> list[tuple[str, str]]:
        """Value and status expressions of the arguments of this row."""
        ...

    def keep(self, words: Sequence[str], room: int = 0) -> int:
        """Emits stores of 64-bit words into words of the kernel's own, which no other code writes;
        returns the number of the first. ``room`` more words follow them."""
        ...

    def word(self, number: int) -> str:
        """A word of the kernel's own, as an expression."""
        ...

    def serial(self) -> str:
        """The serial number of the morsel, as an expression."""
        ...

    def call(self, function: Called, arguments: int, results: int) -> str:
        """The call of a function as an expression, its status. ``arguments`` and ``results`` are
        the numbers of its first argument word and of its first result word."""
        ...

    def need_table(self, table: DictionaryTable, code: str) -> str:
        """One statement that leaves the kernel to request a table's entry; the row is tried
        again."""
        ...

    def need_rank(self) -> str:
        """One statement that leaves the kernel to request the ranks of new codes; the row is tried
        again."""
        ...

    def fail(self, site: ErrorSite) -> str:
        """One statement that leaves the row with an error."""
        ...

    def words(self, values: Sequence[Literal | int]) -> Callable[[str], str]:
        """Words of the kernel's own that hold ``values``, as a function from the text of a number
        to the expression of the word."""
        ...

    def sorted_words(
        self, keys: Sequence[Literal]
    ) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """The same for keys: their words in ascending order (for fractions: ``key_bits``), and the
        number of each in ``keys``. Equal keys stay in their order."""
        ...

    def divide(self, expr: Expr) -> Expr:
        """``expr`` as it is to be emitted; a large expression is divided into parts (``parts``).
        The columns that it reads are loaded."""
        ...

    def part(self, expr: Expr, emit: Callable[[Expr, Scope], Code]) -> Code | None:
        """The call of a part, which ``emit`` writes into a function of its own; None if ``expr`` is
        no part."""
        ...

    def temp(self, prefix: str = "x") -> str: ...
    def line(self, text: str) -> None: ...
    def block(self) -> AbstractContextManager[None]: ...


# -- text of values ----------------------------------------------------------------------------

ZEROS = {
    "bool": "False",
    "int8": "int8(0)",
    "int16": "int16(0)",
    "int32": "int32(0)",
    "int64": "int64(0)",
    "float32": "float32(0.0)",
    "float64": "0.0",
}


def zero(kind: DataType) -> str:
    return ZEROS[kind.storage]


def wide(text: str, kind: DataType) -> str:
    """An integer-stored value as int64 text."""
    return text if kind.storage == "int64" else f"int64({text})"


def real(text: str, kind: DataType) -> str:
    return text if kind.storage == "float64" else f"float64({text})"


def stored(text: str, kind: DataType) -> str:
    """int64 or float64 text in the storage dtype of ``kind``."""
    dtype = kind.storage
    return text if dtype in ("int64", "float64", "bool") else f"{dtype}({text})"


def word(text: str, kind: DataType) -> str:
    """A value in its storage as a 64-bit word."""
    return f"bits_of_f64(float64({text}))" if kind.is_fraction else f"int64({text})"


def of_word(text: str, kind: DataType) -> str:
    """The inverse of ``word``."""
    if kind.is_fraction:
        return stored(f"f64_of_bits({text})", kind)
    return f"{text} != 0" if kind.kind is Kind.BOOLEAN else stored(text, kind)


# -- statements --------------------------------------------------------------------------------


def let(scope: Scope, text: str, prefix: str = "x") -> str:
    """A new local with that value."""
    name = scope.temp(prefix)
    scope.line(f"{name} = {text}")
    return name


@contextmanager
def when(scope: Scope, condition: str | None) -> Iterator[None]:
    """An ``if`` block; no block at all where the condition is None (always)."""
    if condition is None:
        yield
        return
    scope.line(f"if {condition}:")
    with scope.block():
        yield


def all_valid(scope: Scope, *codes: Code) -> str | None:
    """Name of the flag that is set when every code is valid."""
    names = list(dict.fromkeys(c.valid for c in codes if c.valid is not None))
    if len(names) <= 1:
        return names[0] if names else None
    return let(scope, " & ".join(names), "v")


def fail_if(scope: Scope, condition: str, valid: str | None, site: ErrorSite) -> None:
    """Leaves the row with an error where the condition holds and the value is not NULL."""
    with when(scope, condition if valid is None else f"{valid} and ({condition})"):
        scope.line(scope.fail(site))


def overflow(expr: Call | Cast, text: str) -> ErrorSite:
    return ErrorSite("overflow", f"{expr.type} overflow in {text}", expr.pos)


def fit(scope: Scope, x: str, to: DataType, valid: str | None, site: ErrorSite) -> str:
    """The int64 local ``x`` in the storage of ``to``; fails where it does not fit."""
    if to.kind is Kind.DECIMAL:
        limit = 10**to.precision
        fail_if(scope, f"{x} <= {-limit} or {x} >= {limit}", valid, site)
        return x
    dtype = to.storage
    if dtype == "int64":
        return x
    fail_if(scope, f"{x} != int64({dtype}({x}))", valid, site)
    return let(scope, f"{dtype}({x})")
