"""Functions of the kernel library that generated kernels call by a symbol of the process.

numba copies a function that a kernel calls into the kernel, with all that it calls, and compiles
the copy again. A function with a symbol is compiled once, into the library's cache: the kernel has
the symbol alone, which the linker finds when the kernel is compiled or loaded.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba.core import types

_known: dict[str, Any] = {}


def by_symbol(function: Any) -> Any:
    """``function`` of the kernel library, which has one signature, for the text of a kernel."""
    name = f"{function.__module__}.{function.__name__}"
    found = _known.get(name)
    if found is None:
        (compiled,) = function.overloads.values()
        entry = compiled.fndesc.llvm_cfunc_wrapper_name
        llvm.add_symbol(name, compiled.library.get_pointer_to_function(entry))
        kind = compiled.signature.return_type
        result = types.int8 if kind == types.boolean else kind  # a byte of C, not a bit
        found = _known[name] = types.ExternalFunction(name, result(*compiled.signature.args))
    return found
