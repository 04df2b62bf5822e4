"""Functions of the library that kernels call by a symbol: equal results, and no copy of their
code."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from cql.base.types import SMALLINT, signal, struct
from cql.executor.jit.decorators import njit
from cql.executor.jit.symbols import by_symbol
from cql.executor.kernels.signals.of_segments import values
from cql.executor.operators.signals.segment_store import SegmentStore, Timebase
from cql.planner.functions.signals import COMPLEX
from cql.planner.nodes.declaration_json import type_from_json, type_to_json
from tests.support.signals.stores import Unlimited

MEAN = by_symbol(values.segment_mean)
HAS = by_symbol(values.segment_has)


@njit("float64(int64, int64)")
def _kernel(g: int, i: int) -> Any:
    if not HAS(g, i):
        return -1.0
    return MEAN(g) * 2.0


def test_a_call_by_symbol() -> None:
    store = SegmentStore(Unlimited())
    g = store.make(store.number_of(Timebase(Fraction(10))), 0, np.arange(4, dtype=np.int16))
    assert _kernel(g, 3) == 3.0
    assert _kernel(g, 4) == -1.0
    store.release([g])
    store.close()


def test_the_code_is_not_copied() -> None:
    (text,) = _kernel.inspect_llvm().values()
    for function in (values.segment_mean, values.segment_has):
        name = f"{function.__module__}.{function.__name__}"
        assert any(line.startswith("declare") and name in line for line in text.splitlines())
    assert by_symbol(values.segment_mean) is MEAN


def test_types_of_samples_travel() -> None:
    for kind in (signal(SMALLINT), signal(COMPLEX), struct((("a", signal(COMPLEX)),))):
        assert type_from_json(type_to_json(kind)) == kind
