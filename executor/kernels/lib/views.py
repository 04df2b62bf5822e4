"""Addresses as arrays, for generated kernels: a view is an address and a length.

A kernel declares a view for every column that it reads or writes. A numba array has seven words,
and hundreds of numba arrays would take minutes to compile. The index of a view is never negative.
"""

from __future__ import annotations

import operator
from typing import Any

from numba import types, uint64
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import (
    intrinsic,
    make_attribute_wrapper,
    models,
    register_model,
)

from cql.executor.jit.compile_speed import is_plain
from cql.executor.jit.decorators import njit


class View(types.Type):
    """The values of one dtype at an aligned address."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"View({dtype})")


@register_model(View)
class _ViewModel(models.StructModel):
    def __init__(self, manager: Any, kind: View) -> None:
        members = [("data", types.CPointer(kind.dtype)), ("size", types.int64)]
        super().__init__(manager, kind, members)


class Packed(View):
    """Contiguous values of one dtype at an address of any alignment."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)
        self.name = f"Packed({dtype})"


register_model(Packed)(_ViewModel)


class Field(View):
    """Values of one dtype, ``step`` bytes apart: one field of consecutive records."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)
        self.name = f"Field({dtype})"


@register_model(Field)
class _FieldModel(models.StructModel):
    def __init__(self, manager: Any, kind: Field) -> None:
        members = [("data", types.int64), ("size", types.int64), ("step", types.int64)]
        super().__init__(manager, kind, members)


make_attribute_wrapper(View, "size", "size")
is_plain(View)


@infer_global(operator.getitem)
class _Get(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        view, index = args
        if isinstance(view, View) and isinstance(index, types.Integer):
            return signature(view.dtype, view, _wide(index))
        return None


@infer_global(operator.setitem)
class _Set(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        view, index, _ = args
        if isinstance(view, View) and isinstance(index, types.Integer):
            return signature(types.none, view, _wide(index), view.dtype)
        return None


def _wide(index: Any) -> Any:
    return types.uint64 if isinstance(index, types.Integer) and not index.signed else types.int64


def _place(context: Any, builder: Any, kind: View, view: Any, index: Any) -> Any:
    made = cgutils.create_struct_proxy(kind)(context, builder, view)
    if not isinstance(kind, Field):
        return builder.gep(made.data, [index])
    place = builder.add(made.data, builder.mul(index, made.step))
    return builder.inttoptr(place, context.get_data_type(kind.dtype).as_pointer())


@lower_builtin(operator.getitem, View, types.Integer)
def _load(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kind = sig.args[0]
    align = 1 if isinstance(kind, Packed) else None
    return context.unpack_value(builder, kind.dtype, _place(context, builder, kind, *args), align)


@lower_builtin(operator.setitem, View, types.Integer, types.Any)
def _store(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kind = sig.args[0]
    place = _place(context, builder, kind, *args[:2])
    context.pack_value(builder, kind.dtype, args[2], place)
    return context.get_dummy_value()


def _view(dtype: Any, kind_of: Any = View) -> Any:
    """``f(address, n)``: the view of the ``n`` values at an address."""
    kind = kind_of(dtype)

    @intrinsic
    def view(typingctx: Any, address: Any, n: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = cgutils.create_struct_proxy(kind)(context, builder)
            made.data = builder.inttoptr(args[0], context.get_data_type(dtype).as_pointer())
            made.size = args[1]
            return made._getvalue()

        return kind(types.int64, types.int64), codegen

    return view


def _field(dtype: Any) -> Any:
    """``f(address, n, size)``: the view of one field of ``n`` records of ``size`` bytes each;
    ``address`` is the field of the first record."""
    kind = Field(dtype)

    @intrinsic
    def field(typingctx: Any, address: Any, n: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = cgutils.create_struct_proxy(kind)(context, builder)
            made.data, made.size, made.step = args
            return made._getvalue()

        return kind(types.int64, types.int64, types.int64), codegen

    return field


words = _view(types.int64)
as_u8 = _view(types.uint8)
as_i8 = _view(types.int8)
as_i16 = _view(types.int16)
as_i32 = _view(types.int32)
as_f32 = _view(types.float32)
as_f64 = _view(types.float64)

#: numpy dtype of a column's storage → the function that views an address as values of that dtype.
VIEWS = {
    "bool": "as_u8",
    "int8": "as_i8",
    "int16": "as_i16",
    "int32": "as_i32",
    "int64": "words",
    "float32": "as_f32",
    "float64": "as_f64",
}

packed_u8 = _view(types.uint8, Packed)
packed_i8 = _view(types.int8, Packed)
packed_i16 = _view(types.int16, Packed)
packed_i32 = _view(types.int32, Packed)
packed_i64 = _view(types.int64, Packed)
packed_f32 = _view(types.float32, Packed)
packed_f64 = _view(types.float64, Packed)

#: The same for ``Packed`` views.
PACKED = {
    "bool": "packed_u8",
    "int8": "packed_i8",
    "int16": "packed_i16",
    "int32": "packed_i32",
    "int64": "packed_i64",
    "float32": "packed_f32",
    "float64": "packed_f64",
}

field_u8 = _field(types.uint8)
field_i8 = _field(types.int8)
field_i16 = _field(types.int16)
field_i32 = _field(types.int32)
field_i64 = _field(types.int64)
field_f32 = _field(types.float32)
field_f64 = _field(types.float64)

#: The same for ``Field`` views.
FIELDS = {
    "bool": "field_u8",
    "int8": "field_i8",
    "int16": "field_i16",
    "int32": "field_i32",
    "int64": "field_i64",
    "float32": "field_f32",
    "float64": "field_f64",
}


@njit(inline="always")
def ring(k: int, room: int) -> Any:
    """The place of item ``k`` in a ring of ``room`` places; ``k`` is below 2 * ``room``."""
    return uint64(k - room if k >= room else k)
