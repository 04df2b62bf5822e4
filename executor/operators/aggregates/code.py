"""An aggregate function as kernel text: its state columns and the lines that change them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.executor.codegen.expressions.emit import Code
from cql.planner.functions.user.aggregates import UserMethod


@dataclass(frozen=True, slots=True)
class OwnCode:
    """What a user's aggregate needs in a kernel: the ``prefix`` of its names, its methods by role,
    and the number of words of their arguments and results."""

    prefix: str
    methods: tuple[tuple[str, UserMethod], ...]
    arguments: int
    results: int


@dataclass(frozen=True, slots=True)
class AggregateCode:
    """The code of one call; ``g`` is the entry of the group at hand.

    ``columns``: state columns (name, dtype). ``init`` and ``update`` are lines; ``update`` reads
    the arguments (see ``argument``), ``T`` (window attribute), ``Q`` (arrival order) and
    ``{leave}`` (leaves the kernel: the query fails). ``final_lines`` compute ``result``. ``merge``
    adds the state of entry ``m`` to that of ``g``; only a holistic call and a user's aggregate may
    have no such lines. ``retract`` and ``subtract`` undo an update and a merge, exactly: the
    engine's aggregates have both where ``AggregateCall.has_inverse``, else none. ``sees_null``: the
    arguments whose NULL is a value (the row counts; the flag ``<argument>_ok`` is false).
    ``ranked``: the argument whose rank is read."""

    columns: tuple[tuple[str, str], ...]
    init: tuple[str, ...]
    update: tuple[str, ...]
    final_lines: tuple[str, ...]
    result: Code
    merge: tuple[str, ...]
    fatal: str | None = None  # message of the error behind {leave}
    ranked: int | None = None
    ordered: bool = field(default=False)  # reads T and Q
    sees_null: frozenset[int] = frozenset()
    codes: tuple[str, ...] = ()  # state columns that hold dictionary codes
    retract: tuple[str, ...] = ()
    subtract: tuple[str, ...] = ()
    own: OwnCode | None = None  # for a user's aggregate


def argument(k: int, n: int) -> str:
    """The local that holds argument ``n`` of the ``k``-th call."""
    return f"arg{k}" if n == 0 else f"arg{k}_{n}"
