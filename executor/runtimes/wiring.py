"""A graph as the flat tables that the compiled drivers read."""

from __future__ import annotations

import numpy as np

from cql.executor.graph.graph import Graph
from cql.executor.morsel.morsel import Words


class Wiring:
    """Arrays by operator: ``address`` of its function (0: Python runs the operator), address of its
    ``descriptor``, and ``out``, the address of its output morsel. Operator k has the edges
    ``edge_from[k]`` to ``edge_from[k + 1] - 1``; arrays by edge: ``edge_to`` (an operator, or SINK)
    and ``edge_port``."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        edges = [e for edges in graph.edges for e in edges]
        self.address = np.zeros(len(graph.operators), np.int64)
        self.descriptor = np.zeros(len(graph.operators), np.int64)
        self.out = np.array([u.address for u in graph.morsels], np.int64)
        self.edge_from = np.cumsum([0, *(len(e) for e in graph.edges)]).astype(np.int64)
        self.edge_to = np.array([e.target for e in edges], np.int64)
        self.edge_port = np.array([e.port for e in edges], np.int64)
        self.rebind()

    def rebind(self) -> None:
        """Reads the addresses of functions and descriptors again, after kernels were rebuilt."""
        for k, operator in enumerate(self._graph.operators):
            self.address[k] = operator.address
            self.descriptor[k] = operator.descriptor.ctypes.data

    @property
    def tables(self) -> tuple[Words, ...]:
        """The arrays in the order of the drivers' parameters."""
        return (
            self.address,
            self.descriptor,
            self.out,
            self.edge_from,
            self.edge_to,
            self.edge_port,
        )
