"""Holistic aggregates, whose state is all values of a group: resolves calls to typed calls.

The executor knows these canonical names: percentile (Spark's, which interpolates), percentile_disc,
mode, array_agg, string_agg, time_weighted_avg. The arguments that order a call's rows are its last
arguments (``AggregateCall.order``); those of time_weighted_avg are the value and its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cql.base.types import BOOLEAN, DOUBLE, NULL, STRING, Kind, array, decimal
from cql.errors import BindError, NotSupportedError, Position
from cql.planner.functions.coercion import cast
from cql.planner.functions.folding import fold
from cql.planner.functions.signature import argument, check_ordered, literal_text, wrong
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.logical import AggregateCall, SortKey

#: Every name, with its usage and one line of help.
USAGE: dict[str, tuple[str, str]] = {
    "median": ("median(number)", "The value in the middle, or between the two there; a double."),
    "percentile": (
        "percentile(number, p) or percentile(number, array(p, …))",
        "The value below which the share p lies, between its neighbours; a double.",
    ),
    "percentile_cont": (
        "percentile_cont(p) WITHIN GROUP (ORDER BY number)",
        "The same as percentile.",
    ),
    "percentile_disc": (
        "percentile_disc(p) WITHIN GROUP (ORDER BY number)",
        "The first value up to which at least the share p lies; a double.",
    ),
    "approx_percentile": (
        "approx_percentile(x, p) or approx_percentile(x, array(p, …))",
        "The first value of x up to which at least the share p lies; exact.",
    ),
    "mode": ("mode(x) or mode() WITHIN GROUP (ORDER BY x)",
             "The most frequent value, the least of several."),
    "array_agg": ("array_agg([DISTINCT] x [ORDER BY …])", "Array of the values, in event time."),
    "collect_set": ("collect_set(x)", "Array of the different values, in event time."),
    "listagg": (
        "listagg([DISTINCT] text [, separator]) [WITHIN GROUP (ORDER BY …)]",
        "The texts behind each other, in event time.",
    ),
    "group_concat": ("group_concat([DISTINCT] text [, separator] [ORDER BY …])",
                     "The texts behind each other, by default with commas between them."),
    "time_weighted_avg": (
        "time_weighted_avg(number, time [, 'locf' or 'linear'])",
        "Mean over time: each value holds until the next one, or changes evenly up to it.",
    ),
}  # fmt: skip
ALIASES = {
    "percentile_approx": "approx_percentile",
    "approx_quantile": "approx_percentile",
    "quantile": "approx_percentile",
    "quantile_disc": "approx_percentile",
    "quantile_cont": "percentile",
    "collect_list": "array_agg",
    "string_agg": "listagg",
}
_TEXTS = ("listagg", "group_concat")
#: How time_weighted_avg takes the time between two values; the first by default.
_METHODS = ("locf", "linear")
_SHARES = ("percentile", "percentile_cont", "percentile_disc", "approx_percentile")
#: Aggregates that take several shares in an ``array(…)``.
WITH_LISTS = frozenset((*_SHARES, *(a for a, name in ALIASES.items() if name in _SHARES)))


@dataclass(frozen=True, slots=True)
class Given:
    """A call as written. ``order`` are the keys of an ORDER BY inside the call or, with ``within``,
    of a WITHIN GROUP behind the call. ``listed``: the arguments after the first are in an
    ``array(…)``."""

    name: str
    args: tuple[Expr, ...]
    distinct: bool
    where: Expr | None
    order: tuple[SortKey, ...]
    within: bool
    listed: bool
    pos: Position | None

    @property
    def fn(self) -> str:
        return ALIASES.get(self.name, self.name)

    @property
    def usage(self) -> str:
        return USAGE[self.fn][0].replace(self.fn, self.name)


def resolve(given: Given) -> AggregateCall:
    """The typed call. Raises BindError for wrong arguments, NotSupportedError for forms of the
    aggregate that this version does not have."""
    _check_form(given)
    match given.fn:
        case "median":
            (x,) = _take(given, 1, 1)
            return _percentile(given, x, (Literal(5, decimal(1, 1)),), descending=False)
        case "percentile" | "approx_percentile":
            x, *more = _take(given, 2, 2 if not given.listed else None)
            return _percentile(given, x, tuple(more), descending=False)
        case "percentile_cont" | "percentile_disc":
            return _percentile(
                given, given.order[0].expr, given.args, descending=given.order[0].descending
            )
        case "mode":
            return _mode(given)
        case "time_weighted_avg":
            return _time_weighted(given)
        case fn if fn in _TEXTS:
            return _texts(given)
    return _values(given)


def _check_form(given: Given) -> None:
    """Raises an error for an ORDER BY, WITHIN GROUP or array that the aggregate does not take, and
    for a missing WITHIN GROUP."""
    fn = given.fn
    if fn in ("percentile_cont", "percentile_disc") and not (given.within and given.order):
        raise BindError(
            f"{given.name} needs WITHIN GROUP (ORDER BY …)",
            position=given.pos,
            hint=f"usage: {given.usage}",
        )
    takes_within = (*_TEXTS, "percentile_cont", "percentile_disc", "mode")
    if given.within and fn not in takes_within:
        raise BindError(f"{given.name} takes no WITHIN GROUP", position=given.pos,
                        hint=f"usage: {given.usage}")  # fmt: skip
    if given.order and not given.within and fn not in ("array_agg", *_TEXTS):
        raise NotSupportedError(
            f"ORDER BY in {given.name} is not supported", position=given.pos,
            hint=f"usage: {given.usage}",
        )  # fmt: skip
    if given.within and fn not in _TEXTS and len(given.order) != 1:
        raise BindError(f"{given.name} is ordered by one value", position=given.pos,
                        hint=f"usage: {given.usage}")  # fmt: skip
    ordered = given.distinct and fn in (*_TEXTS, "array_agg")
    if ordered and any(key.expr != given.args[0] for key in given.order):
        raise BindError(
            f"{given.name}(DISTINCT x) is ordered by x or not at all", position=given.pos
        )


def _take(given: Given, least: int, most: int | None) -> tuple[Expr, ...]:
    """The arguments. Raises BindError for fewer than ``least`` or more than ``most``."""
    if given.fn == "approx_percentile" and len(given.args) == 3 and not given.listed:
        _refuse_unless_count(given, given.args[2])  # Spark's accuracy; the result is exact anyway
        return given.args[:2]
    if len(given.args) < least or (most is not None and len(given.args) > most):
        raise BindError(
            f"{given.name} does not take {len(given.args)} argument"
            f"{'' if len(given.args) == 1 else 's'}",
            position=given.pos,
            hint=f"usage: {given.usage}",
        )
    return given.args


def _refuse_unless_count(given: Given, accuracy: Expr) -> None:
    value = fold(accuracy)
    given_count = value.value if isinstance(value, Literal) and value.type.is_integer else None
    if not isinstance(given_count, int) or given_count <= 0:
        raise BindError(
            f"the accuracy of {given.name} must be a constant whole number above 0",
            position=accuracy.pos or given.pos,
        )


def _percentile(
    given: Given, x: Expr, shares: Sequence[Expr], *, descending: bool
) -> AggregateCall:
    """The call of a percentile: one share gives a value, a list of shares gives an array."""
    constants = tuple(_share(given, s) for s in shares)
    if not constants or (len(constants) > 1 and not given.listed):
        raise BindError(f"{given.name} takes one share p", position=given.pos,
                        hint=f"usage: {given.usage}")  # fmt: skip
    keeps_type = given.fn == "approx_percentile"
    if x.type.kind is Kind.STRING:
        x = cast(x, DOUBLE, given.pos)  # as in Spark, which reads text as a double here
    timed = x.type.is_timestamp or x.type.kind in (Kind.DATE, Kind.INTERVAL)
    if not x.type.is_numeric and not (keeps_type and timed):
        x = argument(x, DOUBLE, given.usage, 1, given.pos)
    elif not keeps_type:
        x = cast(x, DOUBLE, given.pos)
    to = array(x.type) if given.listed else x.type
    fn = (
        "percentile"
        if given.fn in ("median", "percentile", "percentile_cont")
        else "percentile_disc"
    )
    made = AggregateCall(fn, (x,), to, True, given.distinct, given.where, given.pos)
    return replace(made, constants=constants, order=((descending, False),))


def _share(given: Given, expr: Expr) -> Literal:
    """The share ``expr``. Raises BindError unless it is a constant from 0 to 1."""
    value = fold(expr)
    if isinstance(value, Literal) and value.type.is_integer and value.value in (0, 1):
        value = Literal(int(value.value), decimal(1, 0), value.pos)
    if not isinstance(value, Literal) or not isinstance(value.value, int | float):
        number = None
    elif value.type.kind is Kind.DECIMAL:
        number = value.value / 10**value.type.scale
    else:
        number = float(value.value) if value.type.is_fraction else None
    if number is None or not 0 <= number <= 1:
        raise BindError(
            f"the share of {given.name} must be a constant from 0 to 1",
            position=expr.pos or given.pos,
            hint=f"usage: {given.usage}",
        )
    assert isinstance(value, Literal)
    return replace(value, pos=None)


def _mode(given: Given) -> AggregateCall:
    """``mode(x, deterministic)``, as in Spark; the result is always deterministic."""
    descending = False
    if given.within:
        if given.args:
            raise wrong(given.usage, given.args, given.pos)
        x, descending = given.order[0].expr, given.order[0].descending
    else:
        x, *flag = _take(given, 1, 2)
        if flag and not (isinstance(flag[0], Literal) and flag[0].type == BOOLEAN):
            raise BindError(
                f"the second argument of {given.name} must be TRUE or FALSE",
                position=flag[0].pos or given.pos,
            )
    x = _element(given, x)
    made = AggregateCall("mode", (x,), x.type, True, given.distinct, given.where, given.pos)
    return replace(made, order=((descending, False),))


def _time_weighted(given: Given) -> AggregateCall:
    """``time_weighted_avg(x, time, method)``; a row counts if neither x nor its time is NULL."""
    x, time, *rest = _take(given, 2, 3)
    if given.distinct:
        raise BindError(f"{given.name} takes no DISTINCT", position=given.pos,
                        hint=f"usage: {given.usage}")  # fmt: skip
    x = argument(x, DOUBLE, given.usage, 1, given.pos)
    kind = time.type.kind
    if not (time.type.is_timestamp or time.type.is_integer or kind in (Kind.DATE, Kind.DECIMAL)):
        raise BindError(
            f"argument 2 of {given.name} must be a time or an exact number, but is {time.type}",
            position=time.pos or given.pos,
            hint=f"usage: {given.usage}",
        )
    method = _METHODS[0]
    if rest:
        what = f"the method of {given.name}"
        method = literal_text(fold(rest[0]), what, given.pos).lower()
        if method not in _METHODS:
            raise BindError(f"{what} is 'locf' or 'linear'", position=rest[0].pos or given.pos)
    made = AggregateCall(given.fn, (x, time), DOUBLE, True, False, given.where, given.pos)
    return replace(made, constants=(Literal(method, STRING),))


def _values(given: Given) -> AggregateCall:
    """array_agg and collect_set: the array has no NULLs, and is empty without values (as in Spark's
    collect_list)."""
    (x,) = _take(given, 1, 1)
    x = _element(given, x)
    distinct = given.distinct or given.fn == "collect_set"
    return _ordered(given, AggregateCall(
        "array_agg", (x,), array(x.type), False, distinct, given.where, given.pos
    ))  # fmt: skip


def _texts(given: Given) -> AggregateCall:
    text, *rest = _take(given, 1, 2)
    default = "," if given.fn == "group_concat" else ""
    separator = default
    if rest and not (isinstance(rest[0], Literal) and rest[0].value is None):
        separator = literal_text(fold(rest[0]), f"the separator of {given.name}", given.pos)
    if text.type.kind is not Kind.BINARY:
        text = argument(text, STRING, given.usage, 1, given.pos)
    constant = Literal(separator, STRING)
    made = AggregateCall(
        "string_agg", (text,), text.type, True, given.distinct, given.where, given.pos
    )
    return _ordered(given, replace(made, constants=(constant,)))


def _ordered(given: Given, call: AggregateCall) -> AggregateCall:
    keys = tuple(k.expr for k in given.order)
    if given.distinct and given.order:  # DISTINCT x is ordered by x, after x is cast
        keys = tuple(call.args[0] for _ in given.order)
    for key in keys:
        check_ordered(key, f"ORDER BY in {given.name}", given.pos)
    order = tuple((k.descending, k.nulls_first) for k in given.order)
    return replace(call, args=(*call.args, *keys), order=order)


def _element(given: Given, x: Expr) -> Expr:
    if x.type.is_nested:
        raise NotSupportedError(
            f"{given.name} of arrays and structs is not supported", position=x.pos or given.pos
        )
    return cast(x, STRING, given.pos) if x.type == NULL else x
