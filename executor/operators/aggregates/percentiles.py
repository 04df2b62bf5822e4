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
    the percentile among them: its integer and its fractional part, computed exactly.

    Spark's percentile p of n values is at p * (n - 1); percentile_disc is the first value up to
    which at least the share p of the values lie."""
    low = np.empty((len(call.constants), counts.size), np.int64)
    share = np.zeros(low.shape)
    most = int(counts.max(initial=0))
    for line, p in enumerate(map(fraction, call.constants)):
        above, below = p.numerator, p.denominator
        exact = below <= 1 << 53 and below * (most + 1) < 1 << 63
        n = counts if exact else counts.astype(object)
        if call.fn == "percentile":
            scaled = above * (n - 1)
            low[line] = whole = scaled // below
            share[line] = (scaled - whole * below) / below
        else:
            low[line] = np.maximum((above * n - 1) // below, 0)
    return low, share


def between(a: Array, b: Array, share: Array) -> Array:
    """The doubles that lie the share ``share`` of the way from ``a`` to ``b``."""
    with np.errstate(invalid="ignore"):
        return np.where((a == b) | (share == 0), a, (1 - share) * a + share * b)


def percentiles(
    call: AggregateCall, groups: int, group: Array, words: Array
) -> tuple[Array, Array]:
    """The words of the results, a line for each group with values and a column for each percentage;
    and which groups have values. ``group``: the group, below ``groups``, of each of the ``words``,
    of which equal values have equal ones."""
    kernel = load_module("cql.executor.kernels.windows.order_statistics")
    doubles, (descending, _) = call.args[0].type.is_fraction, call.order[0]
    keys, first = POOL.empty(np.int64, words.size), POOL.empty(np.int64, groups + 1)
    kernel.keys_by_group(group, words, doubles, descending, keys, first)
    counts = first[1:] - first[:-1]
    some = counts > 0
    counts, first = counts[some], first[:-1][some]
    low, share = places_of(call, counts)
    found = np.empty((2, *low.shape), np.int64)
    order = _ascending(call.constants)
    kernel.words_at(keys, first, counts, low, share, order, doubles, descending, found)
    if call.fn == "percentile":
        a, b = found.view(np.float64)
        return between(a, b, share).view(np.int64).T, some
    return found[0].T, some


def _ascending(constants: Sequence[Literal]) -> Array:
    """The numbers of the percentages, from the least percentage to the greatest."""
    shares = [fraction(p) for p in constants]
    return np.array(sorted(range(len(shares)), key=shares.__getitem__), np.int64)
