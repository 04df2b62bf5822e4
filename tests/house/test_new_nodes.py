"""Nodes that state only what they must go through every pass: what a pass asks of a node has a
default that is safe for every class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from cql.base.model import Schema
from cql.base.settings import Settings
from cql.errors import Position
from cql.executor.strings.encoding import analyse
from cql.planner.bind.emit import time_of
from cql.planner.explain.logical import logical_line
from cql.planner.explain.physical import physical_line
from cql.planner.functions import registry
from cql.planner.lower.lower import lower
from cql.planner.lower.ordering import choose_unions
from cql.planner.lower.plan import PASSES, Question
from cql.planner.lower.refuse import refuse
from cql.planner.nodes import logical, physical
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.logical import Filter, Logical
from cql.planner.nodes.logical.base import TwoInputs as LogicalTwo
from cql.planner.nodes.physical import FilterExec, Physical
from cql.planner.nodes.physical.base import TwoInputs as PhysicalTwo
from cql.planner.nodes.physical.columns import column_at
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.optimize import changelog
from cql.planner.optimize.rules import optimize
from cql.planner.placement import by_key, partitioning
from cql.planner.placement.choose_runtime import choose_runtime
from cql.planner.placement.cost import cost
from cql.planner.placement.order_sensitivity import in_order
from tests.support.bind_fixtures import world

W = world()
SETTINGS = Settings()


@dataclass(frozen=True, slots=True)
class PlainJoin(LogicalTwo):
    """A join of the logical plan of which nothing is known but its columns."""

    pos: Position | None = None

    @property
    def schema(self) -> Schema:
        return Schema((*self.left.schema, *self.right.schema))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class PlainJoinExec(PhysicalTwo):
    """A join of the physical plan of which nothing is known but its columns."""

    why: str = "a test"

    @property
    def schema(self) -> Schema:
        return Schema((*self.left.schema, *self.right.schema))

    @property
    def progressing(self) -> tuple[int, ...]:
        return ()


def joined() -> Logical:
    """A new join under a filter of its last column, a text."""
    sides = (
        W.plan("SELECT * FROM (SELECT ts, k, name FROM s WHERE k > 1 ORDER BY ts)") for _ in "ab"
    )
    join = cast("Logical", PlainJoin(*sides))
    name = column_at(join.schema, len(join.schema) - 1)
    return Filter(join, _equal(name))


def _equal(name: Column) -> Expr:
    return registry.resolve("eq", [name, name], None)


def test_rewrites_keep_a_new_logical_node_and_its_columns() -> None:
    plan = joined()
    made = optimize(plan)
    assert made.schema == plan.schema
    assert isinstance(made, Filter)
    assert isinstance(made.input, PlainJoin)
    assert all(isinstance(child, logical.Sort) for child in made.input.inputs)  # order may matter
    refuse(plan)


def test_a_new_logical_node_promises_nothing() -> None:
    plan = joined()
    assert not plan.progressing
    assert not plan.is_stream
    assert plan.times is None
    assert time_of(plan) is None
    assert not changelog.is_relation(plan)
    assert changelog.as_relation(plan) is plan
    assert changelog.as_side(plan) is plan
    assert changelog.only_complete(plan) is None
    assert changelog.clock(plan) is None
    assert str(logical_line(plan.input)) == "PlainJoin"


def planned() -> tuple[Physical, Physical]:
    """A new join under a filter, and the join."""
    sides = [lower(optimize(W.plan("SELECT ts, k, name FROM s")), SETTINGS) for _ in range(2)]
    join = cast("Physical", PlainJoinExec(*sides))
    return FilterExec(join, _equal(column_at(join.schema, 5))), join


def test_passes_keep_a_new_physical_node() -> None:
    root, _ = planned()
    made = choose_unions(root, SETTINGS)
    for step in PASSES:
        made = step.run(made, Question(W.plan("SELECT ts FROM s"), SETTINGS))
    assert made.schema == root.schema
    assert [type(n) for n in physical.walk(made)] == [type(n) for n in physical.walk(root)]


def test_a_new_physical_node_promises_nothing() -> None:
    root, join = planned()
    assert not root.comes_in_order(0)
    assert root.unique is None
    assert not root.in_windows
    assert root.columns_below(0) == {0: 0}
    assert physical.waits(root)
    nodes = NodeNumbers(root)
    assert in_order([root], nodes) == set(range(len(nodes)))
    assert partitioning.origins(root, column_at(root.schema, 1)) == []
    assert by_key.columns_of(root) == ()
    assert not join.can_split
    assert cost([root], read_statistics=False).row > join.row_cost
    assert choose_runtime([root], SETTINGS, 1).name
    assert str(physical_line(join)) == "PlainJoin"
    assert "state: the rows of its inputs" in physical_line(join).notes


def test_a_new_physical_node_keeps_whole_rows() -> None:
    """All its texts are encoded, and none is carried."""
    _, join = planned()
    found = analyse([join])
    assert found.encoded == {(0, 2), (1, 2)}
    assert found.carried == ({},)
