"""Compiling the kernel library ahead of the first query (``cql warm``)."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pkgutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from cql.executor import kernels
from cql.executor.jit.cache_folder import cache_folder, library_version

_MARK = "library-is-warm"
#: Each process takes about half a gigabyte.
_MOST_PROCESSES = 4


def is_warm(setting: str = "on") -> bool:
    """Whether this version of the kernel library has been compiled on this machine."""
    return (cache_folder(setting) / _MARK).exists()


def warm(report: Callable[[str], None], setting: str = "on") -> None:
    """Compiles every library function, in a process for each core. Each function declares its
    types, so importing its module compiles it or loads it from numba's cache. ``report`` receives
    one line per module."""
    if is_warm(setting):
        report(f"the kernel library {library_version()} is compiled already")
        return
    root = f"{kernels.__name__}."
    names = [m.name for m in pkgutil.walk_packages(kernels.__path__, root) if not m.ispkg]
    pool = ProcessPoolExecutor(
        min(os.cpu_count() or 1, _MOST_PROCESSES), multiprocessing.get_context("spawn")
    )
    try:
        for k, name in enumerate(pool.map(_compiled, names), 1):
            part = f"{name.removeprefix(root)} ({k} of {len(names)})"
            report(f"compiling the kernel library, once on this machine: {part}")
    finally:
        pool.shutdown(cancel_futures=True)
    (cache_folder(setting) / _MARK).touch()


def _compiled(name: str) -> str:
    importlib.import_module(name)
    return name
