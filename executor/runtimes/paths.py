"""Depth-first order for operators that run concurrently: whether a graph can keep this order, and
in which order an operator with several ports reads them.

The morsels of an input can reach an operator on several paths, alternately. Example: the union of
two filters of one stream, joined with itself. In depth-first order the rows of the first filter are
joined on both sides before any row of the second filter is. The number PATH_NUMBER therefore
identifies the path of a morsel: paths are numbered in depth-first order, so that serial number and
PATH_NUMBER together are the *place* of a morsel in this order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from cql.executor.graph.graph import SINK, Edge, Graph
from cql.executor.kernels.ordered.handover import PATH_BITS, PORT_BITS
from cql.executor.kernels.ordered.tables import MOST_TASKS

#: Visits (operator, port) of the morsels of an input, at most.
_LONGEST = 1000


def check(graph: Graph) -> None:
    """Raises ValueError, with the reason, if the graph cannot keep depth-first order or exceeds a
    limit of the ordered runtime."""
    topological(graph)
    if len(graph.operators) > MOST_TASKS:
        raise ValueError(f"it has more than {MOST_TASKS} operators")
    fed = feeders(graph)
    if max(max(of, default=0) for of in fed) >= 1 << PORT_BITS:
        raise ValueError(f"an operator has more than {(1 << PORT_BITS) - 1} inputs")
    entries = (*graph.entries, *(edge for _, edge in graph.constants))
    paths_of(graph, [edge for edge in entries if edge is not None])


def topological(graph: Graph) -> list[int]:
    """The operators in topological order. Raises ValueError if the graph has a loop."""
    feeding = [0] * len(graph.operators)
    for edges in graph.edges:
        for edge in edges:
            if edge.target != SINK:
                feeding[edge.target] += 1
    order = [k for k, n in enumerate(feeding) if n == 0]
    for k in order:  # ``order`` grows in the loop
        for edge in graph.edges[k]:
            if edge.target != SINK:
                feeding[edge.target] -= 1
                if feeding[edge.target] == 0:
                    order.append(edge.target)
    if len(order) < len(graph.operators):
        raise ValueError("operators feed each other")
    return order


def depth_first_ranks(graph: Graph) -> list[int]:
    """The rank of each operator in the order in which a depth-first run finishes with a morsel: an
    operator comes behind all operators that it feeds, and those behind its first edge come before
    those behind the next edge."""
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
    """For each operator and port, the operator that feeds the port; -1: an input feeds it."""
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
    """The paths of morsels. ``of_entries``: for each entry edge the visits (operator, port,
    PATH_NUMBER) of a morsel to operators with several ports, in depth-first order; consecutive
    visits to one port are one visit, with the last PATH_NUMBER. ``adds``: for each edge of each
    operator the number that the edge adds to the PATH_NUMBER of a morsel."""

    of_entries: list[list[tuple[int, int, int]]]
    adds: list[list[int]]


def paths_of(graph: Graph, entries: Sequence[Edge]) -> Paths:
    """The paths of the morsels of ``entries``. PATH_NUMBER is 0 everywhere if no operator sees the
    morsels of an input on several paths alternately. Raises ValueError if depth-first order cannot
    be kept."""
    fed, adds = feeders(graph), [[0] * len(edges) for edges in graph.edges]
    paths = [_path(graph, fed, adds, edge) for edge in entries]
    if any(len({visit[:2] for visit in path}) < len(path) for path in paths):
        adds = _number_paths(graph, entries)
        paths = [_path(graph, fed, adds, edge) for edge in entries]
    return Paths(paths, adds)


def meetings(graph: Graph) -> tuple[list[int], list[list[int]]]:
    """For each operator at which several paths of an input meet, its place in topological order,
    from 1 on; 0 for the others. And ``Paths.adds``, which tells these paths apart. Raises
    ValueError if depth-first order cannot be kept."""
    entries = [edge for edge in graph.entries if edge is not None]
    fed, adds = feeders(graph), [[0] * len(edges) for edges in graph.edges]
    order = topological(graph)
    found = [0] * len(graph.operators)
    for entry in entries:
        visits = [visit[0] for visit in _path(graph, fed, adds, entry)]
        for k in visits:
            if visits.count(k) > 1:
                found[k] = order.index(k) + 1
    return found, _number_paths(graph, entries) if any(found) else adds


def _number_paths(graph: Graph, entries: Sequence[Edge]) -> list[list[int]]:
    """Numbers the paths to the results and returns ``Paths.adds``. All paths that branch off one
    path have numbers below the next path. A test whether all morsels up to a place are through
    therefore need not know where paths branch off. Raises ValueError if there are too many
    paths."""
    ahead, adds = {SINK: 1}, [[0] * len(edges) for edges in graph.edges]
    for k in reversed(topological(graph)):
        counts = [ahead[edge.target] for edge in graph.edges[k]]
        adds[k] = [sum(counts[:j]) for j in range(len(counts))]
        ahead[k] = max(sum(counts), 1)
    if max(ahead[edge.target] for edge in entries) > 1 << PATH_BITS:
        raise ValueError(f"an input takes more than {1 << PATH_BITS} ways to the results")
    return adds


def _path(
    graph: Graph, fed: list[dict[int, int]], adds: list[list[int]], entry: Edge
) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    waiting = [(entry, 0, False)]
    while waiting:
        at, path_number, parts = waiting.pop()
        if at.target == SINK:
            continue
        if max(fed[at.target]) > 0:
            if found and found[-1][:2] == (at.target, at.port):
                found.pop()
            found.append((at.target, at.port, path_number))
        edges = graph.edges[at.target]
        parts |= not graph.operators[at.target].any_instance.gives_one_at_most
        if len(edges) > 1 and parts:
            reached = [_beyond(graph, fed, e) for e in edges]
            if any(a & b for a, b in combinations(reached, 2)):
                raise ValueError("what one operator gives in parts comes together again")
        added = zip(edges, adds[at.target], strict=True)
        waiting += reversed([(e, path_number + more, parts) for e, more in added])
        if len(found) > _LONGEST:
            raise ValueError("an input comes together again in too many ways")
    return found


def _beyond(graph: Graph, fed: list[dict[int, int]], edge: Edge) -> set[int]:
    """The operators with several ports that an edge leads to, directly or indirectly."""
    found, waiting, seen = set(), [edge.target], {SINK}
    while waiting:
        k = waiting.pop()
        if k not in seen:
            seen.add(k)
            if max(fed[k]) > 0:
                found.add(k)
            waiting += [e.target for e in graph.edges[k]]
    return found
