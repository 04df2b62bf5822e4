"""Compiling the kernel library ahead of the first query (``cql warm``)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from cql.executor import kernels
from cql.executor.codegen.module import cache_folder, library_version

_MARK = "library-is-warm"


def is_warm(setting: str = "on") -> bool:
    """Whether the library of this version has been compiled on this machine."""
    return (cache_folder(setting) / _MARK).exists()


def warm(tell: Callable[[str], None], setting: str = "on") -> None:
    """Compiles every library function (each has its types declared, so that importing its module
    compiles it, or loads it from numba's cache). ``tell`` takes a line per part."""
    if is_warm(setting):
        tell(f"the kernel library {library_version()} is compiled already")
        return
    names = [m.name for m in pkgutil.iter_modules(kernels.__path__)]
    for k, name in enumerate(names, 1):
        tell(f"compiling the kernel library, once on this machine: {name} ({k} of {len(names)})")
        importlib.import_module(f"{kernels.__name__}.{name}")
    (cache_folder(setting) / _MARK).touch()
