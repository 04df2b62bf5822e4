"""Numbers of the nodes of plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cql.planner.nodes.physical.sources import SourceExec

if TYPE_CHECKING:
    from cql.planner.nodes.physical import Physical


class NodeNumbers:
    """The nodes of plans, each once although several nodes may read it: the number of a node is its
    place, each node before its inputs, left to right. Plans that travelled to another process have
    the same numbers there.

    Two equal nodes are different nodes: only what the plan shares is one node."""

    def __init__(self, *roots: Physical) -> None:
        #: The numbers by the ids of the nodes, which ``_nodes`` keeps in use.
        self._numbers: dict[int, int] = {}
        self._nodes: list[Physical] = []
        numbers, nodes, waiting = self._numbers, self._nodes, [*reversed(roots)]
        while waiting:
            node = waiting.pop()
            if id(node) not in numbers:
                numbers[id(node)] = len(nodes)
                nodes.append(node)
                waiting += reversed(node.inputs)

    def __getitem__(self, node: Physical) -> int:
        """The number of a node. Raises KeyError for a node of another plan."""
        return self._numbers[id(node)]

    def __contains__(self, node: Physical) -> bool:
        return id(node) in self._numbers

    def __iter__(self) -> Iterator[Physical]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, number: int) -> Physical:
        """The node with a number."""
        return self._nodes[number]


class SourceNumbers:
    """The places of sources in ``physical.sources`` of the same plans."""

    def __init__(self, *roots: Physical) -> None:
        self._nodes = NodeNumbers(*roots)
        found = (node for node in self._nodes if isinstance(node, SourceExec))
        self._places = {self._nodes[source]: place for place, source in enumerate(found)}

    def __getitem__(self, source: SourceExec) -> int:
        return self._places[self._nodes[source]]
