"""Random joins: predicates × bands × windows, over the streams of ``random_data``."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from unittest import mock

from cql.executor.operators.joins import asof_join, oop_join
from cql.executor.operators.relations import grouped, key_finder
from tests.support.fuzz.random_cases import IN_ORDER, Case, case_of
from tests.support.fuzz.random_shapes import Shape, _numbered, _Writer

SHAPES = 60
#: The number of shapes with inner joins; the others have each kind of join in turn.
INNER = 45
KINDS = ("LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")
#: The widths of bands in ticks.
_BANDS = (0, 1, 2, 5, 20, 100)


#: The syntax that the in-order joins do not support.
_NOT_IN_ORDER = re.compile(r"\b(LEFT|RIGHT|FULL|SEMI|ANTI|least)\b")


def legal_join_operators(made: Shape) -> tuple[str, ...]:
    """The legal values of ``SET join_operator``."""
    return ("oop_join",) if _NOT_IN_ORDER.search(made.text) else ("oop_join", *IN_ORDER)


@cache
def join_shape(index: int) -> Shape:
    rng = random.Random(f"join {index}")
    writer = _Writer(rng)
    how = KINDS[index % len(KINDS)] if index >= INNER else None
    return _numbered(index, _join(writer, how), writer)


def _join(writer: _Writer, how: str | None) -> str:
    rng = writer.rng
    left = writer.stream("a", "n")
    kind = left
    right = writer.stream("b", "c", "a") if left == "a" else writer.stream("n", "m")
    kind = "n" if left == "n" else "a"
    windows = how is None and rng.random() < 0.3
    l_item, r_item = (_windowed(writer, name, kind, windows) for name in (left, right))
    parts = _keys(writer)
    if not windows or rng.random() < 0.3:
        parts += _band(writer, kind)
    if rng.random() < 0.5:
        parts.append(_rest(writer))
    rng.shuffle(parts)
    condition = " AND ".join(parts) or "true"
    if how is not None:
        return _outer(writer, how, kind, left, right)
    if rng.random() < 0.5:
        source = f"FROM {l_item} l, {r_item} r WHERE {condition}"
    else:
        source = f"FROM {l_item} l JOIN {r_item} r ON {condition}"
    both = any("l.t" in part and "r.t" in part for part in parts)
    if (both or windows) and rng.random() < 0.12:  # joint punctuation closes the groups
        more = rng.choice(("", ", l.k"))
        having = rng.choice(("", " HAVING count(*) > 1"))
        return (
            f"SELECT l.t AS lt, r.t AS rt{more}, count(*) AS n, sum(r.w) AS a {source}"
            f" GROUP BY l.t, r.t{more}{having}"
        )
    if both and not windows and rng.random() < 0.15:
        end = rng.choice(("greatest", "least"))
        window = writer.window(kind, wa="m")
        return (
            f"SELECT count(*) AS n, sum(w) AS a, window_end FROM"
            f" (SELECT {end}(l.t, r.t) AS m, r.w {source}) AS j {window}"
        )
    timed = any("l.t" in part and "r.t" in part for part in parts) or windows
    if timed and not windows and rng.random() < 0.35:
        window = writer.window(kind, wa=rng.choice(("l.t", "r.t")))
        keys = rng.choice(("", "", "l.k", "r.s"))
        group = f" GROUP BY {keys}" if keys else ""
        shown = f"{keys}, " if keys else ""
        return (
            f"SELECT {shown}count(*) AS n, sum(l.q) AS a, max(r.w) AS b, window_end {window}"
            f" {source}{group}"
        )
    columns = rng.sample(("l.k", "r.k", "l.s", "r.s", "l.v", "r.w", "l.b", "r.x", "l.y", "r.g"), 3)
    more = ", ".join(f"{c} AS c{n}" for n, c in enumerate(columns))
    return f"SELECT l.t AS lt, r.t AS rt, {more} {source}"


def _outer(writer: _Writer, how: str, kind: str, left: str, right: str) -> str:
    """A join that also shows rows without a partner; its condition on pairs cannot fail."""
    rng = writer.rng
    parts = [*_keys(writer), *_band(writer, kind)]
    if not any("l.t" in part for part in parts):
        parts.append("l.t = r.t")
    if rng.random() < 0.5:
        parts.append(rng.choice(("l.v < r.v", "l.s <> r.s", "r.y > 0", "l.b", "upper(l.s) = r.s")))
    rng.shuffle(parts)
    source = f"FROM {left} l {how} JOIN {right} r ON {' AND '.join(parts)}"
    time = "r.t" if how == "RIGHT" else "l.t"
    if how != "FULL" and rng.random() < 0.4:
        columns = "count(*) AS n, sum(l.q) AS a"
        return f"SELECT {columns}, window_end {writer.window(kind, wa=time)} {source}"
    sides = ("l",) if how in ("LEFT SEMI", "LEFT ANTI") else ("l", "r")
    shown = [f"{side}.{c} AS {side}{c}" for side in sides for c in rng.sample("tksvwbxyg", 3)]
    where = rng.choice(("", "", " WHERE l.k IS NOT NULL"))
    return f"SELECT {', '.join(shown)} {source}{where}"


def _windowed(writer: _Writer, name: str, kind: str, windows: bool) -> str:
    if not windows:
        return name
    n = writer.rng.choice((0, 2, 10, 40))
    length = f"{500 * n} MILLISECONDS" if kind == "a" else str(n)
    return f"{name} {writer.pick(f'[RANGE {length}]', f'[RANGE {length}]', '[NOW]')}"


def _keys(writer: _Writer) -> list[str]:
    pairs = ("k", "s", "b", "q", "h", "g", "z")
    chosen = writer.rng.sample(pairs, writer.rng.choice((0, 1, 1, 2)))
    if writer.rng.random() < 0.15:
        return ["l.k = r.q"]
    return [writer.pick(f"l.{c} = r.{c}", f"r.{c} = l.{c}") for c in chosen]


def _band(writer: _Writer, kind: str) -> list[str]:
    low, high = writer.rng.choice(_BANDS), writer.rng.choice(_BANDS)

    def step(n: int) -> str:
        return f"INTERVAL '{500 * n}' MILLISECOND" if kind == "a" else str(n)

    return [
        *writer.rng.choice(
            (
                [f"l.t >= r.t - {step(low)}", f"l.t <= r.t + {step(high)}"],
                [f"r.t BETWEEN l.t - {step(low)} AND l.t + {step(high)}"],
                [f"l.t < r.t + {step(low)}", f"r.t - l.t < {step(high)}"],
                [f"abs(l.t - r.t) <= {step(high)}"],
                ["l.t = r.t"],
                ["l.t < r.t"],
                [f"l.t + {step(low)} > r.t"],
                [],
            )
        )
    ]


def _rest(writer: _Writer) -> str:
    return writer.pick(
        "l.v < r.v",
        "l.w <> r.w",
        "l.k IS NOT NULL",
        "r.y > 0",
        "l.b OR r.b",
        "(l.s = r.s) IS NOT TRUE",
        f"l.k < {writer.param('int')}",
        "l.s < r.s",
        "l.q + r.q > 3",
        f"l.q * r.q <> {writer.param('int')}",
        f"length(l.s) > {writer.param('int')}",
        "10 / r.q < 5",
        "coalesce(l.k, r.k, 0) >= 0",
    )


@contextlib.contextmanager
def rooms(number: int) -> Iterator[None]:
    """Makes the joins' tables small for two of three numbers, so that rows and keys also leave.

    Rows without a partner leave one or two at a time."""
    few = number % 3 > 0
    rows, piece = (2, 3) if few else (1 << 10, 1 << 13)
    with (
        mock.patch.multiple(oop_join, _ROWS=rows, _NEAR=8 * rows, _PADS=number % 2),
        mock.patch.object(key_finder, "_KEYS", rows),
        mock.patch.multiple(grouped, _GROUPS=rows, _PIECE=piece),
        mock.patch.object(asof_join, "_KEYS", rows),
    ):
        yield


def join_case(index: int, seed: int) -> Case:
    """A case of a join shape, without slack: slack derives watermarks from the order of rows, and
    the results of a join have no order."""
    case = case_of(replace(join_shape(index), index=f"join/{index}"), seed)
    settings = {k: v for k, v in case.settings.items() if k != "slack"}
    settings["join_punctuation"] = ("auto", "individual")[seed // 2 % 2]
    settings["join_flush"] = ("slow", "at_once")[seed // 3 % 2]
    piecewise = seed % 2 == 1 and all(stream.rows for stream in case.streams)
    return replace(case, settings=settings, piecewise=piecewise)
