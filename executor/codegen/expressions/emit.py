"""The code generator for expressions: a typed Expr becomes statements of one row loop.

Every node emits straight assignments and ``if`` blocks; the text never allocates or raises, and
loops only to find a value among many constants (``lookup``).
Constants are parameters of the kernel, so that queries that differ in them share a kernel. CASE,
AND, OR and COALESCE guard left to right: an operand that is not evaluated cannot fail. Text
functions are not compiled: over one string they are a table by dictionary code, otherwise a column
that the host computes before the row loop.
"""

from __future__ import annotations

from collections.abc import Callable

from cql.base.types import Kind
from cql.errors import unreachable
from cql.executor.codegen.expressions.calls import emit_call
from cql.executor.codegen.expressions.casts import emit_cast
from cql.executor.codegen.expressions.division import divisible, emit_divisible, emit_scaled, scaled
from cql.executor.codegen.expressions.logic import compared, emit_order, is_cheap
from cql.executor.codegen.expressions.lookup import (
    LEAST,
    choice,
    emit_choice,
    emit_membership,
    membership,
)
from cql.executor.codegen.expressions.scope import (
    Code,
    DictionaryTable,
    ErrorSite,
    HostSite,
    Scope,
    all_valid,
    fail_if,
    let,
    when,
    zero,
)
from cql.executor.codegen.expressions.text import host_site, host_sites, is_text_node, table_of
from cql.executor.codegen.expressions.udf import emit_user_call, host_failure, table_failure
from cql.planner.functions.folding import can_fail
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal, columns_of
from cql.planner.nodes.show import show

__all__ = [
    "Code",
    "DictionaryTable",
    "ErrorSite",
    "HostSite",
    "Scope",
    "emit",
    "failure_of",
    "host_sites",
]


def emit(expr: Expr, scope: Scope) -> Code:
    """Emits ``expr`` at the current place of the row loop. The columns that it reads are loaded
    first, outside any branch. The value of a NULL is 0."""
    for column in sorted(columns_of(expr)):
        scope.load(column)
    code = _emit(scope.divide(expr), scope)
    if code.valid is None:
        return code
    return Code(let(scope, f"{code.value} if {code.valid} else {zero(expr.type)}"), code.valid)


def _emit(expr: Expr, scope: Scope) -> Code:
    part = scope.part(expr, _emit)
    if part is not None:
        return part
    if is_text_node(expr):
        return _text(expr, scope)
    match expr:
        case Column():
            return scope.load(expr.index)
        case Literal():
            if expr.value is None:
                return Code(zero(expr.type), let(scope, "False", "v"))
            return Code(scope.constant(expr), None)
        case Cast():
            return emit_cast(expr, _emit(expr.arg, scope), scope)
        case Case():
            return _case(expr, scope)
        case Call():
            return _call(expr, scope)
    return unreachable(expr)


def _truth(code: Code) -> str:
    return code.value if code.valid is None else f"{code.valid} and {code.value}"


# -- calls that see NULL or guard --------------------------------------------------------------


def _call(call: Call, scope: Scope) -> Code:
    if call.function is not None:
        return emit_user_call(call, [_emit(a, scope) for a in call.args], scope)
    if call.fn in ("and", "or", "in_list"):
        test = membership(call)
        if test is not None and len(test.keys) >= LEAST:
            return emit_membership(test, _emit, scope)
    match call.fn:
        case "and" | "or":
            return _logic(call, scope)
        case "coalesce":
            return _coalesce(call, scope)
        case "in_list":
            return _in_list(call, scope)
        case "least" | "greatest":
            return _extreme(call, scope)
    product = scaled(call)
    if product is not None:
        outer, x, factor, divisor = product
        return emit_scaled(outer, _emit(x, scope), factor, divisor, scope)
    multiple = divisible(call)
    if multiple is not None:
        arg, divisor = multiple
        return emit_divisible(call.fn, arg, _emit(arg, scope), divisor, scope)
    codes = [_emit(a, scope) for a in call.args]
    match call.fn:
        case "is_null":
            # Not "False": behind ``if not False: continue``, numba leaves the rest of the row out.
            never = "unlikely(False)"
            return Code(never if codes[0].valid is None else f"(not {codes[0].valid})", None)
        case "is_not_null":
            return Code("True" if codes[0].valid is None else codes[0].valid, None)
        case "isnan":
            nan = f"{codes[0].value} != {codes[0].value}"
            both = nan if codes[0].valid is None else f"{codes[0].valid} & ({nan})"
            return Code(let(scope, both), None)
        case "checked_cast" | "checked_value":
            fail_if(scope, codes[1].value, None, ErrorSite(call.fn[8:], call.word, call.pos))
            return Code(codes[0].value, codes[0].valid if call.nullable else None)
        case "null_safe_eq":
            return Code(_same(call, codes, scope), None)
        case "is_distinct_from":
            return Code(let(scope, f"not {_same(call, codes, scope)}"), None)
    return emit_call(call, codes, scope)


