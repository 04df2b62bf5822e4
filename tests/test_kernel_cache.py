"""The cache of kernels under several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cql.executor import codegen


def test_queries_that_begin_together_share_whole_kernels(tmp_path: Path) -> None:
    """The module is known by its name from the start of its import; ``op`` comes at the end."""
    text = "import time\n\ntime.sleep(0.3)\nop = 1\n"
    with ThreadPoolExecutor(4) as pool:
        modules = list(pool.map(lambda _: codegen.load(text, tmp_path).op, range(4)))
    assert modules == [1, 1, 1, 1]
