"""The layers: which module may import which, read from the source without running it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import ROOT

#: Lowest layer first. A module may import its own layer and the lower ones.
LAYERS = (
    ("cql.base", "cql.errors"),
    ("cql.dialect",),
    ("cql.planner",),
    ("cql.executor",),
    ("cql.catalog",),
    ("cql.functions", "cql.query", "cql.session", "cql.show", "cql.spark", "cql.views"),
    ("cql.repl", "cql.__main__", "cql.command"),
)

#: Libraries that ``import cql`` and the REPL's prompt must not load.
HEAVY = (
    *("numba", "pyspark", "pyarrow", "sqlglot", "pandas", "polars", "llvmlite", "numpy"),
    *("soundfile", "obspy", "matplotlib"),
)
#: The module that defines a user's functions, which travel as source, in another process.
DEFINES_FUNCTIONS = ("cql.spark.job.functions",)
#: Modules that can run or load code from data.
UNSAFE = ("pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib")


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    type_only: bool
    lazy: bool  # inside a function


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    tree: ast.Module

    def where(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"

    @property
    def imports(self) -> list[Import]:
        return list(_imports(self.tree, type_only=False, lazy=False))


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test).removeprefix("typing.") == "TYPE_CHECKING"


def _imports(node: ast.AST, *, type_only: bool, lazy: bool) -> Iterator[Import]:
    match node:
        case ast.Import():
            for alias in node.names:
                yield Import(alias.name, node.lineno, type_only, lazy)
        case ast.ImportFrom():
            assert node.level == 0, f"relative import in line {node.lineno}: use absolute ones"
            base = node.module or ""
            yield Import(base, node.lineno, type_only, lazy)
            # ``from cql import planner`` names a module too.
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno, type_only, lazy)
        case ast.If() if _is_type_checking(node.test):
            for statement in node.body:
                yield from _imports(statement, type_only=True, lazy=lazy)
            for statement in node.orelse:
                yield from _imports(statement, type_only=type_only, lazy=lazy)
        case _:
            inner = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from _imports(child, type_only=type_only, lazy=inner)


@cache
def modules() -> dict[str, Module]:
    """All modules of the package, by name."""
    homes = {"cql": ROOT / "cql"} | {
        f"cql.{part}": ROOT / part for part in ("planner", "executor", "catalog")
    }
    found = {}
    for package, folder in homes.items():
        for path in sorted(folder.rglob("*.py")):
            relative = path.relative_to(folder)
            if package == "cql" and relative.parts[0] in ("planner", "executor", "catalog"):
                continue  # symbolic links to the other packages
            parts = [package, *relative.with_suffix("").parts]
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = Module(name, path, ast.parse(path.read_text("utf-8"), str(path)))
    return found


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _layer(name: str) -> int | None:
    """Rank of a module's layer; None for ``cql`` and its attributes, which every module may import,
    and for modules outside ``cql``."""
    while name not in modules() and "." in name:
        name = name.rpartition(".")[0]
    if name == "cql" or not _within(name, "cql"):
        return None
    ranks = {p: rank for rank, packages in enumerate(LAYERS) for p in packages}
    return ranks[max((p for p in ranks if _within(name, p)), key=len)]


def _violations(check: str) -> Iterator[str]:
    for module in modules().values():
        for found in module.imports:
            if found.type_only:
                continue
            target, place = found.module, module.where(found.line)
            root = target.split(".")[0]
            match check:
                case "order":
                    mine, theirs = _layer(module.name), _layer(target)
                    if mine is not None and theirs is not None and theirs > mine:
                        yield f"{place}: {module.name} imports {target} of a higher layer"
                case "sqlglot":
                    runs = _within(module.name, "cql.executor")
                    if runs and (root == "sqlglot" or _within(target, "cql.dialect")):
                        yield f"{place}: the executor knows no SQL, imports {target}"
                case "pyspark":
                    ours = _within(module.name, "cql.catalog.spark")
                    if root in ("pyspark", "py4j") and not ours:
                        yield f"{place}: only catalog/spark/ imports {target}"
                case "unsafe":
                    if root in UNSAFE:
                        yield f"{place}: {target} can run what it loads"
                case "bare":
                    if root in ("planner", "executor", "catalog"):
                        yield f"{place}: import cql.{target}"


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("check", ["order", "sqlglot", "pyspark", "unsafe", "bare"])
def test_imports(check: str) -> None:
    assert not sorted(set(_violations(check)))


def test_the_planner_sees_of_the_executor_only_protocols_as_types() -> None:
    bad = [
        f"{m.where(i.line)}: {i.module}"
        for m in modules().values()
        if _within(m.name, "cql.planner")
        for i in m.imports
        if _within(i.module, "cql.executor") or _within(i.module, "cql.catalog")
        if not (i.type_only and _within(i.module, "cql.executor.protocols"))
    ]
    assert not bad


def _loaded_by(name: str) -> set[str]:
    """Our modules that importing ``name`` loads: parents and module-level imports, transitively."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        current = todo.pop()
        if current in seen or current not in modules():
            continue
        seen.add(current)
        if "." in current:
            todo.append(current.rpartition(".")[0])
        todo += [i.module for i in modules()[current].imports if not (i.type_only or i.lazy)]
    return seen


