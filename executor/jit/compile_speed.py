"""numba's compiler, made to do its work once in what we compile: two fifths less time for a kernel.

A kernel asks thousands of times which signature ``int64 + int64`` has, and each time numba tries
its templates one by one; it compares the flags of a compilation, all of their options, whenever it
looks into a cache; it goes through the whole function twice for each variable that is assigned more
than once; and it unites sets of all variables at every jump, time that grows with the square of a
function's size. Here are quicker ones for the compilers of ``pipeline`` and the target that they
compile for. Nothing of numba is replaced. The machine code is the same.
"""

from __future__ import annotations

import builtins
import types as python_types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from numba.core import ssa, types, typing
from numba.core.compiler import Flags
from numba.core.datamodel import models, register_default
from numba.core.registry import CPUTarget, cpu_target
from numba.core.types.misc import unliteral
from numba.core.utils import threadsafe_cached_property

#: Kinds of arguments for which an operator's signature depends on nothing but their types, and
#: never on the values of literals.
_PLAIN: tuple[type[types.Type], ...] = (types.Number, types.Boolean)


def is_plain(kind: type[types.Type]) -> None:
    """Operators on values of that kind have one signature for the same types, too."""
    global _PLAIN
    _PLAIN += (kind,)


def with_globals(function: Any, **names: Any) -> Any:
    """The same function of numba, which finds other things under ``names``."""
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
    """The type of an operator, which works out the signature of a call once for each combination of
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
    """The typing context of numba's CPU target, seen by our compilations: it has the same
    declarations, and operators of type ``_Operator``."""

    def __init__(self, shared: Any) -> None:
        self.__dict__ = shared.__dict__  # the registries and tables are the same objects

    def refresh(self) -> None:
        """What has been declared since belongs to the context of numba's target."""
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


_operators: dict[int, tuple[Any, _Operator]] = {}  # by the address of numba's type, kept alive


def _operator_of(function: Any) -> _Operator:
    known = _operators.get(id(function))
    if known is None:
        known = _operators[id(function)] = function, _Operator(function.templates)
    return known[1]


class _Target(CPUTarget):
    """numba's CPU target with that typing context: functions of both call each other."""

    @threadsafe_cached_property
    def _toplevel_typing_context(self) -> Any:
        return _Typing(cpu_target.typing_context)

    @threadsafe_cached_property
    def _toplevel_target_context(self) -> Any:
        return cpu_target.target_context.subtarget(
            typing_context=self.typing_context, cached_internal_func={}
        )


TARGET = _Target("cpu")


class KernelFlags(Flags):
    """The flags of our compilations; they never equal those of others, whose implementations of
    overloads numba keeps by flags."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """The same options may be set or be defaults."""
        if not isinstance(other, KernelFlags):
            return False
        mine, theirs = self._values, other._values
        return mine == theirs or all(
            mine.get(name, _DEFAULTS[name]) == theirs.get(name, _DEFAULTS[name])
            for name in mine.keys() | theirs.keys()
        )

    def __hash__(self) -> int:
        return hash(tuple(self._values.get(name, _DEFAULTS[name]) for name in _TOLD_APART))


_DEFAULTS = {name: option.default for name, option in KernelFlags.options.items()}
#: Options that differ between our compilations.
_TOLD_APART = ("enable_ssa", "error_model", "no_cpython_wrapper", "no_cfunc_wrapper", "release_gil")


# -- analyses --------------------------------------------------------------------------------------


def static_single_assignment(function: Any) -> Any:
    """``ssa.reconstruct_ssa``, which rewrites the blocks that have the variable in work: what other
    variables become changes none."""
    names = {
        label: {variable.name for statement in block.body for variable in statement.list_vars()}
        for label, block in function.blocks.items()
    }
    rewrite = partial(_rewrite_blocks, names)
    run = with_globals(
        ssa._run_ssa,
        _fresh_vars=with_globals(ssa._fresh_vars, _run_block_rewrite=rewrite),
        _fix_ssa_vars=with_globals(ssa._fix_ssa_vars, _run_block_rewrite=rewrite),
    )
    function.blocks = run(function.blocks)
    return function


def _rewrite_blocks(names: dict[Any, set[str]], blocks: Any, states: Any, handler: Any) -> Any:
    with_it = {k: block for k, block in blocks.items() if states["varname"] in names[k]}
    rewritten = ssa._run_block_rewrite(with_it, states, handler)
    return {k: rewritten.get(k, block) for k, block in blocks.items()}


def live_variables(cfg: Any, blocks: Any, uses: Any, defines: Any) -> dict[Any, set[str]]:
    """Which variables are alive at the entry of each block, in sets of bits: those that are used
    from there on before they are set anew, and may have been set."""
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
    """Adds ``more`` to each of ``targets``; whether that changed one."""
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
