"""Tables that each task reads whole: rows of the shared inputs are looked up in them."""

from __future__ import annotations

from collections.abc import Iterator

from cql.planner.nodes.physical import LookupExec, Physical, SourceExec, TableJoinExec, sources
from cql.planner.nodes.physical.numbers import NodeNumbers

#: The most rows of a table that each task reads.
BROADCAST_ROWS = 2_000_000


def looks_up(node: Physical) -> bool:
    """Whether rows pass the operator one by one, and each task has the whole table. A table joined
    with itself is shared as any input is."""
    if isinstance(node, TableJoinExec):
        table = [source.relation for source in sources(node.table)]
        shared = {source.relation.name for source in sources(node.input)}
        rows = sum(relation.statistics.expected_rows or 0 for relation in table)
        return rows <= BROADCAST_ROWS and not any(r.name in shared for r in table)
    return isinstance(node, LookupExec)


def shared(node: Physical) -> Iterator[Physical]:
    """``node`` and the operators below, without those of broadcast tables."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(found.inputs[:1] if looks_up(found) else found.inputs)


def tables(root: Physical) -> tuple[SourceExec, ...]:
    """The sources that each task reads whole."""
    numbers = NodeNumbers(root)
    held = {numbers[node] for node in shared(root)}
    return tuple(source for source in sources(root) if numbers[source] not in held)
