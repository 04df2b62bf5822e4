"""User-defined aggregates, in Python and compiled, and random cases over them."""

# ruff: noqa: N801, N805
from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from typing import Any

import cql
from tests.support.fuzz.random_cases import (
    MORSELS,
    Case,
    draw_piecewise,
    operator_settings,
    runtime_settings,
)
from tests.support.fuzz.random_data import Stream, random_stream
from tests.support.fuzz.random_shapes import Shape


# Each class has the name of its SQL function; its methods take no self.
class own_sum:
    """A sum."""

    def init():
        return 0, 0

    def update(state, q: int):
        return state[0] + 1, state[1] + q

    def merge(a, b):
        return a[0] + b[0], a[1] + b[1]

    def retract(state, q):
        return state[0] - 1, state[1] - q

    def final(state) -> int:
        n, total = state
        return total if n else None


class own_spread:
    """The greatest less the least; merges, does not retract."""

    def init():
        return math.inf, -math.inf

    def update(state, y: float):
        if y != y or abs(y) == math.inf:
            return state
        low, high = state
        return min(low, y), max(high, y)

    def merge(a, b):
        return min(a[0], b[0]), max(a[1], b[1])

    def final(state) -> float:
        low, high = state
        return high - low if high >= low else None


class own_pairs:
    """Of two arguments; a boolean in the state."""

    def init():
        return 0, False

    def update(state, k: int, q: int):
        return (state[0] + k * q) % 1_000_003, state[1] or q > 15

    def merge(a, b):
        return (a[0] + b[0]) % 1_000_003, a[1] or b[1]

    def final(state) -> int:
        return -state[0] if state[1] else state[0]


class own_odd:
    """Without merge and retract."""

    def init():
        return (False,)

    def update(state, q: int):
        return (state[0] != (q % 2 == 1),)

    def final(state) -> bool:
        return state[0]


class own_nulls:
    """Sees NULL."""

    def init():
        return (0,)

    def update(state, v):
        return (state[0] + (v is None),)

    def merge(a, b):
        return (a[0] + b[0],)

    def retract(state, v):
        return (state[0] - (v is None),)

    def final(state):
        return state[0]


def in_python(made: type) -> type:
    """The aggregate with methods that are not compiled (``functools.partial``)."""
    roles = ("init", "update", "merge", "retract", "final")
    found = {r: functools.partial(getattr(made, r)) for r in roles if hasattr(made, r)}
    return type(made.__name__, (), found)


KINDS: dict[type, tuple[Any, Any]] = {
    own_sum: (["bigint"], "bigint"),
    own_spread: (["double"], "double"),
    own_pairs: (["bigint", "bigint"], "bigint"),
    own_odd: (["bigint"], "boolean"),
}


COMPILED = [cql.aggregate(made) for made in KINDS]


IN_PYTHON = [
    cql.aggregate(returns, args=args)(in_python(made)) for made, (args, returns) in KINDS.items()
]


NULLS = cql.aggregate("bigint", args=["int"], null_handling="call")(own_nulls)


#: Pairs of a query and the names of its streams.
QUERIES = (
    ("SELECT own_sum(q) AS a, own_spread(y) AS b, count(*) AS c FROM n", "n"),
    ("SELECT s, own_sum(q) AS a, own_odd(q) AS b FROM a GROUP BY s", "a"),
    ("SELECT own_sum(q) AS a, own_pairs(k, q) AS b, sum(q) AS c, window_end"
     " FROM n [RANGE 20 SLIDE 20]", "n"),
    ("SELECT k, own_sum(q) FILTER (WHERE b) AS a, own_spread(y) AS c, window_start"
     " FROM a [RANGE 6 SECONDS SLIDE 1 SECONDS] GROUP BY k", "a"),
    ("SELECT own_sum(q) AS a, own_pairs(k, q) AS b, own_nulls(v) AS d, window_end"
     " FROM n [RANGE 30 SLIDE 2]", "n"),
    ("SELECT k, own_sum(DISTINCT q) AS a, own_nulls(v) AS b, window_end"
     " FROM m [RANGE 12 SLIDE 3] GROUP BY k", "m"),
    ("SELECT s, own_odd(q) AS a, own_sum(q) AS b, max(q) AS c, window_end"
     " FROM d [RANGE 9 DAYS SLIDE 2 DAYS] GROUP BY s", "d"),
    ("SELECT k, own_sum(q) AS a, own_spread(y) AS b, last(s) AS c, window_start, window_end"
     " FROM n [SESSION 10, WA t] GROUP BY k", "n"),
    ("SELECT own_sum(q) AS a, own_spread(y) AS b, window_end FROM TABLE(CUMULATE(TABLE n,"
     " DESCRIPTOR(t), 6, 18)) GROUP BY window_start, window_end", "n"),
    ("SELECT own_sum(q) AS a, own_odd(q) AS b, window_end FROM TABLE(CUMULATE(TABLE n,"
     " DESCRIPTOR(t), 6, 18)) GROUP BY window_start, window_end", "n"),
    ("SELECT own_sum(q) AS a, own_pairs(k, q) AS b, window_end"
     " FROM a UNION b AS u [RANGE 7 SECONDS, SLIDE 3 SECONDS, WA t]", "ab"),
    ("SELECT own_sum(a) AS a, window_end FROM (SELECT own_sum(q) AS a, window_time FROM n"
     " [RANGE 6 SLIDE 2]) AS i [RANGE 20 SLIDE 10]", "n"),
    ("SELECT ISTREAM(own_sum(q), own_nulls(v), count(*)) FROM n [RANGE 7]", "n"),
    ("SELECT DSTREAM(k, own_sum(q)) FROM n [ROWS 5] GROUP BY k", "n"),
    ("SELECT ISTREAM(own_spread(y), own_sum(q)) FROM m [RANGE 9]", "m"),
    ("SELECT ISTREAM(own_sum(a), own_spread(CAST(a AS DOUBLE))) FROM"
     " (SELECT k, own_sum(q) AS a FROM n [RANGE 8] GROUP BY k)", "n"),
    ("SELECT s, own_sum(q) FILTER (WHERE b) AS a FROM m [PARTITION BY k ROWS 3] GROUP BY s", "m"),
    ("SELECT own_odd(q) AS a, own_sum(q) AS b FROM n [RANGE UNBOUNDED]", "n"),
)  # fmt: skip


def aggregate_case(text: str, names: str, functions: Sequence[Any], rng: random.Random) -> Case:
    settings: dict[str, Any] = runtime_settings(rng) | {"fuse": rng.random() < 0.7}
    morsel = rng.choice(MORSELS)
    if morsel is not None:
        settings["morsel_rows"] = morsel
    shape = Shape(0, text, tuple(names), ())
    if "own_odd" not in text:
        settings |= operator_settings(rng, shape)
    streams = tuple(_some_rows(rng, name) for name in names)
    piecewise = draw_piecewise(rng, shape, streams)
    return Case(f"0:{text}", shape, streams, {}, True, settings, (*functions, NULLS), piecewise)


def _some_rows(rng: random.Random, name: str) -> Stream:
    while not (stream := random_stream(rng, name)).rows:
        pass
    return stream
