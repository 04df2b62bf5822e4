"""How workers may share a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cql.executor.codegen.expressions.scope import Called
from cql.executor.codegen.kernel_cache import Kernel
from cql.executor.operators.stage.spec import StageSpec
from cql.planner.nodes.expr import Call, walk
from cql.planner.nodes.physical import NumberExec


def is_stateless(spec: StageSpec) -> bool:
    """Whether each output row depends on one input row only."""
    return spec.aggregate is None and not any(isinstance(step, NumberExec) for step in spec.steps)


def needs_python(kernel: Kernel) -> bool:
    """Whether a kernel has words that two threads cannot share: what it requests from Python, and
    the arguments of its part functions."""
    own = kernel.functions or kernel.parts
    return bool(own or kernel.hosts or kernel.tables or kernel.uses_rank)


def can_replicate(kernel: Kernel, in_python: Sequence[Called]) -> bool:
    """Whether several threads may run instances of a stateless kernel at once: its functions allow
    it, and no function called per row holds the interpreter lock; those ``in_python`` do. (Threads
    that pass the lock to each other at every row take twice the time of one thread.)"""
    if any(function.parallel is False for function in functions_of(kernel)):
        return False
    return all(function.parallel for function in in_python)


def functions_of(kernel: Kernel) -> Iterator[Called]:
    """The user functions that a kernel calls, directly or through Python."""
    yield from kernel.functions
    for expr in (*(t.expr for t in kernel.tables), *(h.call for h in kernel.hosts)):
        calls = (part for part in walk(expr) if isinstance(part, Call))
        yield from (call.function for call in calls if call.function is not None)
