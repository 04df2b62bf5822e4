"""Comparisons of one value with a long list of constants, as tables: CASE x WHEN 1 THEN … WHEN 2
THEN …, x IN (…), x = 1 OR x = 2 OR …. The kernel finds the equal constant by bisection, and
compiles in the same time for two constants and for two thousand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cql.base.types import Kind
from cql.executor.codegen.expressions.scope import Code, Scope, let, of_word, real, when, wide, zero
from cql.planner.nodes.expr import Call, Case, Expr, Literal

#: Fewer constants are compared one after the other.
LEAST = 16

Emit = Callable[[Expr, Scope], Code]


@dataclass(frozen=True, slots=True)
class Membership:
    """``value`` equals one of ``keys``, which are not NULL; or (``negated``) none of them."""

    value: Expr
    keys: tuple[Literal, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A CASE that compares ``value`` with ``keys``: key *i* selects ``results[branches[i]]``. Among
    equal keys the first one counts."""

    value: Expr
    keys: tuple[Literal, ...]
    branches: tuple[int, ...]
    results: tuple[Literal, ...]


def membership(expr: Expr) -> Membership | None:
    """``expr`` as a comparison of one value with any number of constants; None if it is none."""
    if not isinstance(expr, Call):
        return None
    match expr.fn, expr.args:
        case "eq" | "ne", (Literal() as key, value) if not isinstance(value, Literal):
            return _tested(value, (key,), negated=expr.fn == "ne")
        case "eq" | "ne", (value, Literal() as key):
            return _tested(value, (key,), negated=expr.fn == "ne")
        case "in_list", (value, *keys):
            literals = tuple(key for key in keys if isinstance(key, Literal))
            return _tested(value, literals) if len(literals) == len(keys) else None
        case "not", (inner,):
            found = membership(inner)
            return found and Membership(found.value, found.keys, not found.negated)
        case "and" | "or", parts:
            return _of_all(expr.fn, parts)
    return None


def _tested(value: Expr, keys: tuple[Literal, ...], *, negated: bool = False) -> Membership | None:
    kind = value.type
    fits = all(key.value is not None and key.type == kind for key in keys)
    if not fits or kind.kind is Kind.BOOLEAN:
        return None
    return Membership(value, keys, negated)


def _of_all(fn: str, parts: Sequence[Expr]) -> Membership | None:
    """OR of tests for equality, AND of tests for inequality."""
    keys: list[Literal] = []
    value: Expr | None = None
    for part in parts:
        found = membership(part)
        if found is None or found.negated != (fn == "and"):
            return None
        if value is not None and found.value != value:
            return None
        value = found.value
        keys += found.keys
    return None if value is None else Membership(value, tuple(keys), fn == "and")


def choice(case: Case) -> Choice | None:
    """``case`` as a table; None if it is none or has fewer than LEAST keys."""
    if len(case.branches) < 2 or not all(isinstance(r, Literal) for _, r in case.branches):
        return None
    keys: list[Literal] = []
    branches: list[int] = []
    value: Expr | None = None
    for k, (condition, _) in enumerate(case.branches):
        found = membership(condition)
        if found is None or found.negated or (value is not None and found.value != value):
            return None
        value = found.value
        keys += found.keys
        branches += [k] * len(found.keys)
    if value is None or len(keys) < LEAST:
        return None
    results = tuple(r for _, r in case.branches if isinstance(r, Literal))
    return Choice(value, tuple(keys), tuple(branches), results)


def emit_membership(test: Membership, emit: Emit, scope: Scope) -> Code:
    x = emit(test.value, scope)
    at = _search(test.value, x, test.keys, scope)
    return Code(let(scope, f"{at} < 0" if test.negated else f"{at} >= 0"), x.valid)


def emit_choice(case: Case, table: Choice, emit: Emit, scope: Scope) -> Code:
    x = emit(table.value, scope)
    at = _search(table.value, x, table.keys, scope)
    value = let(scope, zero(case.type))
    valid = let(scope, "False", "v") if case.nullable else None
    with when(scope, f"{at} >= 0"):
        if table.branches != tuple(range(len(table.results))):
            scope.line(f"{at} = {scope.words(table.branches)(at)}")
        scope.line(f"{value} = {of_word(scope.words(table.results)(at), case.type)}")
        if valid is not None:
            known = [int(r.value is not None) for r in table.results]
            text = "True" if all(known) else f"{scope.words(known)(at)} != 0"
            scope.line(f"{valid} = {text}")
    if case.otherwise is not None:
        with when(scope, f"{at} < 0"):
            code = emit(case.otherwise, scope)
            scope.line(f"{value} = {code.value}")
            if valid is not None:
                scope.line(f"{valid} = {code.valid or 'True'}")
    return Code(value, valid)


def _search(value: Expr, x: Code, keys: Sequence[Literal], scope: Scope) -> str:
    """The number of the first key that equals a value; -1 if no key does or the value is NULL."""
    key_at, number_at = scope.sorted_words(keys)
    kind = value.type
    at = let(scope, "-1")
    with when(scope, x.valid):
        word = f"key_bits({real(x.value, kind)})" if kind.is_fraction else wide(x.value, kind)
        word, low, high = let(scope, word), let(scope, "0"), let(scope, str(len(keys)))
        scope.line(f"while {low} < {high}:")
        with scope.block():
            middle = let(scope, f"({low} + {high}) >> 1")
            with when(scope, f"{key_at(middle)} < {word}"):
                scope.line(f"{low} = {middle} + 1")
            scope.line("else:")
            with scope.block():
                scope.line(f"{high} = {middle}")
        with when(scope, f"{low} < {len(keys)}"), when(scope, f"{key_at(low)} == {word}"):
            scope.line(f"{at} = {number_at(low)}")
    return at
