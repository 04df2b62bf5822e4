"""How numba compiles a generated kernel: as it does by itself, but no variable is ever deleted.

numba deletes a variable wherever it can die, to count references down. A kernel holds no counted
reference, and it has as many ways out of its loops as there are places where a row can fail: every
array would be deleted at each of them, and compiling 100 columns would take minutes.
"""

from __future__ import annotations

from typing import Any

from numba.core import typed_passes, untyped_passes
from numba.core.compiler import CompilerBase, DefaultPassBuilder

_NOT_NEEDED = frozenset(
    (
        typed_passes.IRLegalization,  # inserts the deletions
        typed_passes.AnnotateTypes,  # comments the IR for a reader
        # Rewrites of what no kernel holds: closures, array expressions, literal loops.
        untyped_passes.InlineClosureLikes,
        untyped_passes.RewriteSemanticConstants,
        untyped_passes.GenericRewrites,
        untyped_passes.MakeFunctionToJitFunction,
        untyped_passes.LiteralUnroll,
        untyped_passes.DeadBranchPrune,
        untyped_passes.LiteralPropagationSubPipelinePass,
        untyped_passes.FindLiterallyCalls,
        typed_passes.NopythonRewrites,
        typed_passes.PreParforPass,
        typed_passes.ParforPass,
    )
)


class KernelCompiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        built = DefaultPassBuilder.define_nopython_pipeline(self.state)
        built.passes = [p for p in built.passes if p[0] not in _NOT_NEEDED]
        built.finalize()
        return [built]
