"""Memory of the C library's heap, for kernels that keep values whose sizes only they know."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I64 = ir.IntType(64)


@intrinsic
def allocate(typingctx: Any, size: Any) -> Any:
    """The address of ``size`` new bytes (malloc); 0: there are none."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(_function(builder, "malloc", _I64, [_I64]), args)

    return types.int64(types.int64), codegen


@intrinsic
def reallocate(typingctx: Any, address: Any, size: Any) -> Any:
    """The address of ``size`` bytes that begin with those at ``address``, which may move (realloc);
    0: there are none, and the old ones stay."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(_function(builder, "realloc", _I64, [_I64, _I64]), args)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def deallocate(typingctx: Any, address: Any) -> Any:
    """Gives the memory of ``allocate`` back (free)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.call(_function(builder, "free", ir.VoidType(), [_I64]), args)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _function(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """A function of the C library, with addresses as integers."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)
