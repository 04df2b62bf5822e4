"""numba's pass pipeline for our functions: some passes run on our faster analyses, and generated
kernels skip the deletion of variables.

numba deletes a variable wherever its lifetime can end, to decrement reference counts. A generated
kernel holds no counted reference, but its loops have as many exits as places where a row can fail:
numba would delete every array at each exit, and compiling 100 columns would take minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from numba.core import ir_utils, postproc, transforms, typed_passes, untyped_passes
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass

from cql.executor.jit.compile_speed import live_variables, static_single_assignment, with_globals
from cql.executor.jit.lowering import Lower
from cql.executor.jit.type_inference import type_inference_stage

_NOT_NEEDED = frozenset(
    (
        typed_passes.IRLegalization,  # inserts the deletions
        # These passes rewrite closures, array expressions and literal loops; no kernel has any.
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


class _Lifetimes(postproc.VariableLifetime):
    @property
    def livemap(self) -> Any:
        known = self.__dict__.get("_live")
        if known is None:
            usedefs = self.usedefs
            known = live_variables(self.cfg, self._blocks, usedefs.usemap, usedefs.defmap)
            self.__dict__["_live"] = known
        return known


class _PostProcessor(postproc.PostProcessor):
    def run(self, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        """numba's steps, but for the variables that live at the entry of each block, which only
        generators need."""
        function = self.func_ir
        if function.is_generator:
            super().run(emit_dels, extend_lifetimes)
            return
        function.blocks = transforms.canonicalize_cfg(function.blocks)
        function.variable_lifetime = _Lifetimes(function.blocks)
        function.generator_info = None
        if emit_dels:
            self._insert_var_dels(extend_lifetimes=extend_lifetimes)


class _Passes(PassManager):
    """numba's pass manager; it runs our post-processor after each pass."""

    _runPass = global_compiler_lock(  # noqa: N815
        with_globals(PassManager._runPass.__wrapped__, PostProcessor=_PostProcessor)
    )


_POSTPROC = SimpleNamespace(PostProcessor=_PostProcessor)


def _quick(replaced: Any, **names: Any) -> Any:
    """A copy of a numba pass in which the global ``names`` refer to other objects."""
    run = with_globals(replaced.run_pass, **names)
    return _registered(replaced, {"run_pass": run})


def _registered(replaced: Any, methods: dict[str, Any]) -> Any:
    made = type(replaced.__name__, (replaced,), {**methods, "__module__": __name__})
    return register_pass(mutates_CFG=True, analysis_only=False)(made)


def _inline(
    self: Any, state: Any, work_list: Any, block: Any, i: int, call: Any, worker: Any
) -> Any:
    """Inlines a function; its code goes through our quick passes, too."""
    from cql.executor.jit.inlining import Inliner  # loads modules that only a compilation needs

    worker.__class__ = Inliner
    worker._compiler_pipeline = _untyped_passes
    inline = untyped_passes.InlineInlinables._do_work
    return inline(self, state, work_list, block, i, call, worker)


_QUICK: dict[Any, Any] = {
    untyped_passes.IRProcessing: _quick(untyped_passes.IRProcessing, postproc=_POSTPROC),
    untyped_passes.InlineClosureLikes: _quick(
        untyped_passes.InlineClosureLikes, postproc=_POSTPROC
    ),
    untyped_passes.InlineInlinables: _registered(
        untyped_passes.InlineInlinables,
        {
            "run_pass": with_globals(untyped_passes.InlineInlinables.run_pass, postproc=_POSTPROC),
            "_do_work": _inline,
        },
    ),
    untyped_passes.ReconstructSSA: _quick(
        untyped_passes.ReconstructSSA,
        postproc=_POSTPROC,
        reconstruct_ssa=static_single_assignment,
    ),
    typed_passes.NopythonTypeInference: _quick(
        typed_passes.NopythonTypeInference, type_inference_stage=type_inference_stage
    ),
    typed_passes.NativeLowering: _registered(
        typed_passes.NativeLowering, {"lowering_class": Lower}
    ),
    typed_passes.PreLowerStripPhis: _quick(typed_passes.PreLowerStripPhis, postproc=_POSTPROC),
    typed_passes.NopythonRewrites: _quick(typed_passes.NopythonRewrites, postproc=_POSTPROC),
    typed_passes.IRLegalization: _quick(
        typed_passes.IRLegalization,
        check_and_legalize_ir=with_globals(ir_utils.check_and_legalize_ir, postproc=_POSTPROC),
    ),
}


def _made_quick(built: Any) -> Any:
    made = _Passes(built.pipeline_name)
    made.passes = [
        (_QUICK.get(step, step), about)
        for step, about in built.passes
        if step is not typed_passes.AnnotateTypes  # this pass only adds comments for a reader
    ]
    made.finalize()
    return made


def _untyped_passes(state: Any) -> Any:
    return _made_quick(DefaultPassBuilder.define_untyped_pipeline(state))


def passes(state: Any, change: Callable[[Any], None] = lambda built: None) -> list[Any]:
    """numba's passes, with ours in their places, in the form that ``define_pipelines`` of a
    compiler returns. ``change`` may modify numba's list before ours replace its passes."""
    built = DefaultPassBuilder.define_nopython_pipeline(state)
    change(built)
    return [_made_quick(built)]


class LibraryCompiler(CompilerBase):
    """Compiles the functions of the kernel library."""

    def define_pipelines(self) -> list[Any]:
        return passes(self.state)


class KernelCompiler(CompilerBase):
    """Compiles generated kernels."""

    def define_pipelines(self) -> list[Any]:
        return passes(self.state, _without_deletions)


def _without_deletions(built: Any) -> None:
    built.passes = [step for step in built.passes if step[0] not in _NOT_NEEDED]
