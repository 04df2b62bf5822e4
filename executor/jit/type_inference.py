"""numba's type inference, but a constraint waits until the type of one of its variables changes.

numba resolves all calls and assignments of a function again until no type changes, three or four
times.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from numba.core import typed_passes, typeinfer
from numba.core.errors import TypingError

from cql.executor.jit.compile_speed import with_globals


class _Constraints(typeinfer.ConstraintNetwork):
    """Constraints that are resolved again only after one of their variables has another type."""

    def __init__(self) -> None:
        super().__init__()
        self._variables: list[list[Any]] = []  # of each constraint
        self._types: list[list[Any] | None] = []  # of these variables, when last resolved

    def propagate(self, infer: Any) -> list[Any]:
        """Resolves the constraints in order; returns the errors, as numba does."""
        for constraint in self.constraints[len(self._variables) :]:
            self._variables.append([infer.typevars[name] for name in _names(constraint)])
            self._types.append(None)
        errors: list[Any] = []
        for k, constraint in enumerate(self.constraints):
            kinds = [variable.type for variable in self._variables[k]]
            if not kinds or self._types[k] != kinds:
                raised = _resolve(constraint, infer)
                self._types[k] = None if raised or not _is_precise(constraint) else kinds
                errors += raised
        return errors


def _is_precise(constraint: Any) -> bool:
    """Whether the result of a call has a known type, which does not depend on its variable's."""
    signature = getattr(constraint, "signature", None)
    return signature is None or signature.return_type.is_precise()


def _resolve(constraint: Any, infer: Any) -> list[Any]:
    if type(constraint) is typeinfer.Propagate:
        try:
            constraint(infer)
            return []
        except TypingError:
            pass  # numba describes it, below
    one = SimpleNamespace(constraints=[constraint])
    return typeinfer.ConstraintNetwork.propagate(one, infer)


def _names(constraint: Any) -> Iterator[str]:
    """The names of the variables whose types decide what ``constraint`` does; none if numba must
    resolve it each time."""
    kind = type(constraint)
    if kind is typeinfer.Propagate:
        yield constraint.src
    elif kind is typeinfer.GetAttrConstraint:
        yield constraint.value.name
    elif kind is typeinfer.SetItemConstraint:
        yield from (v.name for v in (constraint.target, constraint.index, constraint.value))
    elif kind in (typeinfer.CallConstraint, typeinfer.IntrinsicCallConstraint):
        if kind is typeinfer.CallConstraint:
            yield constraint.func
        yield from (variable.name for variable in constraint.args)
        yield from (variable.name for _, variable in constraint.kws or ())
        if constraint.vararg is not None:
            yield constraint.vararg.name


class _Inferer(typeinfer.TypeInferer):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.constraints = _Constraints()


#: ``typed_passes.type_inference_stage`` with our constraints.
type_inference_stage = with_globals(
    typed_passes.type_inference_stage, typeinfer=SimpleNamespace(TypeInferer=_Inferer)
)
