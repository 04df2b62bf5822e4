"""Ships this library to executors that do not have it."""

from __future__ import annotations

import weakref
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from cql.base.own_code import code
from cql.executor.jit.cache_folder import temporary_folder

#: The Spark contexts that have the library.
_shipped: weakref.WeakSet[Any] = weakref.WeakSet()


def ship(context: Any) -> None:
    """Gives the executors of a cluster the code of this library, once for each Spark context. The
    workers of a local Spark run where the library is."""
    if str(context.master).startswith("local[") or context.master == "local":
        return
    if context in _shipped:
        return
    context.addPyFile(str(_archive()))
    _shipped.add(context)


@cache
def _archive() -> Path:
    """The library as a file that lasts as long as the process: Spark serves it from its place."""
    return packed(temporary_folder() / "cql.zip")


def packed(path: Path) -> Path:
    """Writes the code of this library into a .zip, from which Python imports it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in code():
            archive.writestr(f"cql/{name}", text)
    return path
