"""numba's cache on disk, made to bear what disks do.

numba reads a damaged entry as far as it goes and then raises whatever that gives, raises when an
entry cannot be written (a full disk), and refuses to import a function with ``cache=True`` when no
folder can be written at all. None of these is worth a failing query: what cannot be read is
compiled again, what cannot be written is not kept, and without any folder the process takes a
temporary one. An entry is also old when another file of the kernels has changed: numba asks about
the function's own file only, and constants and functions of others are compiled into it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import caching, config

from cql.base.compile_notice import WATCH

_MARK = "_cql_tolerant"
KERNELS = "cql.executor.kernels"


def make_tolerant() -> None:
    """Changes numba's cache for this process, once."""
    if not hasattr(caching.Cache, _MARK):
        setattr(caching.Cache, _MARK, True)
        caching.Cache.__init__ = _stamped(caching.Cache.__init__)
        caching.Cache.load_overload = _forgiving_load(caching.Cache.load_overload)
        caching.Cache.save_overload = _forgiving_save(caching.Cache.save_overload)
    try:
        caching.FunctionCache(make_tolerant)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        config.CACHE_DIR = str(temporary_folder())


@cache
def kernels_digest() -> str:
    """Hash of every kernel file: they import constants and functions from each other alone."""
    files = sorted((Path(__file__).parent.parent / "kernels").rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _stamped(begin: Callable[..., None]) -> Callable[..., None]:
    def stamped(cache: Any, py_func: Any) -> None:
        begin(cache, py_func)
        if py_func.__module__.startswith(KERNELS):
            file = cache._cache_file
            file._source_stamp = (*file._source_stamp, kernels_digest())

    return stamped


def temporary_folder() -> Path:
    """A folder that is gone when the process has ended; one forked from it has it until then."""
    folder, process = Path(tempfile.mkdtemp(prefix="cql-kernels-")), os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _forgiving_load(load: Callable[..., Any]) -> Callable[..., Any]:
    def load_overload(cache: Any, sig: Any, target_context: Any) -> Any:
        try:
            found = load(cache, sig, target_context)
        except Exception:  # unpickling damaged bytes can raise anything
            with contextlib.suppress(OSError):
                cache.flush()
            found = None
        if found is None:
            WATCH.begins()
        return found

    return load_overload


def _forgiving_save(save: Callable[..., Any]) -> Callable[..., Any]:
    def save_overload(cache: Any, sig: Any, data: Any) -> None:
        WATCH.ends()
        try:
            save(cache, sig, data)
        except OSError:
            return
        except Exception:  # the index that is there is damaged: begin a new one
            with contextlib.suppress(OSError):
                cache.flush()
                save(cache, sig, data)

    return save_overload
