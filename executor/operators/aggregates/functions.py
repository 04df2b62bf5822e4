"""State and code of each aggregate function, as text for the windowed aggregate's kernel.

``g`` indexes the dense state columns of the group at hand. A row updates a state if its argument is
not NULL and its FILTER holds; a ``loose`` state may have had no such row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cql.base.types import DataType, Kind
from cql.errors import NotSupportedError
from cql.executor.codegen.expressions.emit import Code
from cql.executor.operators.aggregates.code import AggregateCode, argument
from cql.executor.operators.aggregates.udaf import user_aggregate_code
from cql.planner.nodes.logical import AggregateCall


def aggregate_code(call: AggregateCall, k: int, loose: bool) -> AggregateCode:
    """Code of the ``k``-th call. A DISTINCT call updates its state for new values only. Raises
    NotSupportedError for an unknown function, AssertionError for an aggregate of the engine whose
    code lacks lines that the planner relies on."""
    if call.function is not None:
        return user_aggregate_code(call, k)
    builder = _BUILDERS.get(call.fn)
    if builder is None:
        raise NotSupportedError(f"aggregate {call.fn} is not supported yet", position=call.pos)
    code = builder(call, f"a{k}", argument(k, 0), loose)
    assert code.merge, f"{call.fn}: the code has no merge lines, which panes and sessions need"
    for name, lines in (("retract", code.retract), ("subtract", code.subtract)):
        assert bool(lines) == call.has_inverse, (
            f"{call.fn}({', '.join(str(a.type) for a in call.args)}): the code has"
            f" {'' if lines else 'no '}{name} lines, and AggregateCall.has_inverse is"
            f" {call.has_inverse}"
        )
    return code


def _has(a: str, loose: bool) -> tuple[list[tuple[str, str]], list[str], list[str], str | None]:
    """State, init and update lines of the number of values, and the name of the result's flag."""
    if not loose:
        return [], [], [], None
    return [(f"{a}h", "int64")], [f"{a}h[g] = 0"], [f"{a}h[g] += 1"], f"{a}v"


def _finish(
    a: str,
    loose: bool,
    columns: list[tuple[str, str]],
    init: list[str],
    update: Callable[[str], list[str]],
    x: str,
    state: str,
    result: str,
    **more: Any,
) -> AggregateCode:
    """An aggregate whose state, column ``state``, is a value of its argument's kind: a merge is an
    update with the other state."""
    has_columns, has_init, has_update, valid = _has(a, loose)
    merge = [*update(f"{state}[m]"), *([f"{a}h[g] += {a}h[m]"] if loose else [])]
    return AggregateCode(
        (*columns, *has_columns),
        (*init, *has_init),
        (*update(x), *has_update),
        (f"{a}v = {a}h[g] != 0",) if loose else (),
        Code(result, valid),
        (f"if {a}h[m] != 0:", *(f"    {line}" for line in merge)) if loose else tuple(merge),
        **more,
    )


