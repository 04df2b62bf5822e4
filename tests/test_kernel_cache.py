"""The cache of kernels under several threads."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cql.executor import codegen


def test_queries_that_begin_together_share_whole_kernels(tmp_path: Path) -> None:
    """The module is known by its name from the start of its import; ``op`` comes at the end."""
    text = "import time\n\ntime.sleep(0.3)\nop = 1\n"
    with ThreadPoolExecutor(4) as pool:
        modules = list(pool.map(lambda _: codegen.load(text, tmp_path).op, range(4)))
    assert modules == [1, 1, 1, 1]


def test_a_change_in_any_kernel_file_makes_entries_old() -> None:
    """numba asks about the file of a function only: the constants of others are compiled in."""
    from cql.executor.kernels import groups
    from cql.executor.numba_cache import CONSTANTS, kernels_digest

    assert groups.find_groups._cache._cache_file._source_stamp[-1] == kernels_digest()
    folder = Path(groups.__file__).parent
    known = {f"cql.executor.{name.removesuffix('.py')}" for name in (*CONSTANTS, "numba_cache")}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("cql."):
                inside = str(node.module).startswith("cql.executor.kernels")
                assert inside or node.module in known, f"{path.name} imports {node.module}"
