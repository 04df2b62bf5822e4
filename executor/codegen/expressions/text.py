"""Which expressions are functions of texts, arrays or structs, and how they are computed outside
the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cql.base.types import Kind
from cql.executor.codegen.expressions.scope import DictionaryTable, HostSite
from cql.planner.interpret.nested import CONSTRUCTORS, NESTED_FUNCTIONS
from cql.planner.interpret.text import TEXT_FUNCTIONS
from cql.planner.nodes.expr import Call, Cast, Column, Expr, Literal, children, rebuild

_CALLS = frozenset(TEXT_FUNCTIONS) | {"concat_ws"} | NESTED_FUNCTIONS
#: Functions that take NULL as a value.
SEE_NULL = frozenset(CONSTRUCTORS) | {"concat_ws"}
_LONG_LIST = 16


def is_text_node(expr: Expr) -> bool:
    """Whether ``expr`` itself makes or reads texts, arrays or structs in a way that codes alone
    cannot answer."""
    match expr:
        case Call(function=function) if function is not None:
            return function.has_text
        case Call():
            if expr.fn == "in_list":
                return expr.args[0].type.is_coded and len(expr.args) > _LONG_LIST
            return expr.fn in _CALLS
        case Cast():
            source, to = expr.arg.type.kind, expr.type.kind
            if source is Kind.NULL or (source is Kind.STRING and to is Kind.BINARY):
                return False
            return expr.arg.type.is_coded or expr.type.is_coded
    return False


def table_of(expr: Expr) -> tuple[DictionaryTable, Expr] | None:
    """The dictionary table that ``expr`` is a lookup in, and the string that it looks up: all of
    ``expr`` must be strict text functions over one string expression and literals."""
    leaves: list[Expr] = []
    if not _strict(expr):
        return None
    lowered = _lower(expr, leaves, lambda _: False)
    if len(leaves) != 1 or not leaves[0].type.is_coded:
        return None
    return DictionaryTable(lowered, leaves[0].type), leaves[0]


def host_site(expr: Expr) -> HostSite:
    """The host column of a text node that is no table; its arguments are the expressions that the
    kernel computes itself, dictionary lookups included."""
    leaves: list[Expr] = []
    lowered = _lower(expr, leaves, lambda e: table_of(e) is not None)
    return HostSite(lowered, tuple(leaves))


def host_sites(expr: Expr) -> tuple[HostSite, ...]:
    """All host columns that emitting ``expr`` reads, each after the ones its arguments read."""
    return tuple(dict.fromkeys(_sites(expr)))


def _sites(expr: Expr) -> Iterator[HostSite]:
    if not is_text_node(expr):
        for child in children(expr):
            yield from _sites(child)
        return
    found = table_of(expr)
    if found is not None:
        yield from _sites(found[1])
        return
    site = host_site(expr)
    for arg in site.args:
        yield from _sites(arg)
    if site.args:
        yield site


def _strict(expr: Expr) -> bool:
    if not is_text_node(expr):
        return True
    named = isinstance(expr, Call) and expr.fn in SEE_NULL
    if isinstance(expr, Call) and expr.function is not None:
        named = expr.function.sees_null
    return not named and all(_strict(c) for c in children(expr))


def _lower(expr: Expr, leaves: list[Expr], stop: Callable[[Expr], bool]) -> Expr:
    """``expr`` with columns in place of the expressions, added to ``leaves``, that are no text
    functions or for which ``stop`` is true."""

    def child(e: Expr) -> Expr:
        if isinstance(e, Literal):
            return e
        if is_text_node(e) and not stop(e):
            return rebuild(e, child)
        if e not in leaves:
            leaves.append(e)
        return Column(leaves.index(e), f"_{leaves.index(e)}", e.type, e.nullable)

    return rebuild(expr, child)
