"""numba's cache on disk for our functions, made to bear what disks do.

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
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import caching

from cql.base.compile_notice import WATCH

KERNELS = "cql.executor.kernels"
#: The files of this folder that make machine code.
COMPILERS = ("compile_speed.py", "decorators.py", "pipeline.py")


@cache
def kernels_digest() -> str:
    """Hash of every kernel file (they import constants and functions from each other alone) and of
    those that compile them."""
    here = Path(__file__).parent
    files = [
        *sorted((here.parent / "kernels").rglob("*.py")),
        *(here / name for name in COMPILERS),
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def temporary_folder() -> Path:
    """A folder that is gone when the process has ended; one forked from it has it until then."""
    folder, process = Path(tempfile.mkdtemp(prefix="cql-kernels-")), os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


_folder_without_any = cache(temporary_folder)


class _TemporaryLocator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    """For when neither the package's folder nor the user's can be written."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(_folder_without_any() / self.get_suitable_cache_subpath(self._py_file))


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = (*caching.CompileResultCacheImpl._locator_classes, _TemporaryLocator)


class KernelCache(caching.FunctionCache):
    """What is compiled and in no cache is timed by ``cql.base.compile_notice.WATCH``."""

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
        except Exception:  # the index that is there is damaged: begin a new one
            with contextlib.suppress(OSError):
                self.flush()
                super().save_overload(sig, data)
