"""Inlining of the library's functions, whose IR is made once for the process.

numba makes the IR of a function from its bytecode at each call that it inlines.
"""

from __future__ import annotations

from typing import Any

from numba.core.inline_closurecall import InlineWorker

#: The IR of a function of the library, without and with SSA form.
_known: dict[tuple[Any, bool], Any] = {}


class Inliner(InlineWorker):
    """Inlines functions. The IR of functions of the library is made once: their globals never
    change."""

    def run_untyped_passes(self, func: Any, enable_ssa: bool = False) -> Any:
        if not func.__module__.startswith("cql.executor.kernels."):
            return super().run_untyped_passes(func, enable_ssa)
        self.flags.enable_ssa = enable_ssa  # as numba does
        ir = _known.get((func, enable_ssa))
        if ir is None:
            ir = _known[func, enable_ssa] = super().run_untyped_passes(func, enable_ssa)
        made = ir.copy()
        made.func_id = ir.func_id.derive()  # variables of each call get names of their own
        return made
