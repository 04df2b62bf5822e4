"""The registry of scalar functions and operators: resolves calls to typed expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from cql.errors import BindError, NotSupportedError, Position, did_you_mean
from cql.planner.functions.aggregates import AGGREGATES, BITS, later
from cql.planner.functions.builtin import ALIASES, CONDITIONAL, MATH, TEXT, TIME
from cql.planner.functions.char_padding import forget_length
from cql.planner.functions.coercion import cast, common_type, unify
from cql.planner.functions.folding import KNOWN_BY_NAME, can_fail, fold, monotone, only_overflows
from cql.planner.functions.nested import NESTED
from cql.planner.functions.operators import OPERATORS, case, raw_comparison
from cql.planner.functions.running import RUNNING
from cql.planner.functions.signals import SIGNALS
from cql.planner.functions.signature import Signature
from cql.planner.nodes.expr import Expr

__all__ = [
    "FUNCTIONS",
    "Signature",
    "can_fail",
    "case",
    "cast",
    "common_type",
    "fold",
    "monotone",
    "only_overflows",
    "raw_comparison",
    "resolve",
    "unify",
]


def _registry() -> dict[str, Signature]:
    named = {s.name: s for s in (*MATH, *TIME, *TEXT, *NESTED, *CONDITIONAL, *SIGNALS)}
    for alias, name in ALIASES.items():
        target = named[name]
        usage = target.usage.replace(name, alias, 1).replace(name.upper(), alias.upper(), 1)
        named[alias] = replace(target, name=alias, usage=usage, help=f"The same as {name}.")
    return dict(sorted(named.items()))


#: The functions that users can call by name.
FUNCTIONS: Mapping[str, Signature] = _registry()
_OPERATORS: Mapping[str, Signature] = {s.name: s for s in OPERATORS} | {
    "||": FUNCTIONS["concat"],
    "&": next(s for s in OPERATORS if s.name == "bit_and"),
    "|": next(s for s in OPERATORS if s.name == "bit_or"),
    "^": next(s for s in OPERATORS if s.name == "bit_xor"),
    "~": next(s for s in OPERATORS if s.name == "bit_not"),
}

NOTHING: Mapping[str, Signature] = MappingProxyType({})
_NESTED = "create_map map"
_WINDOWS = "date_trunc('minute', ts), or GROUP BY window(ts, '5 minutes')"
#: Functions of other engines, with their replacement here.
_INSTEAD = {
    "zeroifnull": "nvl(x, 0)",
    "time_bucket": _WINDOWS,
    "date_bin": _WINDOWS,
    "time_slice": _WINDOWS,
}
_NOT_REPLAYABLE = """
    now current_timestamp current_date current_time curdate localtimestamp getdate rand random
    randn uuid shuffle randstr uniform monotonically_increasing_id input_file_name
    spark_partition_id current_user session_user user current_timezone
"""


def resolve(
    name: str,
    args: Sequence[Expr],
    pos: Position | None,
    own: Mapping[str, Signature] = NOTHING,
) -> Expr:
    """The call of a function or operator: inserts casts, sets type and nullability.

    ``name`` is matched without regard to case; ``own`` are the user's functions, by names in lower
    case. Raises BindError for an unknown name (with candidates) and for wrong arguments (with the
    usage), NotSupportedError for a function whose value would change when a stream is replayed."""
    folded = name.lower()
    signature = FUNCTIONS.get(folded) or _OPERATORS.get(folded) or own.get(folded)
    if signature is None:
        raise _unknown(name, pos, own)
    least, most = signature.arity
    if len(args) == 1 and least > 1 and folded in BITS:
        raise later(name, pos)
    if len(args) < least or (most is not None and len(args) > most):
        wanted = (
            str(least) if least == most else f"{least} to {most}" if most else f"{least} or more"
        )
        raise BindError(
            f"{signature.name} takes {wanted} argument{'' if wanted == '1' else 's'}, "
            f"not {len(args)}",
            position=pos,
            hint=f"usage: {signature.usage}",
        )
    return forget_length(signature.build(tuple(args), pos))


def is_taken(name: str) -> bool:
    """Whether ``name`` is reserved, so that no user function can have it."""
    folded = name.lower()
    reserved = folded in _NOT_REPLAYABLE.split() or folded in _NESTED.split()
    known = folded in FUNCTIONS or folded in RUNNING or folded in _OPERATORS
    return reserved or known or folded in KNOWN_BY_NAME


def _unknown(
    name: str, pos: Position | None, own: Mapping[str, Signature]
) -> BindError | NotSupportedError:
    folded = name.lower()
    if folded in _NOT_REPLAYABLE.split():
        return NotSupportedError(
            f"{folded}() is not deterministic in a replayed stream",
            position=pos,
            hint="use the event time of the row, or pass a value as a parameter (:name)",
        )
    if folded in _NESTED.split():
        return NotSupportedError(
            f"{folded}() is not supported: no column holds a map", position=pos
        )
    return BindError(
        f"unknown function {name}",
        position=pos,
        hint=_INSTEAD.get(folded)
        or did_you_mean(folded, (*FUNCTIONS, *AGGREGATES, *RUNNING, *own), few=0)
        or "SHOW FUNCTIONS lists them",
    )
