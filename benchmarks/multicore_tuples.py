"""The parametric operators of the ordered-multicore paper (§7.1) as queries: stateless and
partitioned, with any cost, tuple size, selectivity and state.

A *tuple* of the paper is here a morsel; its number of rows sets the cost, and all its rows have one
key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cql
from benchmarks.figure import Check, Figure
from benchmarks.multicore_runs import Ends, Run, Sizes, in_turns, run, whole
from benchmarks.workloads import T0, Column
from cql.executor.kernels.lib.hashing import hash_end, hash_start

#: Terms of the expensive expression, and its approximate nanoseconds per row.
TERMS, ROW_COST = 40, 1050.0
EXPENSIVE = " + ".join(f"pow(abs(sin(x + {k})) + 1e0, 1.5e0)" for k in range(TERMS))
#: Factors applied to each parameter.
FACTORS = (1, 8, 64)
_PARAMETERS = (
    '"The per-tuple processing cost, input tuple size, state size (for partitioned stateful) and'
    " selectivity can be varied by initializing these parametric operators with appropriate"
    ' parameters." (§7.1)'
)
#: Tasks: the expensive filter, two light tasks (a projection, a count), the last projection.
STATELESS_QUERY = f"""
SELECT count(*) AS n FROM (SELECT ts, x FROM s WHERE {EXPENSIVE} > 0)
[RANGE 1 DAY SLIDE 1 DAY WA ts]"""
#: Tasks: split by key, the expensive aggregate, the last projection.
PARTITIONED_QUERY = f"""
SELECT k, sum({EXPENSIVE}) AS y FROM s [RANGE 1 DAY SLIDE 1 DAY WA ts] GROUP BY k"""
#: Each row is given to ``SELECTIVITY`` windows, and so becomes as many rows: a morsel of as many
#: rows becomes as many morsels of one row each, ``SELECTIVITY`` times. They have a key each.
SELECTIVITY = 50
SELECTIVE_QUERY = f"""
SELECT k, sum({EXPENSIVE}) AS y FROM (
    SELECT ts, k, x
    FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '{SELECTIVITY}' SECOND))
) [RANGE 1 DAY SLIDE 1 DAY WA ts] GROUP BY k"""


def rows_for(cost: float) -> int:
    """Rows per morsel that take about ``cost`` nanoseconds. A power of two, so that the blocks of
    the source are cut into whole morsels; bounded, so that adaptive morsel sizes do not cut it."""
    return int(2 ** min(max(round(np.log2(cost / ROW_COST)), 0), 11))


def tuples(keys: Column, rows: int, width: int = 0) -> Any:
    """A table of tuples, ``rows`` rows per key in ``keys``: ``ts`` (constant, so that no window
    closes before the end), ``k``, ``x``, and ``width`` more columns."""
    import pyarrow as pa

    n = len(keys) * rows
    x = np.random.default_rng(1).random(n)
    ts = pa.array(np.full(n, T0)).view(pa.timestamp("us", "UTC"))
    more = {f"c{i}": x + i for i in range(width)}
    return pa.table({"ts": ts, "k": np.repeat(keys, rows), "x": x, **more})


def keys_of(parts: int) -> Column:
    """For each of ``parts`` partitions, a key that the engine assigns to the partition."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < parts:
        part = ((int(hash_end(np.uint64(hash_start(key)))) >> 32 & 0x7FFFFFFF) * parts) >> 31
        found.setdefault(part, key)
        key += 1
    return np.array([found[q] for q in range(parts)])


def session_of(table: Any) -> cql.Session:
    session = cql.connect(spark=False)
    session.create_stream("s", table, ordered_by="ts")
    return session


@dataclass(slots=True)
class Operator:
    """A query over tuples of ``keys``, each of ``rows`` rows (and ``width`` more columns).
    ``right`` says whether all runs have given one answer."""

    sizes: Sizes
    text: str
    keys: Column
    rows: int
    width: int = 0
    right: bool = True
    _answer: Any = field(default=None)

    def over(self, keys: Column) -> Operator:
        """The same operator over other keys."""
        return Operator(self.sizes, self.text, keys, self.rows, self.width)

    def run(self, ends: Ends = whole, **settings: Any) -> Run:
        return in_turns(self.sizes.times, {None: self.trial(ends, **settings)})[None]

    def trial(self, ends: Ends = whole, **settings: Any) -> Callable[[], Run]:
        """A function that runs the query once."""

        def once() -> Run:
            table = tuples(self.keys, self.rows, self.width)
            chosen = {"morsel_rows": self.rows, **settings}
            with session_of(table) as session:
                made = run(session, self.text, len(table), ends, **chosen)
            self._answer = made.answer if self._answer is None else self._answer
            self.right &= made.answer.equals(self._answer)
            return made

        return once


def count(sizes: Sizes, cost: float) -> int:
    """Tuples per run."""
    return max(100, round(sizes.seconds * 1e9 / cost))


def cost_of(made: Run) -> float:
    """Nanoseconds per tuple at the first operator."""
    return made.uses[0].busy / made.uses[0].inputs


# -- parameters ------------------------------------------------------------------------------------


def parameters(sizes: Sizes) -> Figure:
    """The effect of each parameter on one worker, relative to the parameter's smallest value."""
    few = max(50, round(sizes.seconds * 4000))
    zeros = np.zeros(few, np.int64)
    cost, size, selectivity, state = ([] for _ in range(4))
    right = True
    for factor in FACTORS:
        one = Operator(sizes, STATELESS_QUERY, zeros, factor)
        cost.append(cost_of(one.run(workers=1)))
        names = [f"c{i}" for i in range(factor)]
        text = f"""SELECT sum({" + ".join(names)}) AS n FROM (
                   SELECT ts, {", ".join(names)} FROM s WHERE x >= 0e0)
                   [RANGE 1 DAY SLIDE 1 DAY WA ts]"""
        wide = Operator(sizes, text, zeros, 1024, width=factor)
        size.append(cost_of(wide.run(workers=1)))
        text = SELECTIVE_QUERY.replace(f"'{SELECTIVITY}' SECOND", f"'{factor}' SECOND")
        many = Operator(sizes, text, zeros, 1)
        use = many.run(workers=1, partitions=1).uses[0]
        selectivity.append(use.outputs / use.inputs)
        keys = np.arange(few * 64) % (few * factor)
        grouped = Operator(sizes, PARTITIONED_QUERY, keys, 1)
        state.append(float(grouped.run(workers=1, partitions=1).answer.num_rows))
        right &= one.right and wide.right and many.right and grouped.right
    series = {
        "cost (rows)": cost,
        "tuple size (columns)": size,
        "selectivity (windows)": selectivity,
        "state (keys)": state,
    }
    series = {name: [v / values[0] for v in values] for name, values in series.items()}
    grows = min(values[-1] for values in series.values())
    check = Check("the least that a parameter changes by", grows, "at least 8", grows >= 8)
    return Figure(
        "multicore-parameters",
        "The parametric operators (§7.1) as queries: what their parameters change",
        (_PARAMETERS,), "parameter, times its smallest value", FACTORS,
        "multiple", series, [check], right, log_x=True,
    )  # fmt: skip
