"""Calls of Python from kernels, for users' functions that numba cannot compile.

A callback of ctypes would lose interrupts: Python may raise KeyboardInterrupt before the first
instruction of a function, where the function cannot catch it. The calls here keep the interrupt.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cql.executor.jit.decorators import cfunc

#: The status of a call that has raised.
ERROR = 2


@intrinsic
def call_python(typingctx: Any, own: Any, arguments: Any, results: Any) -> Any:
    """Calls ``function(arguments, results)`` and returns its int; ``own`` is the address of a
    Python tuple (function, raised). If the function raises, appends the exception to the list
    ``raised`` and returns ERROR; the caller raises the exception once the kernel has returned."""

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
    """Moves the pending exception of this thread to the list ``raised``."""
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
    """``call_python`` as a function that kernels call by address."""
    return call_python(own, arguments, results)
