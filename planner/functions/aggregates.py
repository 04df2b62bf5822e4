"""Aggregate functions: resolves names and argument types to typed calls, with Spark's result types.

The executor knows the canonical names: the keys of ``_USAGE``, and the names listed in
``holistic``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cql.base.types import BIGINT, BOOLEAN, DOUBLE, NULL, STRING, DataType, Kind, decimal
from cql.errors import BindError, NotSupportedError, Position
from cql.planner.functions import holistic
from cql.planner.functions.coercion import cast
from cql.planner.functions.signature import Builder, Signature, argument, check_ordered
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.logical import AggregateCall, SortKey

_ALIASES = {
    "mean": "avg",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "variance": "var_samp",
    "variance_samp": "var_samp",
    "variance_pop": "var_pop",
    "first_value": "first",
    "last_value": "last",
    "any_value": "first",
    "every": "bool_and",
    "logical_and": "bool_and",
    "any": "bool_or",
    "some": "bool_or",
    "logical_or": "bool_or",
    "countif": "count_if",
    "arg_max": "max_by",
    "arg_min": "min_by",
    "argmax": "max_by",
    "argmin": "min_by",
}
_LATER = """
    approx_count_distinct approx_distinct hll count_min_sketch corr
    covar_pop covar_samp skewness kurtosis regr_slope regr_intercept regr_r2 histogram_numeric
    bit_and bit_or bit_xor grouping
    grouping_id product geometric_mean try_sum try_avg histogram
