"""Random joins of streams with tables, and of tables: kinds × keys × predicates × operators above,
over the streams and tables of ``random_data``."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

from tests.support.fuzz.random_cases import Case, case_of
from tests.support.fuzz.random_joins import _keys, _rest
from tests.support.fuzz.random_shapes import Shape, _numbered, _Writer

SHAPES = 40
_COLUMNS = ("l.k", "r.k", "l.s", "r.s", "l.v", "r.w", "l.b", "r.x", "l.y", "r.g", "r.t", "r.z")
#: Conditions that cannot fail, for joins that keep rows without a partner.
_SAFE = (
    "l.v < r.v",
    "l.w <> r.w",
    "r.y > 0",
    "(l.b OR r.b)",
    "l.k IS NOT NULL",
    "length(l.s) > 1",
    "upper(r.s) = r.s",
    "l.v < r.w",
)


@cache
def table_shape(index: int) -> Shape:
    rng = random.Random(f"table {index}")
    writer = _Writer(rng)
    return _numbered(index, _join(writer), writer)


def _join(writer: _Writer) -> str:
    rng = writer.rng
    left = writer.stream("a", "a", "n", "d", "u", "o")
    right = writer.stream("u", "o")
    kind = rng.choice(("", "", "", "LEFT ", "LEFT ", "SEMI ", "ANTI "))
    parts = _keys(writer)
    rng.shuffle(parts)
    if kind:
        parts += rng.sample(_SAFE, rng.choice((0, 0, 1, 2)))
    elif rng.random() < 0.5 or not parts:
        parts.append(_rest(writer))
    condition = " AND ".join(parts) or "true"
    shown = tuple(c for c in _COLUMNS if c[0] == "l" or kind not in ("SEMI ", "ANTI "))
    if kind == "":
        source = rng.choice(
            (
                f"{left} l JOIN {right} r ON {condition}",
                f"{right} r JOIN {left} l ON {condition}",
                f"{left} l, {right} r WHERE {condition}",
            )
        )
    elif kind == "LEFT " and rng.random() < 0.3:
        source = f"{right} r RIGHT JOIN {left} l ON {condition}"
    else:
        source = f"{left} l {kind}JOIN {right} r ON {condition}"
    if "WHERE" not in source and rng.random() < 0.3:  # a star join with a second table
        more = writer.stream("u", "o")
        other = rng.choice(("k", "q", "s"))
        source += f" {rng.choice(('', 'LEFT '))}JOIN {more} m ON l.{other} = m.{other}"
        shown = (*shown, "m.v", "m.t", "m.s")
    if left in "and" and rng.random() < 0.4:
        return _windowed(writer, left, source, shown)
    columns = rng.sample(shown, 3)
    more = ", ".join(f"{c} AS c{n}" for n, c in enumerate(columns))
    if "WHERE" not in source and rng.random() < 0.2:
        source += f" WHERE {rng.choice(('l.v > 0', 'l.k IS NULL', 'length(l.s) < 3'))}"
    return f"SELECT l.t AS lt, {more} FROM {source}"


def _windowed(writer: _Writer, left: str, source: str, shown: tuple[str, ...]) -> str:
    keys = writer.rng.choice(("", "l.k", "r.s" if "r.s" in shown else "l.s"))
    group = f" GROUP BY {keys}" if keys else ""
    what = f"{keys}, " if keys else ""
    value = "max(r.w)" if "r.w" in shown else "max(l.w)"
    calls = f"{what}count(*) AS n, sum(l.q) AS a, {value} AS b, window_end"
    if writer.rng.random() < 0.5:
        window = writer.window(left)
        return f"SELECT {calls} FROM {source.replace(f'{left} l', f'{left} {window} l')}{group}"
    return f"SELECT {calls} {writer.window(left, wa='l.t')} FROM {source}{group}"


def table_case(index: int, seed: int) -> Case:
    case = case_of(replace(table_shape(index), index=f"table/{index}"), seed)
    settings = {k: v for k, v in case.settings.items() if k != "slack"}
    piecewise = seed % 2 == 1 and all(stream.rows for stream in case.streams)
    return replace(case, settings=settings, piecewise=piecewise)