def test_importing_cql_loads_no_heavy_library() -> None:
    bad = [
        f"{modules()[name].where(i.line)}: {i.module}"
        for name in _loaded_by("cql")
        for i in modules()[name].imports
        if i.module.split(".")[0] in HEAVY and not (i.type_only or i.lazy)
    ]
    assert not bad


def test_importing_cql_loads_no_heavy_library_when_run() -> None:
    code = f"import cql, sys; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def _calls(module: Module) -> Iterator[ast.Call]:
    return (n for n in ast.walk(module.tree) if isinstance(n, ast.Call))


def test_nothing_evaluates_text_as_python() -> None:
    banned = {"eval", "exec", "__import__"}
    bad = [
        module.where(call.lineno)
        for module in modules().values()
        if module.name not in DEFINES_FUNCTIONS
        for call in _calls(module)
        if (isinstance(call.func, ast.Name) and call.func.id in banned)
        or (isinstance(call.func, ast.Attribute) and call.func.attr in {"eval", "exec"})
    ]
    assert not bad


def test_only_spark_sql_gives_text_to_spark() -> None:
    """Spark's ``sql``, ``expr`` and ``selectExpr`` run the text they receive: only the module that
    builds its texts from checked parts may call them."""
    texts = {"sql", "expr", "selectExpr"}
    bad = []
    for module in modules().values():
        # The demo reads its own tables back with constant texts, as its reader would.
        if str(module.path.relative_to(ROOT)) in ("catalog/spark/quoting.py", "cql/show/demo.py"):
            continue
        for call in _calls(module):
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in texts:
                continue
            receiver = ast.unparse(call.func.value).lower()
            if _within(module.name, "cql.catalog") or "spark" in receiver:
                bad.append(f"{module.where(call.lineno)}: {ast.unparse(call)[:60]}")
    assert not bad


def test_the_reference_is_independent_of_the_engine() -> None:
    allowed = ("cql.planner.nodes.expr", "cql.planner.nodes.logical", "cql.planner.nodes.catalog")
    for path in sorted((ROOT / "tests" / "reference").glob("naive*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for found in _imports(tree, type_only=False, lazy=False):
            name = found.module
            if _within(name, "cql.executor") or _within(name, "cql.planner"):
                assert any(_within(name, a) for a in allowed), f"{path.name} imports {name}"


def test_no_test_imports_a_test() -> None:
    """Tests share code through ``tests/support`` and ``tests/reference``, which hold no test."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        shared = path.relative_to(ROOT / "tests").parts[0] in ("support", "reference")
        assert not (shared and path.name.startswith("test_")), path
        for found in _imports(ast.parse(path.read_text("utf-8")), type_only=False, lazy=False):
            if _within(found.module, "tests"):
                room = found.module.split(".")[1:2]
                assert room in (["support"], ["reference"], []), f"{path}:{found.line}"


def test_a_room_is_seen_at_a_glance() -> None:
    """A folder holds at most 16 modules."""
    files = Counter(m.path.parent.relative_to(ROOT) for m in modules().values())
    assert max(files.values()) <= 16, files.most_common(3)


def test_no_import_goes_in_a_circle() -> None:
    """Imports inside functions count too. A package and its own modules make no circle: the package
    ``cql.dialect`` imports its modules, and they import each other through the package."""
    needs: dict[str, set[str]] = {m.name: set() for m in modules().values()}
    for module in modules().values():
        for found in module.imports:
            target = found.module if found.module in modules() else found.module.rpartition(".")[0]
            if target in needs and not found.type_only and not _within(module.name, target):
                needs[module.name].add(target)
    order = TopologicalSorter(needs)
    order.prepare()  # raises CycleError, which names the modules
