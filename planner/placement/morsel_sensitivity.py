"""Plans whose output depends on where their inputs are cut into morsels: they are cut alike in
every runtime (the design's sameness)."""

from __future__ import annotations

from cql.planner.nodes.physical import Physical, PhysicalPlan, SourceExec, walk
from cql.planner.nodes.physical_join import OopJoinExec


def depends_on_morsels(plan: PhysicalPlan) -> bool:
    """Whether another size of morsels would give the rows in another order, or other changes."""
    return plan.emits_changes or _meets_itself(plan.root) or any(map(_is_slow, walk(plan.root)))


def _meets_itself(root: Physical) -> bool:
    """Whether a source comes to an operator at several inputs: a morsel at the one, then at the
    other."""
    read = [id(node) for node in walk(root) if isinstance(node, SourceExec)]
    return len(read) > len(set(read))


def _is_slow(node: Physical) -> bool:
    """Whether rows that find no partner leave a few for each morsel that comes (slow flush)."""
    return isinstance(node, OopJoinExec) and node.smooth and node.kind not in ("inner", "semi")