def _count(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    n = f"{a}n"
    return AggregateCode(
        ((n, "int64"),),
        (f"{n}[g] = 0",),
        (f"{n}[g] += 1",),
        (),
        Code(f"{n}[g]", None),
        (f"{n}[g] += {n}[m]",),
        retract=(f"{n}[g] -= 1",),
        subtract=(f"{n}[g] -= {n}[m]",),
    )


def _count_if(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    n = f"{a}n"
    update = (f"if {x}:", f"    {n}[g] += 1")
    return AggregateCode(
        ((n, "int64"),),
        (f"{n}[g] = 0",),
        update,
        (),
        Code(f"{n}[g]", None),
        (f"{n}[g] += {n}[m]",),
        retract=(f"if {x}:", f"    {n}[g] -= 1"),
        subtract=(f"{n}[g] -= {n}[m]",),
    )


#: Digits of SMALLINT and of INT: 64 bits hold the sum of 10^13, or of 10^9, such values.
_TINY, _SMALL = 5, 10


@dataclass(frozen=True, slots=True)
class _Total:
    """The exact sum of int64 values, whatever the order in which they are added and subtracted.

    The sum is ``high * 2^64 + low``. ``low`` wraps; only a row or a part that makes ``low`` wrap
    changes ``high``. ``high`` is None for values of at most 10 ``digits``, since 64 bits hold the
    sum of some 10^9 of them: then a row that makes ``low`` wrap leaves the kernel."""

    a: str
    low: str
    high: str | None
    digits: int

    @property
    def columns(self) -> list[tuple[str, str]]:
        return [(name, "int64") for name in (self.low, self.high) if name is not None]

    @property
    def init(self) -> list[str]:
        return [f"{name}[g] = 0" for name, _ in self.columns]

    @property
    def upper(self) -> str:
        """The word above ``low`` of the 128-bit sum, whose low word is unsigned."""
        sign = f"({self.low}[g] >> 63)"
        return f"{self.high}[g] + {sign}" if self.high else sign

    def add(self, x: str) -> list[str]:
        a, low = self.a, self.low
        if self.digits <= _TINY:
            return [f"{low}[g] += int64({x})"]
        carry = "{leave}"
        if self.high:
            carry = f"{self.high}[g] += -1 if {a}x < 0 else 1"
        return [
            f"{a}o, {a}x = {low}[g], int64({x})",
            f"{a}r = {a}o + {a}x",
            f"{low}[g] = {a}r",
            f"if unlikely((({a}o ^ {a}r) & ({a}x ^ {a}r)) < 0):",
            f"    {carry}",
        ]

    def remove(self, x: str) -> list[str]:
        """Subtracts a value that has been added before."""
        a, low = self.a, self.low
        if not self.high:
            return [f"{low}[g] -= int64({x})"]
        return [
            f"{a}o, {a}x = {low}[g], int64({x})",
            f"{a}r = {a}o - {a}x",
            f"{low}[g] = {a}r",
            f"if unlikely((({a}o ^ {a}x) & ({a}o ^ {a}r)) < 0):",
            f"    {self.high}[g] += 1 if {a}x < 0 else -1",
        ]

    def merge(self) -> list[str]:
        """Adds the sum of entry ``m``."""
        high = [f"{self.high}[g] += {self.high}[m]"] if self.high else []
        return [*self.add(f"{self.low}[m]"), *high]

    def subtract(self) -> list[str]:
        """Subtracts the sum of entry ``m``, which has been added before."""
        high = [f"{self.high}[g] -= {self.high}[m]"] if self.high else []
        return [*self.remove(f"{self.low}[m]"), *high]

    def leave_unless_it_fits(self, limit: int | None) -> tuple[str, ...]:
        """Leaves the kernel if the sum has more than 64 bits or its magnitude reaches ``limit``."""
        beyond = [f"{self.high}[g] != 0"] if self.high else []
        if limit is not None:
            beyond.append(f"{self.low}[g] <= -{limit} or {self.low}[g] >= {limit}")
        return (f"if {' or '.join(beyond)}:", "    {leave}") if beyond else ()


def _total(a: str, of: DataType) -> _Total:
    """The sum of values of a type."""
    digits = {"int8": _TINY, "int16": _TINY, "int32": _SMALL}.get(of.storage, 19)
    if of.kind is Kind.DECIMAL:
        digits = of.precision
    return _Total(a, f"{a}s", f"{a}c" if digits > _SMALL else None, digits)


def _sum(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    s = f"{a}s"
    if call.type.is_fraction:
        columns, init = [(s, "float64")], [f"{s}[g] = 0.0"]
        return _finish(a, loose, columns, init, lambda x: [f"{s}[g] += {x}"], x, s, f"{s}[g]")
    limit = 10**call.type.precision if call.type.kind is Kind.DECIMAL else None
    total = _total(a, call.args[0].type)
    has_columns, has_init, has_update, valid = _has(a, loose)
    merge, subtract = total.merge(), total.subtract()
    if loose:
        merge = [f"if {a}h[m] != 0:", *(f"    {line}" for line in merge), f"    {a}h[g] += {a}h[m]"]
        subtract.append(f"{a}h[g] -= {a}h[m]")
    has_value = (f"{a}v = {a}h[g] != 0",) if loose else ()
    return AggregateCode(
        (*total.columns, *has_columns),
        (*total.init, *has_init),
        (*total.add(x), *has_update),
        (*has_value, *total.leave_unless_it_fits(limit)),
        Code(f"{s}[g]", valid),
        tuple(merge),
        fatal=f"{call.type} overflow in sum",
        retract=(*total.remove(x), *([f"{a}h[g] -= 1"] if loose else [])),
        subtract=tuple(subtract),
    )


def _avg(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    s, n = f"{a}s", f"{a}n"
    guard = f"{a}d = {n}[g] if {n}[g] > 0 else 1"
    if call.type.kind is Kind.DECIMAL:
        return _average_of_decimals(call, a, x, loose)
    return AggregateCode(
        ((s, "float64"), (n, "int64")),
        (f"{s}[g] = 0.0", f"{n}[g] = 0"),
        (f"{s}[g] += float64({x})", f"{n}[g] += 1"),
        (guard, f"{a}v = {n}[g] > 0") if loose else (guard,),
        Code(f"({s}[g] / {a}d)", f"{a}v" if loose else None),
        (f"{s}[g] += {s}[m]", f"{n}[g] += {n}[m]"),
    )


def _average_of_decimals(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    """Exact sum at the argument's scale, then one HALF_UP rounding to the result's scale."""
    n, total = f"{a}n", _total(a, call.args[0].type)
    factor, limit = 10 ** (call.type.scale - call.args[0].type.scale), 10**call.type.precision
    return AggregateCode(
        (*total.columns, (n, "int64")),
        (*total.init, f"{n}[g] = 0"),
        (*total.add(x), f"{n}[g] += 1"),
        (
            f"{a}v = {n}[g] > 0",
            f"{a}d = {n}[g] if {a}v else 1",
            f"{a}r, {a}b = mean_half_up({total.upper}, {total.low}[g], {a}d, int64({factor}))",
            f"if {a}b or {a}r <= -{limit} or {a}r >= {limit}:",
            "    {leave}",
        ),
        Code(f"{a}r", f"{a}v" if loose else None),
        (*total.merge(), f"{n}[g] += {n}[m]"),
        fatal=f"{call.type} overflow in avg",
        retract=(*total.remove(x), f"{n}[g] -= 1"),
        subtract=(*total.subtract(), f"{n}[g] -= {n}[m]"),
    )


def _extreme(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    """min and max. NaN is the largest double; texts compare by rank."""
    s, smaller = f"{a}m", call.fn == "min"
    kind: DataType = call.type
    sign = "<" if smaller else ">"

    def update(x: str) -> list[str]:
        if kind.is_text:
            better = f"{s}[g] < 0 or rank[{x}] {sign} rank[{s}[g]]"
        elif kind.is_fraction and smaller:
            better = f"{x} < {s}[g] or {s}[g] != {s}[g]"
        elif kind.is_fraction:
            better = f"{x} > {s}[g] or {x} != {x}"
        else:
            better = f"{x} {sign} {s}[g]"
        return [f"if {better}:", f"    {s}[g] = {x}"]

    if kind.is_text:
        init = "-1"
    elif kind.is_fraction:  # min starts with NaN: every value is at most NaN
        init = "math.nan" if smaller else "-math.inf"
    elif kind.kind is Kind.BOOLEAN:
        init = "1" if smaller else "0"
    else:
        bits = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}[kind.storage]
        init = f"{2**bits - 1}" if smaller else f"(-{2**bits - 1} - 1)"
    result = f"({s}[g] != 0)" if kind.kind is Kind.BOOLEAN else f"{s}[g]"
    columns, codes = [(s, kind.storage)], (s,) if kind.is_text else ()
    return _finish(
        a,
        loose,
        columns,
        [f"{s}[g] = {init}"],
        update,
        x,
        s,
        result,
        ranked=0 if kind.is_text else None,
        codes=codes,
    )


def _moment(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    """Variance and standard deviation by Welford's update: no cancellation, whatever the mean."""
    n, mean, m2 = f"{a}n", f"{a}u", f"{a}q"
    sample = call.fn in ("stddev_samp", "var_samp")
    below = f"{a}d = float64({n}[g]{' - 1' if sample else ''})"
    value = f"({m2}[g] / {a}d)"
    if call.fn.startswith("stddev"):
        value = f"{value} ** 0.5"
    return AggregateCode(
        ((n, "int64"), (mean, "float64"), (m2, "float64")),
        (f"{n}[g] = 0", f"{mean}[g] = 0.0", f"{m2}[g] = 0.0"),
        (
            f"{n}[g] += 1",
            f"{a}e = float64({x}) - {mean}[g]",
            f"{mean}[g] += {a}e / {n}[g]",
            f"{m2}[g] += {a}e * (float64({x}) - {mean}[g])",
        ),
        (
            below,
            f"{a}v = {a}d > 0.0",
            f"{a}d = {a}d if {a}v else 1.0",
            f"{a}r = {value}",
        ),
        Code(f"{a}r", f"{a}v"),
        (  # the merge of two parts by Chan, Golub and LeVeque
            f"if {n}[m] > 0:",
            f"    {a}e = {mean}[m] - {mean}[g]",
            f"    {a}w = float64({n}[g]) * float64({n}[m])",
            f"    {n}[g] += {n}[m]",
            f"    {mean}[g] += {a}e * float64({n}[m]) / float64({n}[g])",
            f"    {m2}[g] += {m2}[m] + {a}e * {a}e * {a}w / float64({n}[g])",
        ),
    )


def _edge(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    """first and last by (window attribute, arrival); the value of that row may be NULL."""
    t, q, s, h = f"{a}t", f"{a}q", f"{a}m", f"{a}h"
    op, start = ("<", str(2**63 - 1)) if call.fn == "first" else (">", "NEVER")
    text_none = "-1" if call.type.is_coded else "0"
    return AggregateCode(
        ((t, "int64"), (q, "int64"), (s, call.type.storage), (h, "bool")),
        (f"{t}[g] = {start}", f"{q}[g] = {start}", f"{s}[g] = {text_none}", f"{h}[g] = 0"),
        (
            f"if T {op} {t}[g] or (T == {t}[g] and Q {op} {q}[g]):",
            f"    {t}[g] = T",
            f"    {q}[g] = Q",
            f"    {s}[g] = {x}",
            f"    {h}[g] = {x}_ok",
        ),
        (f"{a}v = {h}[g] != 0",),
        Code(f"({s}[g] != 0)" if call.type.kind is Kind.BOOLEAN else f"{s}[g]", f"{a}v"),
        (
            f"if {t}[m] {op} {t}[g] or ({t}[m] == {t}[g] and {q}[m] {op} {q}[g]):",
            *(f"    {column}[g] = {column}[m]" for column in (t, q, s, h)),
        ),
        ordered=True,
        codes=(s,) if call.type.is_coded else (),
        sees_null=frozenset((0,)),
    )


def _value_at_extreme(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    """max_by and min_by: the value, NULL or not, of the row whose other argument is extreme; among
    several such rows, of the first by (window attribute, arrival)."""
    by: DataType = call.args[1].type
    y, sign = f"{x}_1", "<" if call.fn == "min_by" else ">"
    s, h, o, t, q, some = (f"{a}{name}" for name in "mhotqs")

    def better(y: str, time: str, arrival: str) -> str:
        beyond, same = f"{y} {sign} {o}[g]", f"{y} == {o}[g]"
        if by.is_text:
            beyond = f"rank[{y}] {sign} rank[{o}[g]]"
        if by.is_fraction:  # NaN is the largest
            outer, inner = (f"{o}[g]", y) if call.fn == "min_by" else (y, f"{o}[g]")
            beyond += f" or ({outer} != {outer} and {inner} == {inner})"
            same += f" or ({y} != {y} and {o}[g] != {o}[g])"
        earlier = f"{time} < {t}[g] or ({time} == {t}[g] and {arrival} < {q}[g])"
        return f"if {some}[g] == 0 or {beyond} or (({same}) and ({earlier})):"

    kept = {s: x, h: f"{x}_ok", o: y, t: "T", q: "Q", some: "1"}
    return AggregateCode(
        (
            *((s, call.type.storage), (h, "bool"), (o, by.storage)),
            *((t, "int64"), (q, "int64"), (some, "bool")),
        ),
        (
            *(f"{column}[g] = 0" for column in (h, t, q, some)),
            f"{s}[g] = {'-1' if call.type.is_coded else '0'}",
            f"{o}[g] = {'-1' if by.is_text else '0'}",
        ),
        (better(y, "T", "Q"), *(f"    {column}[g] = {value}" for column, value in kept.items())),
        (f"{a}v = {h}[g] != 0",),
        Code(f"({s}[g] != 0)" if call.type.kind is Kind.BOOLEAN else f"{s}[g]", f"{a}v"),
        (
            f"if {some}[m] != 0:",
            "    " + better(f"{o}[m]", f"{t}[m]", f"{q}[m]"),
            *(f"        {column}[g] = {column}[m]" for column in kept),
        ),
        ordered=True,
        ranked=1 if by.is_text else None,
        codes=tuple(c for c, kind in ((s, call.type), (o, by)) if kind.is_coded),
        sees_null=frozenset((0,)),
    )


def _logical(call: AggregateCall, a: str, x: str, loose: bool) -> AggregateCode:
    """bool_and is a minimum, bool_or a maximum."""
    fn = {"bool_and": "min", "bool_or": "max"}[call.fn]
    as_extreme = AggregateCall(fn, call.args, call.type, call.nullable, pos=call.pos)
    return _extreme(as_extreme, a, x, loose)


_Builder = Callable[[AggregateCall, str, str, bool], AggregateCode]
_BUILDERS: dict[str, _Builder] = {
    "count": _count,
    "count_if": _count_if,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme,
    "max": _extreme,
    "stddev_samp": _moment,
    "stddev_pop": _moment,
    "var_samp": _moment,
    "var_pop": _moment,
    "first": _edge,
    "last": _edge,
    "max_by": _value_at_extreme,
    "min_by": _value_at_extreme,
    "bool_and": _logical,
    "bool_or": _logical,
}
