"""Running functions, evaluated from all values so far, as plainly as possible."""

from __future__ import annotations

import math
import statistics
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np

from cql.base.types import Kind
from cql.planner.nodes.logical import Process, Running, samples_of
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_rows import Row, Run
from tests.reference.naive_signals import NaiveSignal
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
    good: list[tuple[Row, list[Any]]] = []
    for row in rows:
        try:
            given = [value_of(call.value, row.values) for call in node.calls]
        except BadRowError as error:
            run.fails(error)
            continue
        good.append((row, given))
    runs: list[int | None] = [0 for _ in good]
    signal = samples_of(node.input)
    if node.time is not None and signal is not None:
        runs = in_runs([row.values[node.time] for row, _ in good], signal.rate)
    made = [
        computed(call.fn, [given[k] for _, given in good], call.numbers, runs)
        for k, call in enumerate(node.calls)
    ]
    for k, (row, _) in enumerate(good):
        found = (values[k] for values in made)
        marks = (*row.marks, *(None for _ in made))
        yield replace(row, values=(*row.values, *found), marks=marks)


class NaiveState(SimpleNamespace):
    """The state of a key of an operator of the user."""

    def __init__(self, node: Process) -> None:
        super().__init__(cleared=False)
        self._node = node
        self._zero()

    def _zero(self) -> None:
        for f in self._node.function.state:
            setattr(self, f.name, np.zeros(f.shape, f.dtype) if f.shape else 0)

    def clear(self) -> None:
        self._zero()
        self.cleared = True


class _Emitted(list[list[Any]]):
    """Emitted rows; called, it takes one more, which has columns called ``names``."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names

    def __call__(self, *values: Any, **named: Any) -> None:
        self.append([*values, *(named.get(name) for name in self._names[len(values) :])])


def processed(node: Process, rows: Sequence[Row]) -> Iterator[Row]:
    """The rows that an operator of the user emits. Its rows have numbers, texts, instants and
    segments, and what it emits are numbers and texts."""
    own, states = node.function, dict[Any, NaiveState]()
    names, arguments = [name for name, _ in own.returns], [a.value for a in node.arguments]
    kind_of_row = namedtuple("kind_of_row", node.names, rename=True)

    def given_of(row: Row, c: int) -> Any:
        value, kind = row.values[c], node.input.schema[c].type.kind
        if kind is Kind.TIMESTAMP:
            return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=value)
        return np.array(value) if kind is Kind.SIGNAL else value

    def made_of(row: Row, emitted: _Emitted) -> Iterator[Row]:
        for values in emitted:
            every, marks = (*row.values, *values), (*row.marks, *(None for _ in values))
            yield replace(
                row,
                values=tuple(every[c] for c in node.columns),
                marks=tuple(marks[c] for c in node.columns),
            )

    for row in rows:
        emitted = _Emitted(names)
        key = tuple(row.values[c] for c in node.partition)
        state = states.setdefault(key, NaiveState(node))
        state.cleared = False
        given = kind_of_row(*(given_of(row, c) for c in node.given))
        own.function(state, given, emitted, *arguments)
        if state.cleared:
            del states[key]
        yield from made_of(row, emitted)
    for key, state in states.items() if own.finish is not None else ():
        emitted = _Emitted(names)
        own.finish(state, emitted, *arguments)
        yield from made_of(_last(node, rows, key), emitted)


def _last(node: Process, rows: Sequence[Row], key: Sequence[Any]) -> Row:
    """A row of the end of the input: the ``key``, and the greatest value of each other column with
    a watermark; no watermark here is above it."""
    live = node.input.progressing
    values: list[Any] = [None for _ in node.input.schema]
    marks: list[float | None] = list(values)
    for c in live:
        values[c] = max((r.values[c] for r in rows if r.values[c] is not None), default=None)
        marks[c] = max((m for r in rows if (m := r.marks[c]) is not None), default=None)
    for c, value in zip(node.partition, key, strict=True):
        values[c] = value
    return Row(tuple(values), tuple(marks), rows[-1].arrival)


def in_runs(
    times: Sequence[int | None], rate: Fraction, tolerance: int | None = None
) -> list[int | None]:
    """The run of each sample of a signal; None: it is too early, or has no time. ``tolerance`` in
    microseconds."""
    signal, found = NaiveSignal(rate, True, tolerance), list[int | None]()
    for time in times:
        before = signal.samples
        signal.read([(time, (0,))])
        found.append(len(signal.runs) - 1 if signal.samples > before else None)
    return found


def computed(
    fn: str, x: Sequence[float | None], numbers: Numbers, runs: Sequence[int | None]
) -> list[Any]:
    """The values of a function, which begins anew with each run."""
    found: list[Any] = [None for _ in x]
    for run in {r for r in runs if r is not None}:
        places = [k for k, r in enumerate(runs) if r == run and x[k] is not None]
        samples = [float(v) for k in places if (v := x[k]) is not None]
        for k, value in zip(places, FUNCTIONS[fn](samples, numbers), strict=True):
            found[k] = value
    return found


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
