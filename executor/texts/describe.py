"""EXPLAIN's lines about functions over texts: where each is computed, and which ones in Python."""

from __future__ import annotations

from collections.abc import Iterator

from cql.executor.codegen.expressions.text import is_text_node, table_of
from cql.executor.texts.functions.table import BLOCKS, IN_PYTHON
from cql.executor.texts.in_blocks import in_blocks, unwrapped
from cql.planner.nodes.expr import Call, Cast, Expr, children, walk
from cql.planner.nodes.held import held_by
from cql.planner.nodes.logical import AggregateCall
from cql.planner.nodes.physical import Physical, ProjectExec, live
from cql.planner.nodes.show import show

_BLOCKS, _CODES, _MORSELS = "for blocks of rows", "once per distinct text", "for morsels of rows"


def text_notes(root: Physical, threads: int) -> tuple[str, ...]:
    """Lines that say of each function over texts, except users' functions, how often it is
    computed; and a line with the names of those that Python computes. ``threads`` threads share the
    blocks of bounded sources."""
    (moved,) = in_blocks([root]).roots
    found: dict[str, dict[str, None]] = {_BLOCKS: {}, _CODES: {}, _MORSELS: {}}
    python: set[str] = set()
    for expr, in_block in _texts(moved):
        called = [e for e in walk(expr) if isinstance(e, Call | Cast) and is_text_node(e)]
        if any(isinstance(e, Call) and e.function is not None for e in called):
            continue
        how = _BLOCKS if in_block else _CODES if table_of(expr) is not None else _MORSELS
        found[how][show(expr)] = None
        python |= {_name(e) for e in called if _is_in_python(e)}
    shared = f" on up to {threads} threads" if threads > 1 and not live(root) else ""
    lines = [
        f"texts, {how}{shared if how is _BLOCKS else ''}: {', '.join(texts)}"
        for how, texts in found.items()
        if texts
    ]
    if python:
        lines.append(f"texts, in Python, equal ones once: {', '.join(sorted(python))}")
    return tuple(lines)


def _is_in_python(expr: Call | Cast) -> bool:
    if isinstance(expr, Cast):
        return expr.arg.type.is_nested
    return expr.fn not in BLOCKS or expr.fn in IN_PYTHON


def _name(expr: Call | Cast) -> str:
    return expr.fn if isinstance(expr, Call) else "cast"


def _texts(node: Physical) -> Iterator[tuple[Expr, bool]]:
    """The outermost functions over texts, and whether a source computes them."""
    if isinstance(node, ProjectExec) and node.in_blocks:
        for expr in node.exprs[len(node.input.schema) :]:
            inner, fails = unwrapped(expr)
            if not fails:
                yield inner, True
    else:
        for held in held_by(node):
            if not isinstance(held, AggregateCall):
                yield from ((text, False) for text in _outermost(held))
    for child in node.inputs:
        yield from _texts(child)


def _outermost(expr: Expr) -> Iterator[Expr]:
    if is_text_node(expr):
        yield expr
    else:
        for child in children(expr):
            yield from _outermost(child)