def _same(call: Call, codes: list[Code], scope: Scope) -> str:
    a, b = codes
    equal = compared("eq", call.args, a.value, b.value)
    if a.valid is None and b.valid is None:
        return let(scope, equal)
    if a.valid is None or b.valid is None:
        return let(scope, f"({equal}) & {a.valid or b.valid}")
    return let(scope, f"(({equal}) & {a.valid} & {b.valid}) | (not ({a.valid} | {b.valid}))")


def _logic(call: Call, scope: Scope) -> Code:
    code = _emit(call.args[0], scope)
    for arg in call.args[1:]:
        code = (_eager if is_cheap(arg) else _guarded)(call.fn, code, arg, scope)
    return code


def _decides(fn: str, code: Code) -> str:
    """A condition, as text: ``code`` alone decides the result."""
    word = code.value if fn == "or" else f"(not {code.value})"
    return word if code.valid is None else f"({code.valid} & {word})"


def _eager(fn: str, a: Code, arg: Expr, scope: Scope) -> Code:
    """Evaluates both sides: a branch would cost more than the right side."""
    b = _emit(arg, scope)
    value = let(scope, f"{a.value} {'&' if fn == 'and' else '|'} {b.value}")
    if a.valid is None and b.valid is None:
        return Code(value, None)
    # NULL values are 0 or garbage: a side that decides must be valid.
    known = " & ".join(v for v in (a.valid, b.valid) if v is not None)
    decided = [_decides(fn, c) for c in (a, b)]
    return Code(value, let(scope, f"({known}) | {decided[0]} | {decided[1]}", "v"))


def _guarded(fn: str, a: Code, arg: Expr, scope: Scope) -> Code:
    value, valid = let(scope, a.value), None
    nullable = a.valid is not None or arg.nullable
    if nullable:
        valid = let(scope, a.valid or "True", "v")
    with when(scope, f"not {_decides(fn, a)}"):
        b = _emit(arg, scope)
        if valid is None:
            scope.line(f"{value} = {b.value}")
            return Code(value, None)
        # a is neutral or NULL here
        deciding = _decides(fn, b)
        scope.line(f"{valid} = {deciding} | ({valid} & {b.valid or 'True'})")
        scope.line(f"{value} = {b.value}")
    return Code(value, valid)


def _assign(scope: Scope, value: str, valid: str | None, code: Code) -> None:
    scope.line(f"{value} = {code.value}")
    if valid is not None:
        scope.line(f"{valid} = {code.valid or 'True'}")


def _coalesce(call: Call, scope: Scope) -> Code:
    first = _emit(call.args[0], scope)
    if first.valid is None:
        return first
    value, valid = let(scope, first.value), let(scope, first.valid, "v")
    for arg in call.args[1:]:
        with when(scope, f"not {valid}"):
            _assign(scope, value, valid, _emit(arg, scope))
    return Code(value, valid if all(a.nullable for a in call.args) else None)


def _case(case: Case, scope: Scope) -> Code:
    table = choice(case)
    if table is not None:
        return emit_choice(case, table, _emit, scope)
    value = let(scope, zero(case.type))
    valid = let(scope, "False", "v") if case.nullable else None
    undecided = None
    for condition, result in case.branches:
        with when(scope, undecided):
            test = _truth(_emit(condition, scope))
            if undecided is None:
                undecided = let(scope, "True", "u")
            with when(scope, test):
                scope.line(f"{undecided} = False")
                _assign(scope, value, valid, _emit(result, scope))
    if case.otherwise is not None:
        with when(scope, undecided):
            _assign(scope, value, valid, _emit(case.otherwise, scope))
    return Code(value, valid)


def _in_list(call: Call, scope: Scope) -> Code:
    value = _emit(call.args[0], scope)
    items = [a for a in call.args[1:] if isinstance(a, Literal) and a.value is not None]
    tests = [
        f"({compared('eq', (call.args[0], a), value.value, scope.constant(a))})" for a in items
    ]
    found = let(scope, " | ".join(tests) or "False")
    if len(items) == len(call.args) - 1:
        return Code(found, value.valid)
    valid = found if value.valid is None else f"{value.valid} & {found}"
    return Code(found, let(scope, valid, "v"))


