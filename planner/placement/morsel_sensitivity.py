"""Plans whose output depends on where their inputs are cut into morsels. Every runtime cuts these
inputs alike (the design's sameness)."""

from __future__ import annotations

from cql.planner.nodes.physical import Physical, PhysicalPlan, SourceExec, sources, walk


def depends_on_morsels(plan: PhysicalPlan) -> bool:
    """Whether another morsel size would change the order of the output rows, or the changes."""
    slow = any(node.leaves_slowly for node in walk(plan.root))
    return plan.emits_changes or slow or _meets_itself(plan.root)


def _meets_itself(root: Physical) -> bool:
    """Whether a source reaches an operator at several inputs: each morsel arrives at the one input,
    then at the other."""
    read = [node for node in walk(root) if isinstance(node, SourceExec)]
    return len(read) > len(sources(root))
