"""A faster numba compiler for this library: compiling a kernel takes two thirds less time.

numba repeats work. A kernel looks up the signature of ``int64 + int64`` thousands of times, and
each time numba tries its templates one by one. Every cache lookup compares all options in the flags
of a compilation. The SSA pass goes through the whole function twice for each variable that is
assigned more than once. The liveness analysis unites sets of all variables at every jump, in time
quadratic in the function's size. This module has faster versions for the compilers of ``pipeline``
and for their target; type inference, inlining and lowering have files of their own. None replaces
anything inside numba. The machine code is the same.
"""

from __future__ import annotations

import builtins
import types as python_types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from numba.core import base, ir, ssa, types, typing
from numba.core.compiler import Flags
from numba.core.cpu import CPUContext
from numba.core.datamodel import models, register_default
from numba.core.registry import CPUTarget, cpu_target
from numba.core.types.misc import unliteral
from numba.core.utils import threadsafe_cached_property

#: Argument types for which an operator's signature depends only on the types, never on the values
#: of literals.
_PLAIN: tuple[type[types.Type], ...] = (types.Number, types.Boolean)


def is_plain(kind: type[types.Type]) -> None:
    """Declares ``kind`` plain: operators on it have one signature per combination of types."""
    global _PLAIN
    _PLAIN += (kind,)


def with_globals(function: Any, **names: Any) -> Any:
    """A copy of numba's ``function`` in which the global ``names`` refer to other objects."""
    missing = names.keys() - function.__globals__.keys()
    assert not missing, f"{function.__qualname__} has no {missing}"
    made = python_types.FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


# -- the target ------------------------------------------------------------------------------------


class _Operator(types.Function):
    """The type of an operator; it resolves the signature of a call once for each combination of
    types."""

    def __init__(self, templates: Any) -> None:
        super().__init__(templates)
        self._signatures: dict[Any, Any] = {}

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        key = tuple(args)
        signature = None if kws else self._signatures.get(key)
        if signature is None:
            plain = tuple(unliteral(arg) for arg in args)
            if kws or not all(isinstance(arg, _PLAIN) for arg in plain):
                return super().get_call_type(context, args, kws)
            signature = self._signatures.get(plain) or super().get_call_type(context, plain, kws)
            self._signatures[plain] = self._signatures[key] = signature
        return signature


register_default(_Operator)(models.OpaqueModel)


class _Typing(typing.Context):
    """The typing context of numba's CPU target as our compilations see it: the same declarations,
    but operators have type ``_Operator``."""

    def __init__(self, shared: Any) -> None:
        self.__dict__ = shared.__dict__  # shares the registries and tables

    def refresh(self) -> None:
        """Refreshes the context of numba's target, which owns all declarations."""
        cpu_target.typing_context.refresh()

    def resolve_value_type(self, val: Any) -> Any:
        found = self._lookup_global(val) if _is_operator(val) else None
        return found or super().resolve_value_type(val)

    def _lookup_global(self, gv: Any) -> Any:
        found = super()._lookup_global(gv)
        if type(found) is types.Function and _is_operator(gv):
            return _operator_of(found)
        return found


def _is_operator(value: object) -> bool:
    if isinstance(value, python_types.BuiltinFunctionType):
        return value.__module__ == "_operator"
    return value is builtins.bool


_operators: dict[int, tuple[Any, _Operator]] = {}  # by id of numba's type, which it keeps alive


def _operator_of(function: Any) -> _Operator:
    known = _operators.get(id(function))
    if known is None:
        known = _operators[id(function)] = function, _Operator(function.templates)
    return known[1]


_takes_location: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _has_loc(function: Any) -> bool:
    """``base._has_loc``, once for each implementation."""
    known = _takes_location.get(function)
    if known is None:
        known = _takes_location[function] = base._has_loc(function)
    return known


class _WithLocation(base._wrap_missing_loc):
    __call__ = with_globals(base._wrap_missing_loc.__call__, _has_loc=_has_loc)


class _Implementation(base._wrap_impl):
    __init__ = with_globals(base._wrap_impl.__init__, _wrap_missing_loc=_WithLocation)


class _Context(CPUContext):
    """numba's target context. It has the name of numba's, which is written into machine code."""

    __module__ = CPUContext.__module__
    get_function = with_globals(CPUContext.get_function, _wrap_impl=_Implementation)


_Context.__name__ = CPUContext.__name__


class _Target(CPUTarget):
    """numba's CPU target with ``_Typing``; functions of both targets can call each other."""

    @threadsafe_cached_property
    def _toplevel_typing_context(self) -> Any:
        return _Typing(cpu_target.typing_context)

    @threadsafe_cached_property
    def _toplevel_target_context(self) -> Any:
        made = cpu_target.target_context.subtarget(
            typing_context=self.typing_context, cached_internal_func={}
        )
        made.__class__ = _Context
        return made


