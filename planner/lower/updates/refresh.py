"""The queries that cannot read an update stream with REFRESH."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cql.errors import NotSupportedError
from cql.planner.nodes.logical import Logical, Scan, is_pulled
from cql.planner.optimize.changelog import is_last_rows

#: Settings of the queue that keep rows.
_KEEPS_ROWS = ("append", "append_shed_random", "adaptive")


def refuse_refresh(node: Logical, settings: Mapping[str, Any], *, relation: bool = False) -> None:
    """Raises NotSupportedError for a stream with REFRESH that cannot leave rows out, and below a
    relation of last rows (``relation``: ``node`` is): its instants are those of the watermark, and
    a row that waits until its key is due holds the watermark of all keys back."""
    if isinstance(node, Scan) and node.refresh and not is_pulled(node.relation):
        name, wanted = ".".join(node.relation.name), str(settings["queue"])
        hint = "SELECT … WHERE, LIMIT, UNION ALL and lookups in tables read it row by row"
        if wanted in _KEEPS_ROWS:
            raise NotSupportedError(
                f"queue = {wanted} keeps rows that REFRESH of stream {name} leaves out",
                position=node.pos,
                hint="SET queue = 'auto'",
            )
        if relation:
            raise NotSupportedError(
                f"stream {name} as the relation of its last rows is not supported with REFRESH: a"
                " row that waits until its key is due would hold back the results of all keys",
                position=node.pos,
                hint=hint,
            )
    for child in node.inputs:
        refuse_refresh(child, settings, relation=relation or is_last_rows(node))
