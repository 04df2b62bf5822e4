"""The punctuation that the consumers of each source can use (the describe operator: out-of-order
paper A.1.1, Tucker's [28]).

Punctuation on a window attribute closes nothing unless it reaches another window's end. So every
consumer states the boundaries that it needs, the planner carries them down to the sources, and a
source emits punctuation at boundaries only: a watermark in between is rounded down to a boundary.
"""

from __future__ import annotations

from dataclasses import replace

from cql.base.types import DataType
from cql.planner.lower.choose import duration
from cql.planner.nodes.physical import Awaited, Physical, SourceExec
from cql.planner.nodes.watermarks import Wanted, fewest


def describe(node: Physical, wanted: Wanted | None = None) -> Physical:
    """``node`` with the awaited punctuation noted at its sources. ``wanted`` holds the boundaries
    that the operator above needs on the columns of ``node``."""
    wanted = wanted or {}
    if isinstance(node, SourceExec):
        named = (Awaited(c, None if b is None else fewest(b)) for c, b in sorted(wanted.items()))
        return replace(node, awaited=tuple(named))
    below = zip(node.inputs, node.wants(wanted), strict=True)
    return node.with_inputs(tuple(describe(child, needed) for child, needed in below))


def awaited_text(node: SourceExec) -> str:
    """``awaited: punctuation on ts every 10 minutes``."""
    live = node.progressing
    if node.awaited is None or not live:
        return ""
    named = [a for a in node.awaited if a.column in live and a.boundaries != ()]
    if not named:
        return "awaited: no punctuation"
    return "awaited: punctuation on " + "; on ".join(
        f"{node.schema[a.column].name} {_listed(a, node.schema[a.column].type)}" for a in named
    )


def _listed(awaited: Awaited, kind: DataType) -> str:
    if awaited.boundaries is None:
        return "at any value"
    return " and ".join(
        f"every {duration(step, kind)}" + (f" + {duration(offset, kind)}" if offset else "")
        for step, offset in awaited.boundaries
    )
