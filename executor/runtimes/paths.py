"""Whether the order of depth first can be kept by operators that run for themselves, and in which
order one with several inputs reads them.

An operator may see a morsel of an input in several *ways*, in turns: a union of two filters of one
stream that is joined with itself is given rows by one filter, which are joined on both sides before
it is given any by the other one. There morsels are told apart by the way that they came on: ways
are numbered as depth first goes them, so that serial number and way are the *place* of a morsel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from cql.executor.graph.graph import SINK, Edge, Graph
from cql.executor.kernels.ordered.handover import PORT_BITS, WAY_BITS
from cql.executor.kernels.ordered.tables import MOST_TASKS
from cql.executor.operators.flow.limit import LimitOperator
from cql.executor.operators.flow.replicas import first_of
from cql.executor.operators.flow.union import UnionOperator
from cql.executor.operators.stage.operator import Operator, StageOperator
from cql.planner.nodes.physical import BucketExec

#: Ports on the way of an input, at most.
_LONGEST = 1000


def check(graph: Graph) -> None:
    """ValueError, with the reason, if the order cannot be kept."""
    topological(graph)
    if len(graph.operators) > MOST_TASKS:
        raise ValueError(f"it has more than {MOST_TASKS} operators")
    fed = feeders(graph)
    if max(max(of, default=0) for of in fed) >= 1 << PORT_BITS:
        raise ValueError(f"an operator has more than {(1 << PORT_BITS) - 1} inputs")
    entries = (*graph.entries, *(edge for _, edge in graph.constants))
    paths_of(graph, [edge for edge in entries if edge is not None])


def topological(graph: Graph) -> list[int]:
    """The operators, each behind all that feed it. ValueError if some feed each other."""
    feeding = [0] * len(graph.operators)
    for edges in graph.edges:
        for edge in edges:
            if edge.target != SINK:
                feeding[edge.target] += 1
    order = [k for k, n in enumerate(feeding) if n == 0]
    for k in order:  # it grows
        for edge in graph.edges[k]:
            if edge.target != SINK:
                feeding[edge.target] -= 1
                if feeding[edge.target] == 0:
                    order.append(edge.target)
    if len(order) < len(graph.operators):
        raise ValueError("operators feed each other")
    return order


def depth_first_ranks(graph: Graph) -> list[int]:
    """Of each operator, its place in the order in which depth first is through with a morsel: what
    an operator feeds comes before it, and what its first edge leads to before the next."""
    ranks: dict[int, int] = {}
    waiting = [(k, False) for k in reversed(topological(graph))]
    while waiting:
        k, left = waiting.pop()
        if left:
            ranks.setdefault(k, len(ranks))
        elif k not in ranks:
            waiting.append((k, True))
            waiting += [(e.target, False) for e in reversed(graph.edges[k]) if e.target != SINK]
    return [ranks[k] for k in range(len(graph.operators))]


def feeders(graph: Graph) -> list[dict[int, int]]:
    """For each operator and port, the operator that feeds it; -1: an input does."""
    found: list[dict[int, int]] = [{} for _ in graph.operators]
    for edge in (*graph.entries, *(edge for _, edge in graph.constants)):
        if edge is not None:
            found[edge.target][edge.port] = -1
    for k, edges in enumerate(graph.edges):
        for edge in edges:
            if edge.target != SINK:
                found[edge.target][edge.port] = k
    return found


@dataclass(frozen=True, slots=True)
class Paths:
    """``of_entries``: for each of these edges the visits (operator, port, way) of a morsel to
    operators with several ports, in the order of depth first; those of one port, one behind the
    other, are one, of the last way. ``adds``: for each edge of each operator what it adds to the
    way of a morsel."""

    of_entries: list[list[tuple[int, int, int]]]
    adds: list[list[int]]


def paths_of(graph: Graph, entries: Sequence[Edge]) -> Paths:
    """Ways are all 0 if no operator sees a morsel in several ways, in turns. ValueError if the
    order of depth first cannot be kept."""
    fed, adds = feeders(graph), [[0] * len(edges) for edges in graph.edges]
    paths = [_path(graph, fed, adds, edge) for edge in entries]
    if any(len({visit[:2] for visit in path}) < len(path) for path in paths):
        adds = _ways(graph, entries)
        paths = [_path(graph, fed, adds, edge) for edge in entries]
    return Paths(paths, adds)


def _ways(graph: Graph, entries: Sequence[Edge]) -> list[list[int]]:
    """A way for each path to a result: those that branch off one are all below the next, so that
    who asks whether all up to a place is through need not know where morsels branched off."""
    ahead, adds = {SINK: 1}, [[0] * len(edges) for edges in graph.edges]
    for k in reversed(topological(graph)):
        ways = [ahead[edge.target] for edge in graph.edges[k]]
        adds[k] = [sum(ways[:j]) for j in range(len(ways))]
        ahead[k] = max(sum(ways), 1)
    if max(ahead[edge.target] for edge in entries) > 1 << WAY_BITS:
        raise ValueError(f"an input takes more than {1 << WAY_BITS} ways to the results")
    return adds


def _path(
    graph: Graph, fed: list[dict[int, int]], adds: list[list[int]], entry: Edge
) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    waiting = [(entry, 0, False)]
    while waiting:
        at, way, parts = waiting.pop()
        if at.target == SINK:
            continue
        if max(fed[at.target]) > 0:
            if found and found[-1][:2] == (at.target, at.port):
                found.pop()
            found.append((at.target, at.port, way))
        edges = graph.edges[at.target]
        parts |= not _gives_one_at_most(graph.operators[at.target])
        if len(edges) > 1 and parts:
            reached = [_beyond(graph, fed, e) for e in edges]
            if any(a & b for a, b in combinations(reached, 2)):
                raise ValueError("what one operator gives in parts comes together again")
        added = zip(edges, adds[at.target], strict=True)
        waiting += reversed([(e, way + more, parts) for e, more in added])
        if len(found) > _LONGEST:
            raise ValueError("an input comes together again in too many ways")
    return found


def _beyond(graph: Graph, fed: list[dict[int, int]], edge: Edge) -> set[int]:
    """The operators with several inputs that an edge leads to."""
    found, waiting, seen = set(), [edge.target], {SINK}
    while waiting:
        k = waiting.pop()
        if k not in seen:
            seen.add(k)
            if max(fed[k]) > 0:
                found.add(k)
            waiting += [e.target for e in graph.edges[k]]
    return found


def _gives_one_at_most(operator: Operator) -> bool:
    """Whether it gives one morsel at the most for one that it was given."""
    operator = first_of(operator)
    if isinstance(operator, UnionOperator):
        return not operator.knows_values
    if isinstance(operator, LimitOperator):
        return True
    if not isinstance(operator, StageOperator) or operator.spec.aggregate is not None:
        return False
    return not any(isinstance(step, BucketExec) for step in operator.spec.steps)
