"""Users' aggregates: their state is columns of the group; the kernel calls their functions by
address.

The kernel writes the state and the arguments into words of its own, ``<a>w`` at ``<a>at``; the
function writes its results behind them. Lines have ``{leave update}`` where a failing function
leaves the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from cql.base.types import DataType
from cql.executor.codegen.expressions.scope import Again, Called, Code, ErrorSite, of_word, word
from cql.executor.codegen.expressions.udf import flat
from cql.executor.operators.aggregates.code import AggregateCode, OwnCode, argument
from cql.planner.nodes.expr import Value
from cql.planner.nodes.logical import AggregateCall


def user_aggregate_code(call: AggregateCall, k: int) -> AggregateCode:
    """The code of the ``k``-th call, whose function is a user's aggregate."""
    own = call.function
    assert own is not None
    a = f"a{k}"
    kinds = own.state
    columns = [f"{a}s{i}" for i in range(len(kinds))]
    sees_null = frozenset(range(len(call.args))) if own.sees_null else frozenset()
    given = [
        *(word(f"{c}[g]", kind) for c, kind in zip(columns, kinds, strict=True)),
        *(word(argument(k, n), arg.type) for n, arg in enumerate(call.args)),
    ]
    if own.sees_null:
        given += ["1"] * len(columns)
        given += [f"int64({argument(k, n)}_ok)" for n in range(len(call.args))]
    states = [word(f"{c}[{e}]", kind) for e in "gm" for c, kind in zip(columns, kinds, strict=True)]
    code = OwnCode(
        a,
        (("update", own.update), ("final", own.final))
        + ((("merge", own.merge),) if own.merge is not None else ())
        + ((("retract", own.retract),) if own.retract is not None else ()),
        max(len(given), len(states)),
        max(len(columns), 1),
    )
    back = [
        f"{column}[g] = {_stored(f'{a}w[{code.arguments + i}]', kind)}"
        for i, (column, kind) in enumerate(zip(columns, kinds, strict=True))
    ]
    result = f"{a}w[{code.arguments}]"
    return AggregateCode(
        tuple((c, _dtype(kind)) for c, kind in zip(columns, kinds, strict=True)),
        tuple(f"{c}[g] = {_text(v)}" for c, v in zip(columns, own.start, strict=True)),
        (*_called(code, "update", given), *back),
        (
            *_called(code, "final", states[: len(columns)], "== 2"),
            f"{a}v = {a}r == 1",
            f"{a}y = {of_word(result, call.type)}",
        ),
        Code(f"{a}y", f"{a}v"),
        () if own.merge is None else (*_called(code, "merge", states), *back),
        sees_null=sees_null,
        retract=() if own.retract is None else (*_called(code, "retract", given), *back),
        own=code,
    )


def _called(code: OwnCode, role: str, words: Sequence[str], failed: str = "!= 1") -> list[str]:
    a = code.prefix
    return [
        *(f"{a}w[{i}] = {text}" for i, text in enumerate(words)),
        f"{a}r = call_function({a}{role}, {a}{role}_own, {a}at, {a}at + {8 * code.arguments})",
        f"if {a}r {failed}:",
        f"    {{leave {role}}}",
    ]


def _dtype(kind: DataType) -> str:
    return "float64" if kind.is_fraction else "int64"


def _stored(text: str, kind: DataType) -> str:
    return f"f64_of_bits({text})" if kind.is_fraction else text


def _text(value: Value) -> str:
    """A value of the initial state, as numba text."""
    if isinstance(value, float):
        if math.isnan(value):
            return "math.nan"
        return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}math.inf"
    assert isinstance(value, int)
    return f"({int(value) + 1} - 1)" if value == -(2**63) else str(int(value))


class Kernel(Protocol):
    """The kernel under construction (``kernel_builder.KernelText``)."""

    own_words: dict[str, int]

    def declare(self, name: str, text: str) -> str: ...
    def words(self, count: int) -> int: ...
    def function(self, function: Called) -> tuple[str, str]: ...
    def site(self, site: ErrorSite) -> int: ...


def declare_own(kernel: Kernel, codes: Sequence[AggregateCode]) -> None:
    """Declares the words of users' aggregates as locals of the kernel."""
    for code in codes:
        if code.own is None:
            continue
        a, size = code.own.prefix, code.own.arguments + code.own.results
        first = kernel.own_words.setdefault(a, -1)
        if first < 0:
            first = kernel.own_words[a] = kernel.words(size)
        kernel.declare(f"{a}at", f"desc + {8 * first}")
        kernel.declare(f"{a}w", f"words({a}at, {size})")


def own_lines(
    kernel: Kernel,
    fatal: set[int],
    call: AggregateCall,
    own: OwnCode,
    lines: Sequence[str],
    leave: str,
) -> list[str]:
    """Replaces ``{leave …}`` in the lines of ``own`` by statements that leave the kernel. A failing
    ``final`` has not changed the state, so that ON BAD ROW may skip its result; every other failure
    is fatal."""
    written = list(lines)
    for role, method in own.methods:
        mark = f"{{leave {role}}}"
        if not any(mark in line for line in written):
            continue
        address, itself = kernel.function(method)
        kernel.declare(f"{own.prefix}{role}", address)
        kernel.declare(f"{own.prefix}{role}_own", itself)
        kinds = flat(method.shape)
        again = Again(
            method.compute, kinds, kernel.own_words[own.prefix], method.sees_null, role != "merge"
        )
        site = kernel.site(ErrorSite("function", f"{method.name} failed", call.pos, again))
        if role != "final":
            fatal.add(site)
        out = f"status = 3; detail = {site}; {leave}"
        written = [line.replace(mark, out) for line in written]
    return written
