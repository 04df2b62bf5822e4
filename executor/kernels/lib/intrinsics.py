"""Machine instructions that numba does not offer: arithmetic with an overflow flag, the high half
of a product, division without Python's checks, memory on the stack.

Operands and results are int64, flags are boolean. None of the functions can raise.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I64 = ir.IntType(64)
_I128 = ir.IntType(128)
#: The bytes of ``on_stack``.
STACK_BYTES = 1 << 12
_FLAGGED = types.Tuple((types.int64, types.boolean))


def _checked(operation: str) -> Any:
    """(a op b, whether it overflowed)."""

    @intrinsic
    def function(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pair = getattr(builder, operation)(args[0], args[1])
            value, flag = builder.extract_value(pair, 0), builder.extract_value(pair, 1)
            return context.make_tuple(builder, _FLAGGED, (value, flag))

        return _FLAGGED(types.int64, types.int64), codegen

    return function


def _plain(operation: str) -> Any:
    """An LLVM instruction on two int64."""

    @intrinsic
    def function(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, operation)(args[0], args[1])

        return types.int64(types.int64, types.int64), codegen

    return function


@intrinsic
def on_stack(typingctx: Any) -> Any:
    """The address of STACK_BYTES of memory with any content, which the calling function may use
    until it returns."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        room = cgutils.alloca_once(builder, ir.ArrayType(_I64, STACK_BYTES // 8))
        return builder.ptrtoint(room, _I64)

    return types.int64(), codegen


@intrinsic
def leading_zeros(typingctx: Any, a: Any) -> Any:
    """The number of leading zeros among the 64 bits of an int64; 64 for 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), codegen


@intrinsic
def trailing_zeros(typingctx: Any, a: Any) -> Any:
    """The number of trailing zeros among the 64 bits of an int64; 64 for 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), codegen


add_flagged = _checked("sadd_with_overflow")
sub_flagged = _checked("ssub_with_overflow")
mul_flagged = _checked("smul_with_overflow")
#: Truncating division; undefined for b = 0 and for MIN / -1, which callers exclude.
quotient = _plain("sdiv")
remainder = _plain("srem")


def _expected(value: bool) -> Any:
    """An intrinsic that returns its boolean argument and informs LLVM that the argument is nearly
    always ``value``."""

    @intrinsic
    def function(typingctx: Any, condition: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            bit = ir.IntType(1)
            kind = ir.FunctionType(bit, [bit, bit])
            expect = cgutils.get_or_insert_function(builder.module, kind, "llvm.expect.i1")
            return builder.call(expect, [args[0], ir.Constant(bit, value)])

        return types.boolean(types.boolean), codegen

    return function


likely, unlikely = _expected(True), _expected(False)


@intrinsic
def mul_high(typingctx: Any, a: Any, b: Any) -> Any:
    """The high 64 bits of the 128-bit signed product."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = [builder.sext(x, _I128) for x in args]
        product = builder.mul(*wide)
        return builder.trunc(builder.ashr(product, ir.Constant(_I128, 64)), _I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def unsigned_mul_high(typingctx: Any, a: Any, b: Any) -> Any:
    """The high 64 bits of the 128-bit unsigned product."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = [builder.zext(x, _I128) for x in args]
        product = builder.mul(*wide)
        return builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def folded_product(typingctx: Any, a: Any, b: Any) -> Any:
    """The low half of the 128-bit unsigned product of two uint64, XOR its high half."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.mul(*(builder.zext(x, _I128) for x in args))
        high = builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)
        return builder.xor(builder.trunc(product, _I64), high)

    return types.uint64(types.uint64, types.uint64), codegen
