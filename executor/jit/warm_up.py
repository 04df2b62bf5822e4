"""Compiling the kernel library ahead of the first query (``cql warm``)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from cql.executor import kernels
from cql.executor.jit.cache_folder import cache_folder, library_version

_MARK = "library-is-warm"


def is_warm(setting: str = "on") -> bool:
    """Whether this version of the kernel library has been compiled on this machine."""
    return (cache_folder(setting) / _MARK).exists()


def warm(report: Callable[[str], None], setting: str = "on") -> None:
    """Compiles every library function. Each declares its types, so importing its module compiles
    it or loads it from numba's cache. ``report`` receives one line per module."""
    if is_warm(setting):
        report(f"the kernel library {library_version()} is compiled already")
        return
    root = f"{kernels.__name__}."
    names = [m.name for m in pkgutil.walk_packages(kernels.__path__, root) if not m.ispkg]
    for k, name in enumerate(names, 1):
        part = f"{name.removeprefix(root)} ({k} of {len(names)})"
        report(f"compiling the kernel library, once on this machine: {part}")
        importlib.import_module(name)
    (cache_folder(setting) / _MARK).touch()
