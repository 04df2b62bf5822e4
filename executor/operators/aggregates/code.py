"""The code of an aggregate function in a kernel: its state, and the lines that change it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.executor.codegen.expressions.emit import Code
from cql.planner.functions.user_aggregates import UserMethod


@dataclass(frozen=True, slots=True)
class OwnCode:
    """What an aggregate of the user's needs in a kernel: ``prefix`` of its names, its methods by
    their roles, how many words their arguments and their results take."""

    prefix: str
    methods: tuple[tuple[str, UserMethod], ...]
    arguments: int
    results: int


@dataclass(frozen=True, slots=True)
class AggregateCode:
    """``columns``: state columns (name, dtype). ``init`` and ``update`` are lines; ``update`` reads
    the arguments (see ``argument``), ``T`` (window attribute), ``Q`` (arrival order) and
    ``{leave}`` (leaves the kernel: the query fails). ``final`` gives lines and the result.
    ``merge`` adds what entry ``m`` holds to ``g``; empty where a state cannot be merged.
    ``sees_null``: of which arguments NULL is a value (the row counts, and ``<argument>_ok`` tells);
    ``ranked``: the argument whose rank is read."""

    columns: tuple[tuple[str, str], ...]
    init: tuple[str, ...]
    update: tuple[str, ...]
    final_lines: tuple[str, ...]
    result: Code
    merge: tuple[str, ...] = ()
    fatal: str | None = None  # message of the error behind {leave}
    ranked: int | None = None
    ordered: bool = field(default=False)  # reads T and Q
    sees_null: frozenset[int] = frozenset()
    codes: tuple[str, ...] = ()  # state columns that hold codes of the dictionary
    retract: tuple[str, ...] = ()  # undoes an update; empty where none can
    subtract: tuple[str, ...] = ()  # undoes a merge; empty where none can
    own: OwnCode | None = None  # of an aggregate of the user's


def argument(k: int, n: int) -> str:
    """The name of argument ``n`` of the ``k``-th call in the row's code."""
    return f"arg{k}" if n == 0 else f"arg{k}_{n}"
