"""Properties of plan nodes that are computed once."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

from cql.base.types import BIGINT
from cql.planner.nodes.expr import Column, Literal
from cql.planner.nodes.physical import ProjectExec, ValuesExec


def _projection(name: str = "a") -> ProjectExec:
    return ProjectExec(ValuesExec(), (Literal(1, BIGINT),), (name,))


def test_they_are_computed_once() -> None:
    node = _projection()
    assert node.schema is node.schema
    assert node.schema.names == ("a",)
    assert replace(node, names=("b",)).schema.names == ("b",)


def test_they_are_not_part_of_a_node() -> None:
    asked, node = _projection(), _projection()
    assert asked.schema == node.schema
    assert asked.progressing == ()
    fresh = _projection()
    assert (asked, hash(asked), repr(asked)) == (fresh, hash(fresh), repr(fresh))
    for twin in (copy.copy(asked), pickle.loads(pickle.dumps(asked))):
        assert twin == asked
        assert not vars(twin)


def test_a_long_chain_is_not_walked_for_each_node() -> None:
    """Each node asks the one below it, once."""
    node = _projection()
    for _ in range(300):
        node = ProjectExec(node, (Column(0, "a", BIGINT, False),), ("a",))
    assert node.progressing == ()
    assert node.window_columns == ()
    below = node.input
    assert vars(below)["progressing"] is below.progressing
