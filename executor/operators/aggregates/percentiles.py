"""Percentiles: their exact places among sorted values, and the values there."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cql.base.types import Kind
from cql.base.uninterruptible import load_module
from cql.executor.morsel.buffers import POOL
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.logical import AggregateCall

Array: TypeAlias = npt.NDArray[Any]


def fraction(literal: Literal) -> Fraction:
    """A percentage exactly as it is written."""
    if literal.type.kind is Kind.DECIMAL:
        return Fraction(int(literal.value or 0), 10**literal.type.scale)
    return Fraction(str(literal.value))


def places_of(call: AggregateCall, counts: Array) -> tuple[Array, Array]:
    """For each percentage of the call (a line each) and each count of sorted values, the place of
    the percentile among them: its integer and its fractional part, computed exactly."""
    shares = [fraction(p) for p in call.constants]
    above, below = [p.numerator for p in shares], [p.denominator for p in shares]
    low = np.empty((len(shares), counts.size), np.int64)
    share = np.empty(low.shape)
    places, interpolates = _kernel().places, call.fn == "percentile"
    if max(below) <= 1 << 53 and max(below) * int(counts.max(initial=0)) < 1 << 63:
        places(counts, np.array(above), np.array(below), interpolates, low, share)
    else:  # in Python's integers
        places.py_func(counts.tolist(), above, below, interpolates, low, share)
    return low, share


def percentiles(
    call: AggregateCall, groups: int, group: Array, words: Array
) -> tuple[Array, Array]:
    """The words of the results, a line for each group and a column for each percentage; and which
    groups have values. ``group``: the group, below ``groups``, of each of the ``words``, of which
    equal values have equal ones."""
    kernel, kind, descending = _kernel(), call.args[0].type, call.order[0][0]
    keys, first = POOL.empty(np.int64, words.size), POOL.empty(np.int64, groups + 1)
    kernel.keys_by_group(group, words, kind.is_fraction, descending, keys, first)
    counts = first[1:] - first[:-1]
    low, share = places_of(call, counts)
    found = np.empty((2, *low.shape), np.int64)
    order = _ascending(call.constants)
    kernel.words_at(keys, first, low, share, order, kind.is_fraction, descending, found)
    made = found[0]
    if call.fn == "percentile":
        a, b = found.view(np.float64).reshape(2, -1)
        made = kernel.between(a, b, share.reshape(-1)).view(np.int64).reshape(low.shape)
    return made.T, counts > 0


def between(a: Array, b: Array, share: Array) -> Array:
    """The doubles that lie the share ``share`` of the way from ``a`` to ``b``."""
    found: Array = _kernel().between(a, b, share)
    return found


def _kernel() -> Any:
    return load_module("cql.executor.kernels.windows.percentiles")


def _ascending(constants: Sequence[Literal]) -> Array:
    """The numbers of the percentages, from the least percentage to the greatest."""
    shares = [fraction(p) for p in constants]
    return np.array(sorted(range(len(shares)), key=shares.__getitem__), np.int64)
