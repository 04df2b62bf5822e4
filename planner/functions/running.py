"""Running functions: functions of a number over the rows of a stream in their order, whose state
goes from row to row. Each gives a value for each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cql.base.types import BOOLEAN, DOUBLE, DataType
from cql.errors import BindError, NotSupportedError, Position
from cql.planner.functions import folding, signals
from cql.planner.functions.signature import Builder, Signature, argument
from cql.planner.interpret.entries import read_array
from cql.planner.nodes.expr import Call, Expr, Literal
from cql.planner.nodes.logical import RunningCall

#: Of a window of sta_lta: its samples are counted in 64 bits.
_LONGEST = 1 << 40
_HINT = "compute it in the select list of a subquery: FROM (SELECT *, {}(…) AS y FROM s)"


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of a call besides the first, which are constants."""

    name: str
    usage: str
    given: Sequence[Expr]
    pos: Position | None

    def number(self, k: int) -> float:
        return self._finite(self.given[k], f"argument {k + 2} of {self.name}")

    def whole(self, k: int) -> int:
        """Raises BindError for what is no whole number from 1 on."""
        value = self.number(k)
        if value != int(value) or not 1 <= value <= _LONGEST:
            raise self.error(
                f"argument {k + 2} of {self.name} must be a whole number from 1 on, but is"
                f" {value:.15g}",
                self.given[k],
            )
        return int(value)

    def numbers(self, k: int) -> tuple[float, ...]:
        """The numbers of an array, at least one."""
        given, what = self.given[k], f"argument {k + 2} of {self.name}"
        element, values = given.type.element, None
        if isinstance(given, Call) and given.fn == "array":
            values = given.args
        elif isinstance(given, Literal) and element is not None and isinstance(given.value, bytes):
            found = read_array(given.value, element)
            values = tuple(Literal(value, element, given.pos) for value in found)
        if not values:
            raise self.error(f"{what} must be an array of constant numbers: array(…)", given)
        return tuple(self._finite(e, f"an element of {what}") for e in values)

    def _finite(self, expr: Expr, what: str) -> float:
        cast = folding.fold(argument(expr, DOUBLE, self.usage, self._place(expr), self.pos))
        if not isinstance(cast, Literal):
            raise self.error(f"{what} must be a constant", expr)
        if cast.value is None or not math.isfinite(float(str(cast.value))):
            raise self.error(f"{what} must be a finite number", expr)
        return float(str(cast.value))

    def _place(self, expr: Expr) -> int:
        return next((k for k, e in enumerate(self.given, 2) if e is expr), 2)

    def error(self, message: str, expr: Expr | None = None) -> BindError:
        place = self.pos if expr is None or expr.pos is None else expr.pos
        return BindError(message, position=place, hint=f"usage: {self.usage}")


Numbers = tuple[tuple[float, ...], ...]


def _fir(given: _Arguments) -> Numbers:
    if len(given.given) == 1 and given.given[0].type.element is not None:
        return (given.numbers(0),)
    return (tuple(given.number(k) for k in range(len(given.given))),)


def _iir(given: _Arguments) -> Numbers:
    b, a = given.numbers(0), given.numbers(1)
    if a[0] == 0:
        raise given.error("the first of the coefficients a is 0", given.given[1])
    made = tuple(v / a[0] for v in b), tuple(v / a[0] for v in a)
    if not all(map(math.isfinite, (*made[0], *made[1]))):
        raise given.error("the coefficients overflow when a[0] divides them", given.given[1])
    return made


def _windows(given: _Arguments) -> Numbers:
    short, long = given.whole(0), given.whole(1)
    if short > long:
        raise given.error(
            f"the short window of {given.name} has {short:,} samples, and the long one {long:,}",
            given.given[0],
        )
    return ((float(short), float(long)),)


