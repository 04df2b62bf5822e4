"""numba's lowering without what comes to nothing in our functions: types for operands that are no
constants, sizes for absent debug information, reference counts of plain values."""

from __future__ import annotations

from functools import partial
from typing import Any

from numba.core import cgutils, debuginfo, ir, lowering, types
from numba.core.errors import LoweringError, new_error_context  # type: ignore[attr-defined]

from cql.executor.jit.compile_speed import with_globals

#: Types of most variables; looking their data model up costs more than this test.
_UNCOUNTED = types.Number, types.Boolean


def _literal(value: Any) -> Any:
    """The type of a constant operand; None for other operands, for which numba makes a type that it
    does not use."""
    return None if value is ir.UNDEFINED else lowering._lit_or_omitted(value)


class Lower(lowering.Lower):
    lower_binop = with_globals(lowering.Lower.lower_binop, _lit_or_omitted=_literal)

    def lower_block(self, block: Any) -> None:
        """Describes the instruction only for an error."""
        self.pre_block(block)
        for inst in block.body:
            self.loc = inst.loc
            try:
                self.lower_inst(inst)
            except Exception:
                error = partial(LoweringError, loc=self.loc)
                about = 'lowering "{inst}" at {loc}'
                with new_error_context(about, inst=inst, loc=self.loc, errcls_=error):
                    raise
        self.post_block(block)

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        if not isinstance(self.debuginfo, debuginfo.DummyDIBuilder):
            return super().alloca_lltype(name, lltype, datamodel)
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)

    def incref(self, typ: Any, val: Any) -> None:
        if self._is_counted(typ):
            super().incref(typ, val)

    def decref(self, typ: Any, val: Any) -> None:
        if self._is_counted(typ):
            super().decref(typ, val)

    def _is_counted(self, typ: Any) -> bool:
        return not isinstance(typ, _UNCOUNTED) and bool(
            self.context.data_model_manager[typ].contains_nrt_meminfo()
        )
