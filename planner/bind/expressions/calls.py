"""Calls of functions in the syntax tree: their names, arguments and texts."""

from __future__ import annotations

from sqlglot import exp

from cql.dialect import Cql
from cql.dialect.generator import CqlGenerator

_NAMES: dict[type[exp.Expr], str] = {
    exp.Pow: "power",
    exp.DayOfMonth: "dayofmonth",
    exp.DayOfWeek: "dayofweek",
    exp.DayOfYear: "dayofyear",
    exp.Variance: "variance",
    exp.VariancePop: "var_pop",
    exp.StrPosition: "position",
}


def function_name(node: exp.Expr) -> str:
    """The registry name of a call, in lower case."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if type(node) in _NAMES:
        return _NAMES[type(node)]
    if isinstance(node, exp.Trim):
        return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(
            str(node.args.get("position") or "").upper(), "trim"
        )
    if isinstance(node, exp.Pad):
        return "lpad" if node.args.get("is_left") else "rpad"
    assert isinstance(node, exp.Func)
    return str(node.sql_names()[0]).lower()


def function_arguments(node: exp.Expr) -> list[exp.Expr]:
    """The arguments of a call, in the order of the text."""
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    if isinstance(node, exp.Extract):
        return [node.expression]
    if isinstance(node, exp.StrPosition):
        keys = ("substr", "this", "position")
        return [node.args[k] for k in keys if isinstance(node.args.get(k), exp.Expr)]
    found: list[exp.Expr] = []
    for key in node.arg_types:
        value = node.args.get(key)
        if isinstance(value, list):
            found += value
        elif isinstance(value, exp.Expr):
            found.append(value)
    return found


def printed(node: exp.Expr) -> str:
    """The text of an expression, which names its output column; function names are in lower case,
    as in Spark."""
    generator = CqlGenerator(dialect=Cql(), comments=False, normalize_functions="lower")
    return generator.generate(node, copy=False)
