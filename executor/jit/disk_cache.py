"""numba's disk cache for our functions, hardened against disk faults.

numba raises arbitrary errors for a damaged entry and an error for an entry that cannot be written
(full disk). It refuses to import a function with ``cache=True`` if no cache folder is writable.
None of these faults may fail a query: an unreadable entry is compiled again, an unwritable one is
not kept, and without a writable folder the process uses a temporary one. An entry is also stale
when another kernel file has changed: numba checks only the function's own file, although constants
and functions of other files are compiled into it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from numba.core import caching

from cql.base.compile_notice import WATCH
from cql.executor.jit.cache_folder import cache_folder, kernels_digest, temporary_folder

KERNELS = "cql.executor.kernels"


class _PackedLocator(caching._CacheLocator):
    """Locates the cache of modules in a .zip: by their names, since each application of Spark
    unpacks the .zip in another place."""

    def __init__(self, py_func: Any) -> None:
        self._py_func = py_func

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _PackedLocator | None:
        packed = not os.path.exists(py_file) and ".zip" in py_file
        return cls(py_func) if packed and py_func.__module__.startswith(KERNELS) else None

    def get_cache_path(self) -> str:
        return str(cache_folder() / "library" / self._py_func.__module__)

    def get_source_stamp(self) -> Any:
        return (kernels_digest(),)

    def get_disambiguator(self) -> str:
        return str(self._py_func.__code__.co_firstlineno)


class _TemporaryLocator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    """Locates the cache if neither the package's folder nor the user's is writable."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(temporary_folder() / self.get_suitable_cache_subpath(self._py_file))


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = (
        _PackedLocator,
        *caching.CompileResultCacheImpl._locator_classes,
        _TemporaryLocator,
    )


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
