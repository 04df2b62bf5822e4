"""Running functions, evaluated from all values so far, as plainly as possible."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from cql.planner.nodes.logical import Running
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_rows import Row, Run
from tests.reference.naive_values import BadRowError

Values = Sequence[float]
Numbers = Sequence[Values]


def running(node: Running, rows: Sequence[Row], run: Run) -> Iterator[Row]:
    """Each row with a value of each call. A row without a value is none of the samples.

    >>> from cql.base.types import DOUBLE
    >>> from cql.planner.nodes.logical import RunningCall
    >>> from tests.reference.naive_rows import Run
    >>> from tests.reference.naive_order import Order
    >>> from tests.reference.naive_tables import column, stream
    >>> s = stream("s", "t bigint, v double")
    >>> call = RunningCall("fir", column(s, "v"), DOUBLE, ((1.0, 0.5),))
    >>> rows = [Row((1, 4.0), (0, None)), Row((2, None), (1, None)), Row((3, 8.0), (2, None))]
    >>> found = running(Running(s, (call,), ("y",)), rows, Run({}, False, Order()))
    >>> [row.values for row in found]
    [(1, 4.0, 4.0), (2, None, None), (3, 8.0, 10.0)]
    """
    samples: list[list[float]] = [[] for _ in node.calls]
    good: list[Row] = []
    for row in rows:
        try:
            given = [value_of(call.value, row.values) for call in node.calls]
        except BadRowError as error:
            run.fails(error)
            continue
        for own, value in zip(samples, given, strict=True):
            if value is not None:
                own.append(float(value))
        known = (*(value is not None for value in given),)
        good.append(replace(row, values=(*row.values, known)))
    made = [iter(FUNCTIONS[c.fn](x, c.numbers)) for c, x in zip(node.calls, samples, strict=True)]
    for row in good:
        *values, known = row.values
        found = [next(of) if is_known else None for of, is_known in zip(made, known, strict=True)]
        marks = (*row.marks, *(None for _ in found))
        yield replace(row, values=(*values, *found), marks=marks)


def _fir(x: Values, numbers: Numbers) -> list[float]:
    (b,) = numbers
    return [sum(b[k] * x[n - k] for k in range(min(len(b), n + 1))) for n in range(len(x))]


def _iir(x: Values, numbers: Numbers) -> list[float]:
    b, a = numbers
    y: list[float] = []
    for n in range(len(x)):
        new = sum(b[k] * x[n - k] for k in range(min(len(b), n + 1)))
        y.append(new - sum(a[k] * y[n - k] for k in range(1, min(len(a), n + 1))))
    return y


def _sta_lta(x: Values, numbers: Numbers) -> list[float]:
    short, long = map(int, numbers[0])

    def mean(n: int, last: int) -> float:
        return math.fsum(v * v for v in x[n + 1 - last : n + 1]) / last

    return [
        0.0 if n + 1 < long or mean(n, long) == 0 else mean(n, short) / mean(n, long)
        for n in range(len(x))
    ]


def _recursive_sta_lta(x: Values, numbers: Numbers) -> list[float]:
    short, long = numbers[0]
    sta = lta = 0.0
    found = []
    for n, v in enumerate(x):
        if n > 0:
            sta += (v * v - sta) / short
            lta += (v * v - lta) / long
        found.append(sta / lta if n >= long and lta > 0 else 0.0)
    return found


def _cfar(x: Values, numbers: Numbers) -> list[bool]:
    omega, noise, found = numbers[0][0], list[float](), []
    for v in x:
        above = len(noise) > 1 and v > statistics.mean(noise) + omega * statistics.stdev(noise)
        found.append(above)
        if not above:
            noise.append(v)
    return found


def _trigger(x: Values, numbers: Numbers) -> list[bool]:
    on, off = numbers[0]
    found: list[bool] = []
    for v in x:
        found.append(v > (off if found and found[-1] else on))
    return found


FUNCTIONS: dict[str, Callable[[Values, Numbers], Sequence[float]]] = {
    "fir": _fir,
    "iir": _iir,
    "sta_lta": _sta_lta,
    "recursive_sta_lta": _recursive_sta_lta,
    "cfar": _cfar,
    "trigger": _trigger,
}