def _extreme(call: Call, scope: Scope) -> Code:
    """least and greatest skip NULLs; all arguments are evaluated."""
    codes = [_emit(a, scope) for a in call.args]
    value = let(scope, codes[0].value)
    valid = None if codes[0].valid is None else let(scope, codes[0].valid, "v")
    for arg, code in zip(call.args[1:], codes[1:], strict=True):
        seen = all_valid(scope, Code(value, valid), code)
        better = let(scope, "True", "u")
        with when(scope, seen):
            sides = [(arg, code.value), (call, value)][:: 1 if call.fn == "least" else -1]
            (left, a), (right, b) = sides
            scope.line(f"{better} = {emit_order('lt', (left, right), a, b, scope)}")
        if code.valid is not None:
            scope.line(f"{better} = {better} & {code.valid}")
        with when(scope, better):
            scope.line(f"{value} = {code.value}")
        if valid is not None:
            if code.valid is None:
                valid = None
            else:
                scope.line(f"{valid} = {valid} | {code.valid}")
    return Code(value, valid)


# -- text --------------------------------------------------------------------------------------


def _text(expr: Expr, scope: Scope) -> Code:
    found = table_of(expr)
    if found is not None:
        table, leaf = found
        return _lookup(expr, table, _emit(leaf, scope), scope)
    site = host_site(expr)
    if not site.args:
        return _constant_text(expr, scope)
    value, status = scope.host(site)
    name = let(scope, status, "s")

    def failure() -> ErrorSite | None:
        for arg in filter(can_fail, site.args):
            _emit(arg, scope)  # an argument that failed fails here again, with its own error
        return host_failure(expr, site, scope)

    return _read(expr, scope, value, name, None, failure)


def _constant_text(expr: Expr, scope: Scope) -> Code:
    """A text function of literals, evaluated now; if it fails, every row that reads it fails."""
    try:
        return _emit(Literal(evaluate(expr, ()), expr.type, expr.pos), scope)
    except EvaluationError as error:
        with when(scope, f"{scope.extra_constant(1)} != 0"):  # true, unknown to the compiler
            scope.line(scope.fail(ErrorSite(error.kind, error.message, expr.pos)))
        return Code(zero(expr.type), let(scope, "False", "v") if expr.nullable else None)


def _lookup(expr: Expr, table: DictionaryTable, leaf: Code, scope: Scope) -> Code:
    values, states = scope.table(table)
    code = leaf.value
    status = let(scope, "1" if leaf.valid is None else "0", "s")
    with when(scope, leaf.valid):
        # a code beyond the table comes from another operator
        scope.line(f"{status} = int64({states}[{code}]) if {code} < {states}.size else 255")
        with when(scope, f"{status} == 255"):
            scope.line(scope.need_table(table, code))
    boolean = " != 0" if expr.type.kind is Kind.BOOLEAN else ""
    value = f"{values}[{code}]{boolean}"
    return _read(expr, scope, value, status, leaf, lambda: table_failure(expr, table, code, scope))


def _read(
    expr: Expr,
    scope: Scope,
    value: str,
    status: str,
    leaf: Code | None,
    failure: Callable[[], ErrorSite | None],
) -> Code:
    """Reads a value by its status, from a table or (``leaf`` is None) from a host column.
    ``failure`` emits code that keeps the reason of a failure, and returns the error site of a
    failing user's function, or None."""
    with when(scope, f"{status} == 2"):
        scope.line(scope.fail(failure() or failure_of(expr)))
    if not expr.nullable:
        return Code(let(scope, value), None)
    valid = let(scope, f"{status} == 1", "v")
    if leaf is None or leaf.valid is None:
        return Code(let(scope, value), valid)
    result = let(scope, zero(expr.type))
    with when(scope, valid):
        scope.line(f"{result} = {value}")
    return Code(result, valid)


def failure_of(expr: Expr) -> ErrorSite:
    """The error of a text function or a cast that fails on a row."""
    if isinstance(expr, Cast):
        valid = f"the value is not a valid {expr.type.with_limit}"
        return ErrorSite("cast", f"{valid}: {show(expr)}", expr.pos)
    if isinstance(expr, Call) and expr.fn in ("item", "element_at"):
        return ErrorSite("value", f"the array has no such element: {show(expr)}", expr.pos)
    return ErrorSite("value", f"{show(expr)} has no result for this value", expr.pos)
