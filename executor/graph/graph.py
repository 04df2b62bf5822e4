"""The graph of running operators that a runtime drives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cql.base.model import Schema
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import Operator, RowLimit
from cql.executor.operators.flow.hash_split import Bounds
from cql.planner.nodes.physical import ValuesExec

SINK = -1


@dataclass(frozen=True, slots=True)
class Edge:
    """The output morsels of an operator or a feed go to input ``port`` of operator ``target``."""

    target: int
    port: int


@dataclass(slots=True)
class Graph:
    """Operators, their output morsels and edges. ``entries`` are the edges of the feeds, in the
    order of ``physical.sources``. ``sinks`` are the operators that give the results, one per
    query."""

    operators: list[Operator] = field(default_factory=list)
    morsels: list[Morsel] = field(default_factory=list)
    schemas: list[Schema] = field(default_factory=list)  # of the output morsels
    #: Input schemas of each operator, by port; the last schema serves for all further ports.
    inputs: list[tuple[Schema, ...]] = field(default_factory=list)
    edges: list[list[Edge]] = field(default_factory=list)
    entries: list[Edge | None] = field(default_factory=list)
    constants: list[tuple[ValuesExec, Edge]] = field(default_factory=list)
    #: By operator and input column: the (feed, column) pairs that the column passes on unchanged.
    fed: dict[int, dict[int, list[tuple[int, int]]]] = field(default_factory=dict)
    sinks: list[int] = field(default_factory=list)
    bounds: list[Bounds] = field(default_factory=list)  # range bounds of range-split operators
    partitions: dict[int, int] = field(default_factory=dict)  # of split nodes, by number
    keys: list[str] = field(default_factory=list)  # of the operators (``graph.keys``)

    def running(self) -> Iterator[Operator]:
        """The operators; an operator with instances is replaced by its instances."""
        for operator in self.operators:
            yield from operator.instances or (operator,)

    def users(self) -> list[set[int]]:
        """Per operator: the queries that its output contributes to."""
        found: list[set[int]] = [set() for _ in self.operators]
        above: list[list[int]] = [[] for _ in self.operators]
        for k, edges in enumerate(self.edges):
            for edge in edges:
                if edge.target != SINK:
                    above[edge.target].append(k)
        for query, sink in enumerate(self.sinks):
            waiting = [sink]
            while waiting:
                k = waiting.pop()
                if query not in found[k]:
                    found[k].add(query)
                    waiting += above[k]
        return found

    def limits(self) -> list[RowLimit]:
        return [op.limit for op in self.operators if op.limit is not None]

    def needed_feeds(self) -> set[int]:
        """The feeds that still lead to a result: no exhausted LIMIT blocks every way."""
        wanted = {SINK}
        for k in self._backwards():
            limit = self.operators[k].limit
            over = limit is not None and limit.is_over
            if not over and any(edge.target in wanted for edge in self.edges[k]):
                wanted.add(k)
        entries = enumerate(self.entries)
        return {k for k, edge in entries if edge is not None and edge.target in wanted}

    def _backwards(self) -> list[int]:
        """The operators in reverse topological order; in a loop the order is arbitrary."""
        order: list[int] = []
        seen: set[int] = set()
        waiting = [(k, False) for k in range(len(self.operators))]
        while waiting:
            k, left = waiting.pop()
            if left:
                order.append(k)
            elif k not in seen:
                seen.add(k)
                waiting.append((k, True))
                waiting += [(e.target, False) for e in self.edges[k] if e.target != SINK]
        return order

    def contradicted(self, nulls: list[set[int]]) -> dict[int, set[int]]:
        """Operators whose kernels assume columns without NULLs, and which of these columns have
        held a NULL."""
        found = {}
        for k, columns in self.fed.items() if any(nulls) else ():
            seen = {c for c, places in columns.items() if any(p[1] in nulls[p[0]] for p in places)}
            if wrong := seen & self.operators[k].any_instance.assume_valid:
                found[k] = wrong
        return found

    def reassume(self, contradicted: dict[int, set[int]]) -> None:
        """Rebuilds the ``contradicted`` kernels without the refuted assumptions."""
        for k, wrong in contradicted.items():
            operator = self.operators[k]
            operator.reassume(operator.any_instance.assume_valid - wrong)
            self.morsels[k].own_masks()
