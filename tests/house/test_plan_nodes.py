"""Whoever adds a class of plan nodes is told of each decision that the class needs: by an abstract
member, by mypy (``lower`` lacks it, or a ``match`` ends in ``assert_never``), or by a test (no
operator runs it). ``test_new_nodes.py`` holds what has a default."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import typing
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from cql.executor.graph.operators import operator_of
from cql.planner.nodes import logical, physical
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical.base import LogicalNode
from cql.planner.nodes.physical.base import PhysicalNode
from tests.support.paths import ROOT

PHYSICAL = typing.get_args(physical.Physical)
LOGICAL = typing.get_args(logical.Logical)
EXPRESSIONS = {kind.__name__ for kind in typing.get_args(Expr)}
NAMES = {kind.__name__ for kind in (*PHYSICAL, *LOGICAL)}
#: Nodes that the graph builder makes operators of without ``operator_of``.
BUILT = {
    *("SourceExec", "ValuesExec", "UnionExec", "MergeUnionExec", "PunctuatedSortExec"),
    *("FilterExec", "ProjectExec", "BucketExec", "OnTimeExec", "ArrivalExec", "NumberExec"),
    "WidAggregateExec",
}

# -- members ---------------------------------------------------------------------------------------


class NewExec(PhysicalNode):
    """A class of nodes that states nothing."""


class NewNode(LogicalNode):
    """A class of nodes that states nothing."""


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (
            NewExec,
            ["bounded", "inputs", "progressing", "rows_wait", "schema", "why", "with_inputs"],
        ),
        (NewNode, ["expressions", "inputs", "pos", "schema", "with_inputs"]),
    ],
)
def test_a_new_class_is_told_what_it_must_state(kind: type, members: list[str]) -> None:
    assert sorted(kind.__abstractmethods__) == members
    with pytest.raises(TypeError, match=r"(?s)abstract class .*" + ".*".join(members)):
        kind()


@pytest.mark.parametrize("kind", [*PHYSICAL, *LOGICAL], ids=lambda kind: kind.__name__)
def test_a_class_states_what_it_must(kind: type) -> None:
    assert not kind.__abstractmethods__
    assert issubclass(kind, PhysicalNode | LogicalNode)


@pytest.mark.parametrize(("package", "union"), [(physical, PHYSICAL), (logical, LOGICAL)])
def test_each_class_is_in_the_union(package: object, union: tuple[type, ...]) -> None:
    found = [c for _, c in inspect.getmembers(package, inspect.isclass)]
    nodes = [c for c in found if issubclass(c, PhysicalNode | LogicalNode)]
    assert [c for c in nodes if not (issubclass(c, union) or c.__abstractmethods__)] == []


def test_each_physical_class_has_an_operator() -> None:
    made = {kind.__name__ for kind in operator_of.registry if kind is not object}
    assert made | BUILT == {kind.__name__ for kind in PHYSICAL}
    assert not made & BUILT


#: A new class in the union, with all members, and a pass that does not know it.
NEW = """
from dataclasses import dataclass
from typing import assert_never

from cql.planner.nodes.physical import FilterExec, ProjectExec
from cql.planner.nodes.physical.base import OneInput, PassesRows

@dataclass(frozen=True, slots=True)
class SilentExec(OneInput):
    why: str = ""

@dataclass(frozen=True, slots=True)
class NewExec(PassesRows):
    why: str = ""

def of(node: FilterExec | ProjectExec | NewExec) -> int:
    match node:
        case FilterExec() | ProjectExec():
            return SilentExec(node) is None
        case _:
            assert_never(node)
"""


@pytest.mark.slow
def test_the_type_checker_tells_of_a_new_class(tmp_path: Path) -> None:
    file = tmp_path / "new.py"
    file.write_text(NEW, "utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        str(file),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 'Cannot instantiate abstract class "SilentExec"' in done.stdout
    assert '"assert_never" has incompatible type "NewExec"' in done.stdout


# -- matches ---------------------------------------------------------------------------------------


def silent(tree: ast.AST, names: Collection[str] = NAMES) -> Iterator[ast.Match]:
    """The matches over classes with these ``names`` that have a ``case _`` which decides for every
    other class."""
    for found in ast.walk(tree):
        if not isinstance(found, ast.Match):
            continue
        classes = {name for case in found.cases for name in _classes(case.pattern)}
        last = found.cases[-1]
        open_ = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        if classes & {*names} and open_ and not _refuses(last.body[0]):
            yield found


def _classes(pattern: ast.pattern) -> Iterator[str]:
    match pattern:
        case ast.MatchClass():
            yield _name(pattern.cls)
        case ast.MatchOr():
            for part in pattern.patterns:
                yield from _classes(part)
        case ast.MatchAs(pattern=ast.pattern() as inner):
            yield from _classes(inner)


def _name(expr: ast.expr) -> str:
    return ast.unparse(expr).rpartition(".")[2]


def _refuses(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Raise) or ast.unparse(statement).startswith("assert_never(")


def test_no_match_over_nodes_decides_silently() -> None:
    files = sorted(p for folder in ("planner", "executor") for p in (ROOT / folder).rglob("*.py"))
    found = [path for path in files if any(silent(ast.parse(path.read_text("utf-8"))))]
    assert found == []


def test_no_match_of_the_planner_over_expressions_decides_silently() -> None:
    for path in sorted((ROOT / "planner").rglob("*.py")):
        found = [f.lineno for f in silent(ast.parse(path.read_text("utf-8")), EXPRESSIONS)]
        assert not found, path


def test_a_silent_match_is_found() -> None:
    text = "match n:\n  case FilterExec():\n    pass\n  case _:\n    {}"
    assert len(list(silent(ast.parse(text.format("pass"))))) == 1
    assert not list(silent(ast.parse(text.format("assert_never(n)"))))
