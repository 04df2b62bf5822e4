"""The placement of each query on a cluster equals the reviewed golden file ``placements.txt``."""

from __future__ import annotations

import cql
from cql.errors import Position
from cql.planner.placement.scale_out import Whole, placement
from cql.query.query import Query
from tests.support import goldens
from tests.support.query_files import RUNNING, planned


def test_placements(rewrite: bool) -> None:
    lines = []
    for path in RUNNING:
        with cql.connect(spark=False) as session:
            lines.append(f"{path.parent.name}/{path.stem}: {described(planned(session, path))}")
    goldens.agree("placements.txt", "\n".join(lines) + "\n", rewrite=rewrite)


def described(query: Query) -> str:
    placed = placement(query._plan)
    if not isinstance(placed, Whole):
        return repr(placed)
    return f"whole: {placed.why}{at(placed.pos)}"


def at(pos: Position | None) -> str:
    return "" if pos is None else f" (line {pos.line}, column {pos.column})"