def _cfar(given: _Arguments) -> Numbers:
    omega = given.number(0)
    if omega < 0:
        raise given.error(f"omega is below zero: {omega:.15g}", given.given[0])
    return ((omega,),)


def _trigger(given: _Arguments) -> Numbers:
    on, off = given.number(0), given.number(1)
    if off > on:
        raise given.error(f"off is above on: {off:.15g} > {on:.15g}", given.given[1])
    return ((on, off),)


@dataclass(frozen=True, slots=True)
class _Function:
    usage: str
    help: str
    arity: tuple[int, int | None]
    type: DataType
    numbers: Callable[[_Arguments], Numbers]


_FUNCTIONS: Mapping[str, _Function] = {
    "fir": _Function(
        "fir(x, b0 [, b1, …]) or fir(x, array(b0, …))",
        "Finite impulse response filter with the coefficients b.",
        (2, None),
        DOUBLE,
        _fir,
    ),
    "iir": _Function(
        "iir(x, array(b0, …), array(a0, …))",
        "Infinite impulse response filter with the coefficients b and a.",
        (3, 3),
        DOUBLE,
        _iir,
    ),
    "sta_lta": _Function(
        "sta_lta(x, short, long)",
        "Mean square of the last short samples over that of the last long ones.",
        (3, 3),
        DOUBLE,
        _windows,
    ),
    "recursive_sta_lta": _Function(
        "recursive_sta_lta(x, short, long)",
        "sta_lta of means that decay exponentially.",
        (3, 3),
        DOUBLE,
        _windows,
    ),
    "cfar": _Function(
        "cfar(x, omega)",
        "Whether x is omega standard deviations above the mean of the noise so far.",
        (2, 2),
        BOOLEAN,
        _cfar,
    ),
    "trigger": _Function(
        "trigger(x, on, off)",
        "TRUE from where x rises above on until it is no more above off.",
        (3, 3),
        BOOLEAN,
        _trigger,
    ),
}


def resolve(name: str, args: Sequence[Expr], pos: Position | None) -> tuple[RunningCall, DataType]:
    """The call of a running function, and the type of its values. Raises BindError for wrong
    arguments."""
    function = _checked(name, args, pos)
    value = argument(args[0], DOUBLE, function.usage, 1, pos)
    numbers = function.numbers(_Arguments(name, function.usage, args[1:], pos))
    return RunningCall(name, value, function.type, numbers), function.type


def is_of_segment(name: str, args: Sequence[Expr]) -> bool:
    """Whether a call is of a filter over one segment of a signal."""
    return name in ("fir", "iir") and len(args) > 0 and signals.is_segment(args[0])


def of_segment(name: str, args: Sequence[Expr], pos: Position | None) -> Expr:
    """The samples of a segment through a filter, which begins without earlier samples."""
    function = _checked(name, args, pos)
    numbers = function.numbers(_Arguments(name, function.usage, args[1:], pos))
    return signals.filtered(name, args[0], numbers, pos)


def _checked(name: str, args: Sequence[Expr], pos: Position | None) -> _Function:
    function = _FUNCTIONS[name]
    least, most = function.arity
    if not least <= len(args) <= (most or len(args)):
        wanted = f"{least} or more" if most is None else str(least)
        raise BindError(
            f"{name} takes {wanted} arguments, not {len(args)}",
            position=pos,
            hint=f"usage: {function.usage}",
        )
    return function


def refused(name: str, place: str, pos: Position | None) -> NotSupportedError:
    """The error for a running function at a place where rows have no order or no state."""
    return NotSupportedError(
        f"the running function {name} {place} is not supported",
        position=pos,
        hint=_HINT.format(name),
    )


def _refuse(name: str) -> Builder:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        raise refused(name, "here", pos)

    return build


#: The running functions that users can call by name.
RUNNING: Mapping[str, Signature] = {
    name: Signature(name, "running", f.usage, f.help, f.arity, _refuse(name))
    for name, f in sorted(_FUNCTIONS.items())
}
