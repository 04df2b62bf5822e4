"""Nobody asks a running operator for its class (``executor.operators.contract``), and operators
are compiled functions."""

from __future__ import annotations

import ast

from tests.support.paths import ROOT

#: Choices of the planner, and what a user declares.
CHOICES = ("WindowOperator", "JoinOperator", "UserOperator")
PACKAGES = ("cql", "planner", "executor", "catalog")


def test_no_operator_is_told_by_its_class() -> None:
    found = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "type"):
                    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                    if any(_is_operator(name) for name in names):
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found


def test_operators_are_compiled() -> None:
    """None runs in Python, for want of an address."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "executor").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign) and ast.unparse(node) == "self.address = 0"
    ]
    assert not found


def test_what_has_state_declares_its_codes() -> None:
    """One function renumbers codes. What adds to those of a base class has those of its parts, too:
    the methods of the base class are called."""
    found = []
    for path in (ROOT / "executor/operators").rglob("*.py"):
        for method in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(method, ast.FunctionDef):
                adds = method.name in ("codes", "recoded")
                if method.name == "map_codes" or (
                    adds and f"super().{method.name}()" not in ast.unparse(method)
                ):
                    found.append(f"{path.relative_to(ROOT)}:{method.lineno}")
    assert not found


def _is_operator(name: str) -> bool:
    """Whether a name is that of a class of running operators."""
    return name.endswith(("Operator", "Instances")) and name not in CHOICES
