"""numba's disk cache for our functions, hardened against disk faults.

numba raises arbitrary errors for a damaged entry and an error for an entry that cannot be written
(full disk). It refuses to import a function with ``cache=True`` if no cache folder is writable.
None of these faults may fail a query: an unreadable entry is compiled again, an unwritable one is
not kept, and without a writable folder the process uses a temporary one. An entry is also stale
when another kernel file has changed: numba checks only the function's own file, although constants
and functions of other files are compiled into it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import caching

from cql.base.compile_notice import WATCH

KERNELS = "cql.executor.kernels"
#: The files of this folder that affect machine code.
COMPILERS = ("compile_speed.py", "decorators.py", "pipeline.py")


@cache
def kernels_digest() -> str:
    """Hash of every kernel file and of the compiler's files. Kernel files import constants and
    functions only from each other."""
    here = Path(__file__).parent
    files = [
        *sorted((here.parent / "kernels").rglob("*.py")),
        *(here / name for name in COMPILERS),
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def temporary_folder() -> Path:
    """A folder that the process removes at its exit; forked processes can use it until then."""
    folder, process = Path(tempfile.mkdtemp(prefix="cql-kernels-")), os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


_folder_without_any = cache(temporary_folder)


class _TemporaryLocator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    """Locates the cache if neither the package's folder nor the user's is writable."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(_folder_without_any() / self.get_suitable_cache_subpath(self._py_file))


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = (*caching.CompileResultCacheImpl._locator_classes, _TemporaryLocator)


class KernelCache(caching.FunctionCache):
    """``cql.base.compile_notice.WATCH`` measures the compile time of functions that the cache
    lacks."""

    _impl_class = _Files

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        if py_func.__module__.startswith(KERNELS):
            file = self._cache_file
            file._source_stamp = (*file._source_stamp, kernels_digest())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # unpickling damaged bytes can raise anything
            with contextlib.suppress(OSError):
                self.flush()
            found = None
        if found is None:
            WATCH.begins()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        WATCH.ends()
        try:
            super().save_overload(sig, data)
        except OSError:
            return
        except Exception:  # the existing index is damaged: start a new one
            with contextlib.suppress(OSError):
                self.flush()
                super().save_overload(sig, data)
