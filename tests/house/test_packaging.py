"""What is installed: the wheel and the sdist hold the packages under ``cql`` and nothing else."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.support.paths import ROOT

SETUP: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT: dict[str, Any] = SETUP["project"]
FOLDERS = ("planner", "executor", "catalog")
#: Entries that a working tree may have beyond a fresh clone.
LITTER = ("build", "dist", "data", "results", "__pycache__", "*.egg-info", ".*")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree: a build leaves no file in the original."""
    copy = tmp_path_factory.mktemp("source") / "tree"
    ignore = shutil.ignore_patterns(*LITTER, "queries", "tests", "benchmarks")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignore)
    return copy


def built(tree: Path, kind: str, target: Path) -> Path:
    """Builds without a network (setuptools is in the test extra) and returns the built file."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; from setuptools import build_meta as b; b.build_{kind}(sys.argv[1])",
            str(target),
        ],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = target.iterdir()
    return file


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tree, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tree, "sdist", tmp_path_factory.mktemp("sdist"))


def sources() -> set[str]:
    """Every module of the tree, as its path inside the package ``cql``."""
    # rglob does not follow the links cql/planner, …
    found = {p.relative_to(ROOT).as_posix() for p in (ROOT / "cql").rglob("*.py")}
    for folder in FOLDERS:
        found |= {f"cql/{p.relative_to(ROOT).as_posix()}" for p in (ROOT / folder).rglob("*.py")}
    return found


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"cql_streams-{PROJECT['version']}.dist-info/"
    code = {n for n in names if not n.startswith(info)}
    assert code == sources() | {"cql/py.typed"}
    for part in ("planner", "executor", "catalog", "repl", "dialect"):
        assert f"cql/{part}/__init__.py" in code
    assert {f"{info}{n}" for n in ("METADATA", "entry_points.txt", "licenses/LICENSE")} <= names
    assert {n.partition("/")[0] for n in names} == {"cql", info.rstrip("/")}


def test_the_sdist_can_be_built_again(sdist: Path, tmp_path: Path, wheel: Path) -> None:
    """The sdist contains no link, so that a machine without links can unpack it."""
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 or newer
        archive.extractall(tmp_path / "unpacked")
    (inside,) = (tmp_path / "unpacked").iterdir()
    for needed in ("pyproject.toml", "README.md", "LICENSE"):
        assert (inside / needed).is_file()
    again = built(inside, "wheel", tmp_path / "wheels")
    with zipfile.ZipFile(again) as ours, zipfile.ZipFile(wheel) as first:
        assert set(ours.namelist()) == set(first.namelist())


def test_the_wheel_works_alone(wheel: Path, tmp_path: Path) -> None:
    """Unpacked outside the source tree, the wheel alone runs the command."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = (
        "import sys; sys.path[:0] = [sys.argv[1]]; sys.argv[1:] = ['-c', 'SHOW SETTINGS'];"
        "import cql, importlib.util;"
        "assert cql.__file__.startswith(sys.path[0]), cql.__file__;"
        "from cql.repl.cli import cli; cli()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "max_state" in done.stdout


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_under_its_bare_name_is_refused(folder: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"cql.{folder}" in done.stderr.splitlines()[-1]


# --------------------------------------------------------------------------- what it needs


def requirements(*extras: str) -> list[Requirement]:
    listed = list(PROJECT["dependencies"])
    for extra in extras or PROJECT["optional-dependencies"]:
        listed += PROJECT["optional-dependencies"][extra]
    return [Requirement(text) for text in listed]


@pytest.mark.parametrize("requirement", requirements("test"), ids=lambda r: r.name)
def test_the_installed_versions_are_in_the_ranges(requirement: Requirement) -> None:
    """The declared ranges contain the installed versions, which this run tests."""
    assert requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    assert {"<", "==", "~="} & {s.operator for s in requirement.specifier}, "no upper bound"


#: Modules that come with another requirement, in exactly the version that it needs.
PARTS = {"llvmlite": "numba", "py4j": "pyspark"}


def imported(*patterns: str) -> dict[str, str]:
    """Third-party modules that the files import, each with one importing file."""
    own = {"cql", "benchmarks", "queries", "tests", *FOLDERS}
    found: dict[str, str] = {}
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                    names = [node.module]
                for name in names:
                    top = name.partition(".")[0]
                    if top not in own and top not in sys.stdlib_module_names:
                        found.setdefault(top, path.name)
    return found


@pytest.mark.parametrize(
    ("extras", "patterns"),
    [
        (
            ("pandas", "polars", "sound", "seismic", "plots"),
            ("cql/**/*.py", *(f"{f}/**/*.py" for f in FOLDERS)),
        ),
        (("test",), ("tests/**/*.py",)),
        (("bench", "plots"), ("benchmarks/*.py",)),
    ],
    ids=["package", "tests", "benchmarks"],
)
def test_everything_imported_is_required(
    extras: tuple[str, ...], patterns: tuple[str, ...]
) -> None:
    required = {_folded(r.name) for r in requirements(*extras)}
    for module, file in imported(*patterns).items():
        name = _folded(PARTS.get(module, module))
        assert name in required, f"{file} imports {module}, which nothing requires"


def _folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
