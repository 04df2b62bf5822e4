"""The conditions of a relation join on a pair, besides equal keys: a function for one query.

The function reads the ids of the two rows from its descriptor, and their columns from the
operator's arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.executor.codegen.expressions.emit import emit
from cql.executor.codegen.kernel_builder import KernelText, Lazy, RowScope
from cql.executor.codegen.kernel_cache import Kernel, once
from cql.executor.kernels.lib.views import VIEWS
from cql.planner.nodes.expr import columns_of
from cql.planner.nodes.physical import RelationJoinExec

#: The first words of the descriptor: the ids of the pair's rows.
PAIR = ("left row", "right row")


@dataclass(frozen=True, slots=True)
class Condition:
    """``places``: slot of an array's address → (side, name of the array)."""

    kernel: Kernel
    places: dict[str, tuple[int, str]]


@once
def write(node: RelationJoinExec) -> Condition:
    """Writes the function of the conditions ``node.rest``; it returns 1 if all hold, else 0."""
    kernel = KernelText()
    for name in PAIR:
        kernel.layout.slot(name)
    scope, places = RowScope(kernel, "0"), {}
    used = columns_of(*node.rest)
    schemas = (node.left.schema.fields[:-2], node.right.schema.fields[:-2])
    at = 0
    for side, fields in enumerate(schemas):
        size = kernel.word(f"rows {side}")
        row = f"uint64(d[{side}])"
        for c, f in enumerate(fields):
            name = f"{'lr'[side]}{c}"
            data = mask = ""
            if at in used:
                places[name] = side, f"c{c}"
                data = f"{VIEWS[f.type.storage]}({kernel.word(name)}, {size})"
                if f.nullable:
                    places[f"{name}m"] = side, f"m{c}"
                    mask = f"as_u8({kernel.word(f'{name}m')}, {size})"
            scope.columns.append(
                Lazy(name, data, f"{name}m" if f.nullable else None, mask, f.type, row)
            )
            at += 1
    body = kernel.body
    with body.block():
        body.line("status = 0")
        with body.block("for _ in range(1):"):
            for condition in node.rest:
                code = emit(condition, scope)
                holds = code.value if code.valid is None else f"({code.valid} and {code.value})"
                with body.block(f"if not {holds}:"):
                    body.line("break")
            body.line("status = 1")
        body.line("return int64(status == 1)")
    return Condition(kernel.finish(), places)
