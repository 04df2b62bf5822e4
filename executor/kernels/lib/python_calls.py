"""Calls of Python from kernels: users' functions that numba cannot compile.

No interrupt is lost here, as it is in a callback of ctypes: Python raises KeyboardInterrupt before
the first step of a function, too, where that function cannot catch it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cql.executor.jit.decorators import cfunc

#: What a function returns that has raised.
ERROR = 2


@intrinsic
def call_python(typingctx: Any, own: Any, arguments: Any, results: Any) -> Any:
    """``function(arguments, results)``, an int, where ``own`` is the address of a Python tuple
    (function, raised). What the function raises goes to the end of the list ``raised``, for the
    caller to raise when the kernel is back in Python; ERROR."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        python = context.get_python_api(builder)
        status = cgutils.alloca_once_value(builder, ir.Constant(args[0].type, ERROR))
        gil = python.gil_ensure()
        pair = builder.inttoptr(args[0], python.pyobj)
        given = [python.long_from_longlong(address) for address in args[1:]]
        made = python.call_function_objargs(python.tuple_getitem(pair, 0), given)
        for number in given:
            python.decref(number)
        with builder.if_else(cgutils.is_null(builder, made)) as (raised, returned):
            with raised:
                _keep_error(python, python.tuple_getitem(pair, 1))
            with returned:
                builder.store(python.long_as_longlong(made), status)
                python.decref(made)
        python.gil_release(gil)
        return builder.load(status)

    return types.int64(types.int64, types.int64, types.int64), codegen


def _keep_error(python: Any, raised: Any) -> None:
    """Takes what Python is about to raise in this thread."""
    builder = python.builder
    parts = [cgutils.alloca_once(builder, python.pyobj) for _ in range(3)]
    python.err_fetch(*parts)
    kind = ir.FunctionType(ir.VoidType(), [part.type for part in parts])
    name = "PyErr_NormalizeException"
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), parts)
    _, error, _ = held = [builder.load(part) for part in parts]
    python.list_append(raised, error)
    for part in held:
        python.decref(part)


@cfunc("int64(int64, int64, int64)", nopython=True, cache=True)
def python_function(own: int, arguments: int, results: int) -> int:
    """``call_python`` as a function that kernels reach by address."""
    return call_python(own, arguments, results)
