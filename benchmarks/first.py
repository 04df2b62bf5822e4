"""Time to the import, and to the first result of a query that is new to the process. Every
measurement covers a fresh process from its start, interpreter included."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Benchmark, Contender, Limit
from benchmarks.workloads import packets, parquet_parts

ROOT = Path(__file__).resolve().parent.parent
#: NUMBA_CACHE_DIR would move the library's kernels. Under PYTHONDONTWRITEBYTECODE each process
#: would compile our modules anew, which an installed package never does.
_NOT_INHERITED = ("NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
#: Few rows in one file, so that the engine's start dominates the time.
ROWS = 10_000


def first(
    rows: int | None = None, folder: Path | None = None, *, nothing_cached: bool = True
) -> Benchmark:
    """The library's kernels are cached beside its source or, if that folder is not writable, in
    numba's cache folder. ``nothing_cached=False`` skips the process that compiles everything it
    needs, which takes up to a minute."""
    place, answers = parquet_parts(packets, rows or ROWS, folder, parts=1)
    file = place / "part-00000.parquet"
    scratch = _Scratch()
    kept = scratch.folder()
    contenders = [
        Contender(
            "import cql",
            lambda: _process("import"),
            lambda _: (0, "import"),
            expected=(0, "import"),
            seconds=lambda told: float(told["import"]),
            notes=lambda told: {"process s": told["process"]},
        ),
        _waiting("kernel cached", lambda: _process(str(file), kept)),
        _waiting("library cached", lambda: _process(str(file), scratch.folder())),
    ]
    limits = [
        Limit("import cql", 0.3),
        Limit("kernel cached", 1),
        Limit("library cached", 5),
    ]
    if nothing_cached:
        contenders.append(
            _waiting(
                "nothing cached",
                lambda: _process(str(file), scratch.folder(), NUMBA_CACHE_DIR=scratch.folder()),
                once=True,
            )
        )
        limits.append(Limit("nothing cached", 60))
    return Benchmark(
        "first",
        "First result of a new query, in a fresh process",
        None,
        answers["counts"],
        contenders,
        limits=limits,
        bandwidth=False,
        close=scratch.close,
    )


class _Scratch:
    """Empty folders, removed by ``close``."""

    def __init__(self) -> None:
        self._base = tempfile.mkdtemp(prefix="cql-first-")

    def folder(self) -> str:
        return tempfile.mkdtemp(dir=self._base)

    def close(self) -> None:
        shutil.rmtree(self._base, ignore_errors=True)


def _waiting(name: str, run: Callable[[], Any], *, once: bool = False) -> Contender:
    return Contender(
        name,
        run,
        lambda told: (int(told["answer"][0]), str(told["answer"][1])),
        seconds=lambda told: float(told["since start"]),
        once=once,
    )


def _process(*arguments: str, **environment: str) -> dict[str, Any]:
    """The script's report, with ``since start``: seconds from the start of the process to its
    result."""
    kept = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    wall, start = time.time(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_query", *arguments],
        env=kept | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    told["process"] = time.perf_counter() - start
    if "wall" in told:
        told["since start"] = told["wall"] - wall
    return told
