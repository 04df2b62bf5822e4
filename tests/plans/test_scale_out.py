"""The placement of each query on a cluster equals the reviewed golden file ``placements.txt``."""

from __future__ import annotations

import random

import cql
from cql.dialect import to_sql
from cql.errors import Position
from cql.planner.placement.scale_out import Whole, placement
from cql.query.query import Query
from tests.support import dialect_corpus, goldens
from tests.support.query_files import RUNNING, declare


def test_placements(rewrite: bool) -> None:
    lines = []
    for path in RUNNING:
        text = path.read_text("utf-8")
        with cql.connect(spark=False) as session:
            declare(session, text, random.Random(0))
            if path.stem == "insert_istream":
                session.sql("CREATE TABLE fast (k INT, speed DOUBLE)")
            before, query = dialect_corpus.script(text)
            *_, made = session._statements(to_sql(query) if before else text)
            assert isinstance(made, Query)
            lines.append(f"{path.parent.name}/{path.stem}: {described(made)}")
    goldens.agree("placements.txt", "\n".join(lines) + "\n", rewrite=rewrite)


def described(query: Query) -> str:
    placed = placement(query._plan)
    if not isinstance(placed, Whole):
        return repr(placed)
    return f"whole: {placed.why}{at(placed.pos)}"


def at(pos: Position | None) -> str:
    return "" if pos is None else f" (line {pos.line}, column {pos.column})"
