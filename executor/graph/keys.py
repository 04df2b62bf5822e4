"""Names of operators that do not depend on partitions: by them a new run finds the state of its
operators in a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cql.executor.graph.graph import Graph
from cql.executor.state.checkpoint import Moved
from cql.planner.nodes.physical import Physical
from cql.planner.nodes.physical.numbers import NodeNumbers

#: What the key of a split operator has behind the number of its node.
SPLIT = "split"


def operator_keys(
    nodes: NodeNumbers, graph: Graph, roles: Mapping[int, tuple[int, str]]
) -> list[str]:
    """For each operator: the number of the node that it is of, and its role there. A windowed
    aggregate is found by its own node, since partitions decide how many nodes above it the same
    operator computes. ``roles`` has both of each operator."""
    found = []
    for number, operator in enumerate(graph.operators):
        node, role = roles[number]
        if (aggregate := operator.any_instance.aggregate) is not None:
            node = nodes[aggregate]
        found.append(" ".join(filter(None, (str(node), role, operator.name.split("#")[0]))))
    return found


def moved(roots: Sequence[Physical], keys: Collection[str], saved: Collection[str]) -> Moved | None:
    """Which operators with ``keys`` do the work that operators with the keys ``saved`` did; None if
    these are of another plan."""
    readers = _readers(roots)
    now, before = (_by_node(known) for known in (keys, saved))
    to: dict[str, list[str]] = {}
    away: dict[str, str] = {}
    for key in (*saved, *keys):
        if key in keys and key in saved:
            continue
        reader = _nearest(_number(key), readers, now if key in saved else before)
        if reader is None or reader not in keys or reader not in saved:
            return None
        if key in saved:
            to.setdefault(reader, []).append(key)
        else:
            away[key] = reader
    changed, above = {*to, *away.values()}, {}
    for number, key in now.items():
        reader = _nearest(readers.get(number), readers, now)
        if key in saved and reader in changed:
            above[key] = reader
    return Moved(to, away, above)


def _readers(roots: Sequence[Physical]) -> dict[int, int]:
    """For each node, the first one that reads it, by their numbers."""
    numbers, found = NodeNumbers(*roots), dict[int, int]()
    for node in numbers:
        for child in node.inputs:
            found.setdefault(numbers[child], numbers[node])
    return found


def _number(key: str) -> int:
    return int(key.split(" ")[0])


def _by_node(keys: Collection[str]) -> dict[int, str]:
    """The keys of the operators that give the output of a node, by its number."""
    return {_number(key): key for key in keys if key.split(" ")[1] != SPLIT}


def _nearest(
    number: int | None, readers: Mapping[int, int], known: Mapping[int, str]
) -> str | None:
    """The key, of those ``known``, of the operator that computes a node with others above it; None
    if there is none."""
    while number is not None and number not in known:
        number = readers.get(number)
    return None if number is None else known[number]
