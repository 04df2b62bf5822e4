"""Names of operators that do not depend on partitions: by them a new run finds the state of its
operators in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from cql.executor.graph.graph import Graph

#: What the key of a split operator has behind the number of its node.
SPLIT = "split"


def operator_keys(graph: Graph, roles: Mapping[int, tuple[int, str]]) -> list[str]:
    """For each operator: the number of the node that it is of, and its role there.
    ``roles`` has both of each operator."""
    found = []
    for number, operator in enumerate(graph.operators):
        node, role = roles[number]
        found.append(" ".join(filter(None, (str(node), role, operator.name.split("#")[0]))))
    return found


def is_split(key: str) -> bool:
    """Whether a key is that of a split operator, which has no state."""
    return key.split(" ")[1] == SPLIT