TARGET = _Target("cpu")


class KernelFlags(Flags):
    """The flags of our compilations. They never equal the flags of other compilations: numba caches
    overload implementations by flags."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """An option set to its default equals an unset option."""
        if not isinstance(other, KernelFlags):
            return False
        mine, theirs = self._values, other._values
        return mine == theirs or all(
            mine.get(name, _DEFAULTS[name]) == theirs.get(name, _DEFAULTS[name])
            for name in mine.keys() | theirs.keys()
        )

    def __hash__(self) -> int:
        return hash(tuple(self._values.get(name, _DEFAULTS[name]) for name in _DISTINGUISHING))


_DEFAULTS = {name: option.default for name, option in KernelFlags.options.items()}
#: The options that differ between our compilations.
_DISTINGUISHING = (
    "enable_ssa",
    "error_model",
    "no_cpython_wrapper",
    "no_cfunc_wrapper",
    "release_gil",
)


# -- analyses --------------------------------------------------------------------------------------


def static_single_assignment(function: Any) -> Any:
    """``ssa.reconstruct_ssa``, but for each variable it rewrites only the statements that contain
    the variable; rewriting one variable does not affect the others."""
    statements: _Statements = {}
    names = {}
    for label, block in function.blocks.items():
        for statement in block.body:
            variables = {variable.name for variable in statement.list_vars()}
            statements[id(statement)] = statement, variables
        names[label] = set().union(*(statements[id(one)][1] for one in block.body))
    rewrite = partial(_rewrite_blocks, names, statements)
    run = with_globals(
        ssa._run_ssa,
        _fresh_vars=with_globals(ssa._fresh_vars, _run_block_rewrite=rewrite),
        _fix_ssa_vars=with_globals(ssa._fix_ssa_vars, _run_block_rewrite=rewrite),
    )
    function.blocks = run(function.blocks)
    return function


#: By the id of a statement: the statement, so that no other gets its id, and its variables' names.
_Statements = dict[int, tuple[Any, set[str]]]


def _rewrite_blocks(
    names: dict[Any, set[str]], statements: _Statements, blocks: Any, states: Any, handler: Any
) -> Any:
    """``ssa._run_block_rewrite``; statements that are not in ``statements`` go to ``handler``."""
    name, rewritten = states["varname"], {}
    for label, block in blocks.items():
        if name not in names[label]:
            rewritten[label] = block
            continue
        states["label"], states["block"] = label, block
        made = rewritten[label] = ir.Block(scope=block.scope, loc=block.loc)
        for statement in block.body:
            _, variables = statements.get(id(statement), (None, None))
            if variables is not None and name not in variables:
                made.body.append(statement)
                continue
            visit = handler.on_assign if isinstance(statement, ir.Assign) else handler.on_other
            new = visit(states, statement)
            if variables is not None:
                statements[id(new)] = new, variables
            made.body.append(new)
    return rewritten


def live_variables(cfg: Any, blocks: Any, uses: Any, defines: Any) -> dict[Any, set[str]]:
    """The live variables at the entry of each block, computed on bit sets: variables that may have
    been assigned before and are read before their next assignment."""
    names = sorted(set().union(*uses.values(), *defines.values()))
    bit = {name: 1 << k for k, name in enumerate(names)}
    used, defined = (
        {k: sum(bit[name] for name in by_block[k]) for k in blocks} for by_block in (uses, defines)
    )
    forward = cfg.topo_order()
    follow = {k: [target for target, _ in cfg.successors(k)] for k in forward}
    reached = {k: used[k] | defined[k] for k in blocks}
    _until_stable(forward, lambda k: _spread(reached, follow[k], reached[k]))
    alive = dict(used)
    before = {k: [origin for origin, _ in cfg.predecessors(k)] for k in forward}

    def back(k: Any) -> bool:
        changed = False
        for origin in before[k]:
            more = alive[k] & reached[origin] & ~defined[origin]
            changed |= _spread(alive, [origin], more)
        return changed

    _until_stable(list(reversed(forward)), back)
    return {k: set(_names_in(bits, names)) for k, bits in alive.items()}


def _spread(bits: dict[Any, int], targets: list[Any], more: int) -> bool:
    """Adds ``more`` to each of ``targets``; returns whether a target changed."""
    changed = False
    for target in targets:
        new = bits[target] | more
        changed |= new != bits[target]
        bits[target] = new
    return changed


def _until_stable(order: list[Any], step: Callable[[Any], bool]) -> None:
    changed = True
    while changed:
        changed = False
        for k in order:
            changed |= step(k)


def _names_in(bits: int, names: list[str]) -> Iterator[str]:
    while bits:
        lowest = bits & -bits
        yield names[lowest.bit_length() - 1]
        bits ^= lowest
