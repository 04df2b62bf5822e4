"""Numbers of plan nodes: stable, and one per node that a plan shares."""

from __future__ import annotations

import pytest

from cql.planner.nodes.physical import LimitExec, Physical, UnionExec, ValuesExec
from cql.planner.nodes.physical.numbers import NodeNumbers


def test_a_shared_node_has_one_number() -> None:
    shared: Physical = LimitExec(ValuesExec(), 1, 0)
    other = LimitExec(ValuesExec(), 1, 0)  # equal, and another node
    root = UnionExec((shared, other, shared), ())
    numbers = NodeNumbers(root)
    assert [numbers[n] for n in (root, shared, shared.inputs[0], other)] == [0, 1, 2, 3]
    assert [numbers.node(k) for k in range(5)] == list(numbers)
    assert numbers.node(3) is other
    assert len(NodeNumbers(root, shared, other)) == len(numbers) == 5


def test_a_node_of_another_plan_has_no_number() -> None:
    numbers, other = NodeNumbers(ValuesExec()), ValuesExec()
    assert other not in numbers
    with pytest.raises(KeyError):
        numbers[other]


def test_the_size_of_a_plan_as_a_tree_does_not_count() -> None:
    node: Physical = ValuesExec()
    for _ in range(200):
        node = UnionExec((node, node), ())
    assert len(NodeNumbers(node)) == 201
