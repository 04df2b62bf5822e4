"""Random joins of relations: kinds × conditions × windows × operators above, over the streams of
``random_data``."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

from tests.support.fuzz.random_cases import Case, case_of
from tests.support.fuzz.random_shapes import Shape, _numbered, _Writer

SHAPES = 90
#: Shapes of ``a [NOW]`` with ``b [PARTITION BY k ROWS n]``.
LATEST_SHAPES = 24
#: Maximal rows of a stream; the reference evaluates every pair of rows at every instant.
MOST_ROWS = 40
_KINDS = ("", "", "", "LEFT", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI")
_COLUMNS = ("l.k", "r.k", "l.s", "r.s", "l.v", "r.w", "l.b", "r.x", "l.y", "r.g")


@cache
def relation_join_shape(index: int) -> Shape:
    rng = random.Random(f"relation join {index}")
    writer = _Writer(rng)
    return _numbered(index, _query(writer), writer)


def _query(writer: _Writer) -> str:
    rng = writer.rng
    kind = rng.choice(("a", "n"))
    join = rng.choice(_KINDS)
    left, right = _side(writer, kind, windowed=True), _side(writer, kind, windowed=bool(join))
    if rng.random() < 0.3:
        left, right = right, left
    parts = _parts(writer)
    other = "l" if join in ("SEMI", "ANTI") else "r"  # the side that the select list may also show
    where = ""
    if not join and rng.random() < 0.4:
        source = f"{left} l, {right} r"
        where = " WHERE " + " AND ".join(parts) if parts else ""
    elif rng.random() < 0.15:
        source = f"{left} l {join} JOIN {right} r USING ({rng.choice(('k', 's', 'k, b'))})"
    else:
        source = f"{left} l {join} JOIN {right} r ON {' AND '.join(parts) or 'true'}"
        if rng.random() < 0.3:
            where = " WHERE " + writer.pick(
                "l.q > 0", f"{other}.q < 5", f"{other}.k IS NULL", f"l.y > {other}.h"
            )
    if rng.random() < 0.2 and "USING" not in source and "," not in source:
        third = _side(writer, kind, windowed=True)
        on = writer.pick("m.k = l.k", f"m.s = {other}.s", f"m.k = {other}.k AND m.q < l.q")
        source += f" {rng.choice(('', 'LEFT', 'FULL'))} JOIN {third} m ON {on}"
    return _above(writer, f"FROM {source}{where}", other, using="USING" in source)


def _side(writer: _Writer, kind: str, *, windowed: bool) -> str:
    rng = writer.rng
    name = writer.stream("a", "b", "c") if kind == "a" else writer.stream("n", "m")
    n = rng.choice((0, 2, 10, 40))
    length = f"{500 * n} MILLISECONDS" if kind == "a" else str(n)
    windows = [
        f"[RANGE {length}]",
        f"[RANGE {length}]",
        "[NOW]",
        f"[ROWS {rng.choice((1, 2, 5))}]",
        f"[PARTITION BY {rng.choice(('k', 's', 'k, b'))} ROWS {rng.choice((1, 2))}]",
    ]
    if not windowed:
        windows += ["[RANGE UNBOUNDED]", "", ""]
    window = rng.choice(windows)
    if rng.random() < 0.1:
        return (
            f"(SELECT k, max(s) AS s, sum(q) AS q, min(b) AS b, count(*) AS v, max(w) AS w,"
            f" max(x) AS x, max(y) AS y, max(h) AS h, min(g) AS g"
            f" FROM {name} {window or '[NOW]'} GROUP BY k)"
        )
    if rng.random() < 0.15:
        test = writer.pick("q > -5", "k IS NOT NULL", "s <> ''")
        return f"(SELECT * FROM {name} {window} WHERE {test})"
    return f"{name} {window}"


def _parts(writer: _Writer) -> list[str]:
    rng = writer.rng
    pairs = ("k", "k", "s", "b", "q", "g")
    chosen = dict.fromkeys(rng.sample(pairs, rng.choice((0, 1, 1, 1, 2))))
    parts = [writer.pick(f"l.{c} = r.{c}", f"r.{c} = l.{c}") for c in chosen]
    if rng.random() < 0.1:
        parts = ["length(l.s) = r.q % 7"]
    if rng.random() < 0.5 or not parts:
        parts.append(
            writer.pick(
                "l.v < r.v",
                "l.w <> r.w",
                "l.k IS NOT NULL",
                "r.y > 0",
                "l.y > 0",
                "l.b OR r.b",
                "(l.s = r.s) IS NOT TRUE",
                "l.s < r.s",
                "l.s <=> r.s",
                "length(l.s) > r.q",
                "l.x < r.y",
                "r.s LIKE 'a%'",
                f"l.k < {writer.param('int')}",
                f"coalesce(l.s, '') = {writer.param('string')}",
            )
        )
    rng.shuffle(parts)
    return parts


def _above(writer: _Writer, source: str, other: str, *, using: bool) -> str:
    rng = writer.rng
    columns = [c.replace("r.", f"{other}.") for c in _COLUMNS if not using or c[2] not in "ksb"]
    some = rng.sample(columns, 2)
    listed = ", ".join(f"{c} AS c{n}" for n, c in enumerate(some))
    choice = rng.random()
    if choice < 0.2:
        calls = writer.pick("count(*) AS n, sum(l.q) AS q", f"max({other}.s) AS m, avg(l.q) AS a")
        return f"SELECT {calls} {source}"
    if choice < 0.4:
        key = some[0]
        return (
            f"SELECT {key} AS key, count(*) AS n, count(DISTINCT {other}.q) AS d, max(l.v) AS m,"
            f" sum({other}.q) AS q {source} GROUP BY {key}"
        )
    if choice < 0.5:
        return f"SELECT DISTINCT {listed} {source}"
    if choice < 0.6:
        operator = writer.pick("ISTREAM", "DSTREAM", "RSTREAM")
        if "GROUP BY" in source:
            operator = "ISTREAM"
        return f"SELECT {operator}({listed}) {source}"
    if choice < 0.65:
        one = f"SELECT {listed} {source}"
        return f"{one} {writer.pick('EXCEPT', 'INTERSECT ALL')} {one}"
    if choice < 0.7:
        inner = f"SELECT {some[0]} AS key, count(*) AS n {source} GROUP BY {some[0]}"
        return f"SELECT n, count(*) AS c FROM ({inner}) GROUP BY n"
    return f"SELECT {listed} {source}"


@cache
def latest_rows_shape(index: int) -> Shape:
    rng = random.Random(f"latest rows {index}")
    writer = _Writer(rng)
    return _numbered(index, _latest_rows(writer), writer)


def _latest_rows(writer: _Writer) -> str:
    """Each row with the last rows of its key: at the top of a query, or below a window."""
    rng = writer.rng
    names = rng.choice((("a", "b", "c"), ("n", "m")))
    left, right = (writer.stream(*names) for _ in range(2))
    by = rng.choice((["k"], ["s"], ["k", "b"]))
    join = rng.choice(("", "", "LEFT "))
    window = f"[PARTITION BY {', '.join(by)} ROWS {rng.choice((1, 2, 3, 5))}]"
    parts = [f"l.{c} = r.{c}" for c in by]
    if not join and rng.random() < 0.5:
        parts.append(writer.pick("l.q < r.q", "l.s <> r.s", "r.y > 0", "l.t >= r.t"))
    source = f"{left} [NOW] l {join}JOIN {right} {window} r ON {' AND '.join(parts)}"
    if not join and rng.random() < 0.3:
        source += f" WHERE {writer.pick('l.q + r.q > 3', 'r.s IS NOT NULL')}"
    listed = ", ".join(f"{c} AS c{n}" for n, c in enumerate(rng.sample(_COLUMNS, 3)))
    choice = rng.random()
    if choice < 0.4:
        return f"SELECT ISTREAM(l.t AS at, {listed}) FROM {source}"
    if choice < 0.6:
        return f"SELECT {listed} FROM {source}"
    length = "4 SECONDS" if "a" in names else "8"
    inner = f"SELECT ISTREAM(l.t AS at, l.k AS k, r.q AS q) FROM {source}"
    return (
        f"SELECT k, count(*) AS n, sum(q) AS q FROM ({inner}) [RANGE {length} SLIDE {length}]"
        " GROUP BY k"
    )


def latest_rows_case(index: int, seed: int) -> Case:
    return _few_rows(replace(latest_rows_shape(index), index=f"latestrows/{index}"), seed)


def relation_join_case(index: int, seed: int) -> Case:
    """A case of a relation join shape, with at most ``MOST_ROWS`` rows per stream."""
    return _few_rows(replace(relation_join_shape(index), index=f"relationjoin/{index}"), seed)


def _few_rows(shape: Shape, seed: int) -> Case:
    case = case_of(shape, seed)
    kept = ("runtime", "workers", "morsel_rows", "fuse")
    settings = {k: v for k, v in case.settings.items() if k in kept}
    streams = tuple(
        replace(s, rows=s.rows[:MOST_ROWS], splits=tuple(min(c, MOST_ROWS) for c in s.splits))
        for s in case.streams
    )
    streams = tuple(
        replace(s, splits=tuple(min(c, len(s.rows)) for c in s.splits)) for s in streams
    )
    piecewise = seed % 2 == 1 and all(stream.rows for stream in streams)
    return replace(case, settings=settings, streams=streams, piecewise=piecewise, keep_bad=True)
