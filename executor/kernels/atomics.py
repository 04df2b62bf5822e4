"""Atomic operations on words at an address, for nogil kernels (numba ships none).

``address`` is that of an aligned int64. Orderings are in the names; unmarked ones are sequentially
consistent.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
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


fetch_add_relaxed = _read_modify_write("add", "monotonic")
load_acquire = _load("acquire")
store_release = _store("release")


@intrinsic
def compare_and_swap(typingctx: Any, address: Any, expected: Any, new: Any) -> Any:
    """Returns the old value: it succeeded iff that equals ``expected``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(builder, args[0])
        result = builder.cmpxchg(pointer, args[1], args[2], "seq_cst", "monotonic")
        return builder.extract_value(result, 0)

    return types.int64(types.int64, types.int64, types.int64), codegen
