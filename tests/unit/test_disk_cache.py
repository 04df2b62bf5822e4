"""The cache of kernels: loads by several threads, and entries that become old."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from cql.base.own_code import code
from cql.executor.codegen import module


def test_queries_that_begin_together_share_whole_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread gets a module that is still being imported: ``sys.modules`` has the module from the
    start of the import, but ``op`` is defined at its end."""
    gate = SimpleNamespace(begun=Event(), go=Event())
    monkeypatch.setitem(sys.modules, "cql_test_gate", gate)
    text = "import cql_test_gate as gate\ngate.begun.set()\ngate.go.wait(60)\nop = 1\n"
    with ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(lambda: module.load(text, str(tmp_path)).op) for _ in range(4)]
        assert gate.begun.wait(60)
        wait(loads, timeout=0.1, return_when=FIRST_COMPLETED)  # one that does not share ends early
        gate.go.set()
    assert [load.result() for load in loads] == [1, 1, 1, 1]


def test_a_change_in_any_kernel_file_makes_entries_old() -> None:
    """A stamp of the function's own file, which numba uses, does not suffice: constants of other
    files are compiled in."""
    from cql.executor.jit.cache_folder import kernels_digest
    from cql.executor.kernels.lib import key_index

    assert key_index.find_groups._cache._cache_file._source_stamp[-1] == kernels_digest()
    folder = Path(key_index.__file__).parent.parent
    known = ("cql.executor.jit.decorators", "cql.executor.jit.compile_speed")
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("cql."):
                inside = str(node.module).startswith("cql.executor.kernels")
                assert inside or node.module in known, f"{path.name} imports {node.module}"


SHOW_CACHE = """
import sys
sys.path.insert(0, sys.argv[1])
from cql.executor.kernels.lib import key_index
file = key_index.find_groups._cache
assert key_index.__file__.startswith(sys.argv[1])
print(file.cache_path, file._cache_file._source_stamp)
"""


@pytest.mark.slow
def test_a_zip_has_one_cache_wherever_it_lies(tmp_path: Path) -> None:
    """Spark copies a .zip into a new folder for each application."""
    shown = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        packed = tmp_path / place / "cql.zip"
        with zipfile.ZipFile(packed, "w") as archive:
            for name, text in code():
                archive.writestr(f"cql/{name}", text)
        done = subprocess.run(
            [sys.executable, "-c", SHOW_CACHE, str(packed)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        shown.append(done.stdout)
    assert shown[0] == shown[1]
    assert str(tmp_path) not in shown[0]
    assert "library/cql.executor.kernels.lib.key_index" in shown[0]
