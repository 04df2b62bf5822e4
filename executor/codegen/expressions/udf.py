"""Calls of users' functions: by address, with arguments in words of the kernel's descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cql.base.types import DataType
from cql.executor.codegen.expressions.scope import (
    Again,
    Code,
    DictionaryTable,
    ErrorSite,
    HostSite,
    Scope,
    all_valid,
    let,
    of_word,
    when,
    word,
    zero,
)
from cql.planner.functions.folding import can_fail
from cql.planner.functions.user.aggregates import Shape
from cql.planner.interpret.interpreter import evaluate
from cql.planner.nodes.expr import Call, Cast, Expr, children, walk
from cql.planner.nodes.show import show


def flat(shape: Shape) -> tuple[DataType, ...]:
    """The types of a method's argument words; a state in ``shape`` counts as its parts."""
    parts = (part if isinstance(part, tuple) else (part,) for part in shape)
    return tuple(kind for part in parts for kind in part)


def emit_user_call(call: Call, codes: Sequence[Code], scope: Scope) -> Code:
    """Emits a call of a function without texts. If the function sees NULL, the flags of its
    arguments stand behind them."""
    function = call.function
    assert function is not None
    kinds = tuple(a.type for a in call.args)
    words = [word(c.value, kind) for c, kind in zip(codes, kinds, strict=True)]
    if function.sees_null:
        valid = None
        words += ["1" if c.valid is None else f"int64({c.valid})" for c in codes]
    else:
        valid = all_valid(scope, *codes)
    value = let(scope, zero(call.type))
    status = let(scope, "0", "s")
    with when(scope, valid):
        first = scope.keep(words, room=1)
        scope.line(f"{status} = {scope.call(function, first, first + len(words))}")
        scope.line(f"{value} = {of_word(scope.word(first + len(words)), call.type)}")
        with when(scope, f"{status} == 2"):
            again = Again(function.compute, kinds, first, function.sees_null)
            scope.line(scope.fail(_site(call, again)))
    return Code(value, let(scope, f"{status} == 1", "v"))


def table_failure(expr: Expr, table: DictionaryTable, code: str, scope: Scope) -> ErrorSite | None:
    """The error site of a lookup whose expression calls a user's function or has an inner part that
    can fail, else None. Emits code that keeps the text for the message."""
    if not calls_function(table.expr) and not any(map(can_fail, children(table.expr))):
        return None
    first = scope.keep([f"int64({code})"])
    return _site(expr, Again(partial(evaluate, table.expr), (table.leaf,), first))


def host_failure(expr: Expr, site: HostSite, scope: Scope) -> ErrorSite | None:
    """The error site of a host column that calls a user's function, else None. Emits code that
    keeps the row's arguments for the message."""
    if not calls_function(site.call):
        return None
    kinds = tuple(a.type for a in site.args)
    given = scope.host_arguments(site)
    words = [word(value, kind) for (value, _), kind in zip(given, kinds, strict=True)]
    first = scope.keep([*words, *(f"int64({status})" for _, status in given)])
    return _site(expr, Again(partial(evaluate, site.call), kinds, first, masked=True))


def calls_function(expr: Expr) -> bool:
    return any(isinstance(e, Call) and e.function is not None for e in walk(expr))


def _site(expr: Expr, again: Again) -> ErrorSite:
    pos = expr.pos
    if isinstance(expr, Cast):  # of a function's result: mostly the function is what fails
        pos = expr.arg.pos or pos
    return ErrorSite("function", f"{show(expr)} failed on this row", pos, again)