"""
#: Aggregates in other engines; here these names are functions of two numbers.
BITS = frozenset(("bit_and", "bit_or", "bit_xor"))
_KEEPS_TYPE = frozenset(("min", "max", "first", "last"))
_PICKS = frozenset(("max_by", "min_by"))
#: Aggregates whose result DISTINCT does not change: repeated values have no effect.
_IDEMPOTENT = frozenset((*_KEEPS_TYPE, *_PICKS, "bool_and", "bool_or"))
_MOMENTS = frozenset(("stddev_samp", "stddev_pop", "var_samp", "var_pop"))
_USAGE: dict[str, tuple[str, str]] = {
    "count": ("count(*) or count([DISTINCT] x)", "Rows, or rows where x is not NULL."),
    "sum": ("sum(number)", "Sum; whole numbers as bigint, overflow is an error."),
    "avg": ("avg(number)", "Mean; of decimals a decimal, else a double."),
    "min": ("min(x)", "Least value."),
    "max": ("max(x)", "Largest value."),
    "stddev_samp": ("stddev(number)", "Standard deviation of a sample; NULL of one row."),
    "stddev_pop": ("stddev_pop(number)", "Standard deviation of a population."),
    "var_samp": ("variance(number)", "Variance of a sample; NULL of one row."),
    "var_pop": ("var_pop(number)", "Variance of a population."),
    "first": ("first(x)", "Value of the first row in event time."),
    "last": ("last(x)", "Value of the last row in event time."),
    "bool_and": ("bool_and(condition)", "Whether the condition held in all rows."),
    "bool_or": ("bool_or(condition)", "Whether the condition held in any row."),
    "count_if": ("count_if(condition)", "Rows in which the condition held."),
    "max_by": ("max_by(x, y)", "Value of x in the row where y is largest, the first of several."),
    "min_by": ("min_by(x, y)", "Value of x in the row where y is least, the first of several."),
}
_ARITY = {"count": (0, 1), "max_by": (2, 2), "min_by": (2, 2)}
_NUMBERS = {1: "one argument", 2: "two arguments"}


def is_aggregate(name: str) -> bool:
    """Whether ``name`` is an aggregate function, supported by this version or not."""
    folded = name.lower()
    known = folded in AGGREGATES
    return known or (folded in _LATER.split() and folded not in BITS)


def later(name: str, pos: Position | None) -> NotSupportedError:
    """The error for an aggregate of other engines that this version does not support."""
    return NotSupportedError(
        f"the aggregate {name} is not supported yet",
        position=pos,
        hint="count(DISTINCT x) is exact"
        if name.lower() in ("approx_count_distinct", "approx_distinct", "hll")
        else "there are " + ", ".join((*_USAGE, *holistic.USAGE)),
    )


def resolve_aggregate(
    name: str,
    args: Sequence[Expr],
    distinct: bool,
    where: Expr | None,
    pos: Position | None,
    *,
    order: Sequence[SortKey] = (),
    within: bool = False,
    listed: bool = False,
) -> AggregateCall:
    """The typed call of an aggregate. ``count(*)`` has no arguments. ``order``, ``within`` and
    ``listed``: see ``holistic.Given``. Raises BindError for wrong arguments, NotSupportedError for
    an aggregate that this version does not support."""
    fn = canonical(name)
    if fn in _LATER.split():
        raise later(name, pos)
    if fn not in AGGREGATES:
        raise BindError(f"{name} is not an aggregate function", position=pos)
    if where is not None:
        where = argument(where, BOOLEAN, "FILTER(WHERE condition)", 1, pos)
    if fn in holistic.USAGE or fn in holistic.ALIASES:
        keys = tuple(order)
        given = holistic.Given(fn, tuple(args), distinct, where, keys, within, listed, pos)
        return holistic.resolve(given)
    if within:
        raise BindError(f"{name} takes no WITHIN GROUP", position=pos)
    if order:
        raise NotSupportedError(f"ORDER BY in {name} is not supported", position=pos)
    if listed:
        raise BindError(f"{name} does not take an array", position=pos)
    usage = _USAGE[fn][0]
    least, most = _arity(fn)
    if not least <= len(args) <= most:
        pairs = "count(*) FROM (SELECT DISTINCT a, b FROM …)"
        raise BindError(
            f"{name} takes {_NUMBERS[most]}, not {len(args)}",
            position=pos,
            hint=pairs if fn == "count" and args else f"usage: {usage}",
        )
    if distinct and not args:
        raise BindError("count(DISTINCT *) counts nothing that has a name", position=pos,
                        hint="name the column: count(DISTINCT x)")  # fmt: skip
    if fn == "count_if" or (fn == "count" and args and _never_null(args[0]) and not distinct):
        return _counting(fn, args, where, distinct, pos)
    typed = tuple(_argument(fn, a, usage, pos) for a in args)
    if fn in ("min", "max", *_PICKS):
        check_ordered(typed[-1], name, pos)
    kept = distinct and fn not in _IDEMPOTENT
    nullable = fn != "count"
    return AggregateCall(fn, typed, _result(fn, typed), nullable, kept, where, pos)


def _never_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is not None


def _counting(
    fn: str, args: Sequence[Expr], where: Expr | None, distinct: bool, pos: Position | None
) -> AggregateCall:
    """The call of count(1), which is count(*), or of count_if(c), which takes a boolean."""
    if fn == "count":
        return AggregateCall("count", (), BIGINT, False, False, where, pos)
    condition = argument(args[0], BOOLEAN, _USAGE[fn][0], 1, pos)
    return AggregateCall(fn, (condition,), BIGINT, False, distinct, where, pos)


def _argument(fn: str, arg: Expr, usage: str, pos: Position | None) -> Expr:
    if fn in _MOMENTS:
        return _number(arg, usage, pos) if not arg.type.is_numeric else cast(arg, DOUBLE, pos)
    if fn in ("sum", "avg"):
        if arg.type.kind is Kind.INTERVAL and fn == "sum":
            return arg
        return _number(arg, usage, pos)
    if fn in ("bool_and", "bool_or"):
        return argument(arg, BOOLEAN, usage, 1, pos)
    if arg.type == NULL and fn != "count":
        return cast(arg, STRING, pos)
    return arg


def _number(arg: Expr, usage: str, pos: Position | None) -> Expr:
    if arg.type.is_numeric:
        return arg
    if arg.type.kind is Kind.STRING:
        return cast(arg, DOUBLE, pos)  # as in Spark, which reads text as a double here
    return argument(arg, DOUBLE, usage, 1, pos)


def _result(fn: str, args: tuple[Expr, ...]) -> DataType:
    if fn == "count":
        return BIGINT
    to = args[0].type.without_length
    if fn in _IDEMPOTENT:
        return to
    if fn == "sum":
        if to.is_integer:
            return BIGINT
        if to.kind is Kind.DECIMAL:
            return decimal(min(18, to.precision + 10), to.scale)
        return DOUBLE if to.is_fraction else to
    if fn == "avg" and to.kind is Kind.DECIMAL:
        # As in Spark: four more digits after the point, if the 18 digits have room for them.
        scale = max(to.scale, min(to.scale + 4, 18 - (to.precision - to.scale)))
        return decimal(min(18, to.precision + 4), scale)
    return DOUBLE


def _entry(name: str, fn: str) -> Signature:
    usage, help = {**_USAGE, **holistic.USAGE}[fn]
    own = name == fn or usage.startswith(name)
    return Signature(
        name,
        "aggregate",
        usage if own else usage.replace(usage.split("(")[0], name),
        help if own else f"The same as {fn}.",
        _arity(fn),
        _refuse(name),
    )


def _arity(fn: str) -> tuple[int, int]:
    return _ARITY.get(fn, (1, 1))


def canonical(name: str) -> str:
    """The name of an aggregate of which ``name`` may be an alias."""
    return _ALIASES.get(name.lower(), name.lower())


def _refuse(name: str) -> Builder:
    """A builder that raises BindError: the signature of an aggregate only describes it."""

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        raise BindError(f"{name} is an aggregate function", position=pos)

    return build


def _names() -> dict[str, str]:
    own = {name: name for name in (*_USAGE, *holistic.USAGE)}
    return {**own, **_ALIASES, **holistic.ALIASES}


#: For SHOW FUNCTIONS and completion, besides ``cql.planner.functions.registry.FUNCTIONS``.
AGGREGATES: Mapping[str, Signature] = {
    name: _entry(name, fn) for name, fn in sorted(_names().items())
}
