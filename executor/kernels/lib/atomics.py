"""Atomic operations on words at an address, for nogil kernels (numba ships none).

``address`` is the address of an aligned int64. The name of a function gives its memory ordering; a
name without one means sequentially consistent.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I64 = ir.IntType(64)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _I64.as_pointer())


def _read_modify_write(operation: str, ordering: str) -> Any:
    @intrinsic
    def function(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.atomic_rmw(operation, _pointer(builder, args[0]), args[1], ordering)

        return types.int64(types.int64, types.int64), codegen

    return function


def _load(ordering: str) -> Any:
    @intrinsic
    def function(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load_atomic(_pointer(builder, args[0]), ordering, 8, typ=_I64)

        return types.int64(types.int64), codegen

    return function


def _store(ordering: str) -> Any:
    @intrinsic
    def function(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store_atomic(args[1], _pointer(builder, args[0]), ordering, 8)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return function


fetch_add = _read_modify_write("add", "seq_cst")
fetch_add_relaxed = _read_modify_write("add", "monotonic")
exchange = _read_modify_write("xchg", "seq_cst")
load = _load("seq_cst")
load_acquire = _load("acquire")
load_relaxed = _load("monotonic")
store = _store("seq_cst")
store_release = _store("release")
store_relaxed = _store("monotonic")


@intrinsic
def compare_and_swap(typingctx: Any, address: Any, expected: Any, new: Any) -> Any:
    """Returns the old value; the swap happened iff the old value equals ``expected``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(builder, args[0])
        result = builder.cmpxchg(pointer, args[1], args[2], "seq_cst", "monotonic")
        return builder.extract_value(result, 0)

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def fence(typingctx: Any) -> Any:
    """A full fence: every store before the fence takes effect before any load after the fence."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def pause(typingctx: Any) -> Any:
    """The spin-wait hint of the CPU. An LLVM intrinsic: inline assembly aborts the process."""
    arm = platform.machine().lower() in ("aarch64", "arm64")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = [ir.IntType(32)] if arm else []
        kind = ir.FunctionType(ir.VoidType(), given)
        name = "llvm.aarch64.hint" if arm else "llvm.x86.sse2.pause"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(function, [ir.Constant(g, 1) for g in given])
        return context.get_dummy_value()

    return types.void(), codegen
