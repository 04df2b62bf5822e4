"""Plans whose output depends on where their inputs are cut into morsels. Every runtime cuts these
inputs alike (the design's sameness)."""

from __future__ import annotations

from cql.planner.nodes.physical import (
    OopJoinExec,
    Physical,
    PhysicalPlan,
    SourceExec,
    sources,
    walk,
)


def depends_on_morsels(plan: PhysicalPlan) -> bool:
    """Whether another morsel size would change the order of the output rows, or the changes."""
    return plan.emits_changes or _meets_itself(plan.root) or any(map(_is_slow, walk(plan.root)))


def _meets_itself(root: Physical) -> bool:
    """Whether a source reaches an operator at several inputs: each morsel arrives at the one input,
    then at the other."""
    read = [node for node in walk(root) if isinstance(node, SourceExec)]
    return len(read) > len(sources(root))


def _is_slow(node: Physical) -> bool:
    """Whether rows without a partner leave a few at a time, with each morsel (slow flush)."""
    return isinstance(node, OopJoinExec) and node.smooth and node.kind not in ("inner", "semi")
