"""Explains the failure of a user function by calling the function once more, in Python."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cql.base.call_timeout import TimeLimitError
from cql.base.types import Kind
from cql.base.uninterruptible import load_module
from cql.executor.codegen.expressions.scope import Again, Called, ErrorSite
from cql.executor.morsel.morsel import Words
from cql.executor.strings.dictionary import Dictionary
from cql.executor.texts.column import NULL
from cql.planner.interpret.interpreter import EvaluationError
from cql.planner.nodes.expr import Value

if TYPE_CHECKING:
    from cql.executor.udf.compile import UserCode


#: The kind of an error site whose function exceeded the time limit.
TIME_LIMIT = "time limit"
#: That of an operator of the user.
OPERATOR = "operator"
#: That of its function of the end of the input.
OPERATOR_END = "operator at the end"


def function_codes(functions: Sequence[Called]) -> list[UserCode]:
    """The code of each function. Loads numba's typing only for queries that call user functions."""
    code_of = load_module("cql.executor.udf.compile").code_of
    return [code_of(function) for function in functions]


def explained(
    site: ErrorSite,
    codes: Sequence[UserCode],
    words: Words,
    dictionary: Dictionary,
) -> ErrorSite:
    """``site`` with the cause of its failure. ``codes`` are the functions that its kernel calls.
    Raises the interrupt (Ctrl-C) of one of them, if there was one."""
    if site.again is None:
        return site
    try:
        raise_interrupt(codes)
        return _computed_again(site, site.again, words, dictionary)
    except TimeLimitError as error:
        return replace(site, kind=TIME_LIMIT, message=error.message)


def raise_interrupt(codes: Sequence[UserCode]) -> None:
    """Raises what interrupted a function: an interrupt, or the time limit of this thread's call."""
    me = threading.get_ident()
    for code in codes:
        if code.interrupts:
            raise code.interrupts[0]
        if (why := code.limits.pop(me, None)) is not None:
            raise why


def _computed_again(
    site: ErrorSite, again: Again, words: Words, dictionary: Dictionary
) -> ErrorSite:
    """Evaluates again with the arguments that the kernel left in ``words``; returns the site with
    the error found."""
    from cql.executor.udf.compile import from_word

    n = len(again.types)
    flags = words[again.first + n : again.first + 2 * n] if again.masked else [1] * n
    row: list[Value] = []
    for k, kind in enumerate(again.types):
        stored = int(words[again.first + k])
        if flags[k] == NULL:
            row.append(None)
        elif kind.is_coded:
            raw = dictionary.value(stored)
            row.append(raw.decode(errors="replace") if kind.kind is Kind.STRING else raw)
        else:
            row.append(from_word(stored, kind))
    try:
        again.compute(row)
    except EvaluationError as error:
        return replace(site, kind=error.kind, message=error.message)
    return site
