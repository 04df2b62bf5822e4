"""What went wrong in a function of a user's: found out by calling it once more, in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cql.executor.dictionary import Dictionary
from cql.executor.expression_scope import Again, Called, ErrorSite
from cql.executor.host import NULL, text_of
from cql.executor.unit import Words
from cql.planner.evaluation import EvaluationError
from cql.planner.expr import Value

if TYPE_CHECKING:
    from cql.executor.user_code import UserCode


def function_codes(functions: Sequence[Called]) -> list[UserCode]:
    """Their codes. (numba's typing is loaded only by queries that call functions of users.)"""
    from cql.executor.user_code import code_of

    return [code_of(function) for function in functions]


def raise_interrupt(codes: Sequence[UserCode]) -> None:
    """Raises what interrupted a function (Ctrl-C), if that is why it failed."""
    for code in codes:
        if code.interrupted:
            raise code.interrupted.pop()


def explained(site: ErrorSite, again: Again, words: Words, dictionary: Dictionary) -> ErrorSite:
    """``site`` with what the evaluation says of the arguments that the kernel left behind."""
    from cql.executor.user_code import from_word

    n = len(again.types)
    flags = words[again.first + n : again.first + 2 * n] if again.masked else [1] * n
    row: list[Value] = []
    for k, kind in enumerate(again.types):
        stored = int(words[again.first + k])
        if flags[k] == NULL:
            row.append(None)
        elif kind.is_text:
            row.append(text_of(dictionary.value(stored), kind))
        else:
            row.append(from_word(stored, kind))
    try:
        again.compute(row)
    except EvaluationError as error:
        return replace(site, kind=error.kind, message=error.message)
    return site
