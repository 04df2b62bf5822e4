"""``njit`` and ``cfunc`` of this library: numba's for the CPU, with our compiler and our cache.

Their functions share the declarations of numba's CPU target: each target knows the other's
registrations, and functions of both can call each other. numba itself stays unmodified: a function
under plain ``numba.njit`` in the same process is compiled and cached by numba alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import sigutils, typeinfer
from numba.core.ccallback import (  # type: ignore[attr-defined]
    CFunc,
    _CFuncCompiler,
)
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher

from cql.executor.jit.compile_speed import TARGET, KernelFlags
from cql.executor.jit.disk_cache import KernelCache
from cql.executor.jit.pipeline import LibraryCompiler


class _WithKernelFlags:
    def _customize_flags(self, flags: Any) -> Any:
        return KernelFlags(super()._customize_flags(flags))  # type: ignore[misc]


class _DispatcherCompiler(_WithKernelFlags, _FunctionCompiler):
    pass


class _CallbackCompiler(_WithKernelFlags, _CFuncCompiler):
    pass


class KernelDispatcher(CPUDispatcher):
    targetdescr = TARGET

    def __init__(
        self,
        py_func: Any,
        locals: Any = None,
        targetoptions: Any = None,
        pipeline_class: Any = LibraryCompiler,
    ) -> None:
        super().__init__(py_func, locals, targetoptions, pipeline_class)
        self._compiler = _DispatcherCompiler(
            py_func, self.targetdescr, self.targetoptions, self.locals, pipeline_class
        )

    def enable_caching(self) -> None:
        self._cache = KernelCache(self.py_func)


class KernelCallback(CFunc):
    _targetdescr = TARGET

    def __init__(self, pyfunc: Any, sig: Any, options: Any, pipeline_class: Any) -> None:
        super().__init__(pyfunc, sig, {}, options, pipeline_class)
        self._compiler = _CallbackCompiler(pyfunc, self._targetdescr, options, {}, pipeline_class)

    def enable_caching(self) -> None:
        self._cache = KernelCache(self.__wrapped__)


def njit(
    signatures: Any = None,
    *,
    cache: bool = False,
    pipeline_class: Any = LibraryCompiler,
    **options: Any,
) -> Any:
    """``numba.njit`` with our compiler: takes a signature, a list of signatures or the function,
    and numba's options. It compiles even under NUMBA_DISABLE_JIT, because other kernels call the
    machine code."""
    if callable(signatures) and not sigutils.is_signature(signatures):
        return njit(cache=cache, pipeline_class=pipeline_class, **options)(signatures)
    declared = signatures if isinstance(signatures, list) else [signatures]
    targetoptions = {"nopython": True, "boundscheck": None, **options}

    def decorate(function: Any) -> Any:
        made = KernelDispatcher(function, {}, targetoptions, pipeline_class)
        if cache:
            made.enable_caching()
        if signatures is not None:
            with typeinfer.register_dispatcher(made):
                for signature in declared:
                    made.compile(signature)
                made.disable_compile()
        return made

    return decorate


def cfunc(
    signature: Any, *, cache: bool = False, pipeline_class: Any = LibraryCompiler, **options: Any
) -> Callable[[Any], Any]:
    """``numba.cfunc`` with our compiler."""
    normal = sigutils.normalize_signature(signature)

    def decorate(function: Any) -> Any:
        made = KernelCallback(function, normal, options, pipeline_class)
        if cache:
            made.enable_caching()
        made.compile()
        return made

    return decorate
