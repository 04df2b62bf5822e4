"""Random ASOF joins and temporal joins: keys × inequality × tolerance × operators above, over the
streams and tables of ``random_data``."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

from tests.support.fuzz.random_cases import Case, case_of
from tests.support.fuzz.random_joins import _keys
from tests.support.fuzz.random_shapes import Shape, _numbered, _Writer

SHAPES = 40
_COLUMNS = ("l.k", "r.k", "l.s", "r.s", "l.v", "r.w", "l.b", "r.x", "l.y", "r.g", "r.z")


@cache
def asof_shape(index: int) -> Shape:
    rng = random.Random(f"asof {index}")
    writer = _Writer(rng)
    return _numbered(index, _join(writer), writer)


def _join(writer: _Writer) -> str:
    rng = writer.rng
    left = writer.stream("a", "a", "n", "n", "u")
    right = writer.stream(*(("b", "c", "a", "u") if left in "au" else ("n", "m", "o")))
    kind = rng.choice(("", "LEFT "))
    keys = _keys(writer)
    source = rng.choice((_on, _on, _on, _using, _match, _temporal))(writer, left, right, kind, keys)
    if left != "u" and rng.random() < 0.3:
        window = writer.window(left, wa="l.t")
        group = rng.choice(("", "l.k", "r.s"))
        shown, by = (f"{group}, ", f" GROUP BY {group}") if group else ("", "")
        return (
            f"SELECT {shown}count(*) AS n, sum(l.q) AS a, max(r.w) AS b, window_end {window}"
            f" FROM {source}{by}"
        )
    columns = rng.sample(_COLUMNS, 3)
    more = ", ".join(f"{c} AS c{n}" for n, c in enumerate(columns))
    return f"SELECT l.t AS lt, r.t AS rt, {more} FROM {source}"


def _on(writer: _Writer, left: str, right: str, kind: str, keys: list[str]) -> str:
    rng = writer.rng
    op = rng.choice((">=", ">", "<=", "<"))
    parts = [*keys, writer.pick(f"l.t {op} r.t", f"r.t {_MIRRORED[op]} l.t")]
    later = op[0] == ">"
    if rng.random() < 0.5:
        n = rng.choice((0, 1, 2, 5, 20, 100))
        step = f"INTERVAL '{500 * n}' MILLISECOND" if left in "au" else str(n)
        far, near = ("l.t", "r.t") if later else ("r.t", "l.t")
        parts.append(writer.pick(f"{far} - {near} <= {step}", f"abs(l.t - r.t) <= {step}"))
    if rng.random() < 0.3:
        parts.append(writer.pick("r.v > 0", "length(r.s) > 1", "r.k IS NOT NULL"))
    if not kind and rng.random() < 0.2:
        parts.append("l.v > 0")
    rng.shuffle(parts)
    return f"{left} l ASOF {kind}JOIN {right} r ON {' AND '.join(parts)}"


_MIRRORED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}


def _using(writer: _Writer, left: str, right: str, kind: str, keys: list[str]) -> str:
    columns = writer.rng.sample(("k", "s", "b"), writer.rng.choice((0, 1, 2)))
    return f"{left} l ASOF {kind}JOIN {right} r USING ({', '.join([*columns, 't'])})"


def _match(writer: _Writer, left: str, right: str, kind: str, keys: list[str]) -> str:
    """Snowflake's spelling, with MATCH_CONDITION."""
    on = f" ON {' AND '.join(keys)}" if keys else ""
    return f"{left} l ASOF JOIN {right} r MATCH_CONDITION (l.t {writer.pick('>=', '<')} r.t){on}"


def _temporal(writer: _Writer, left: str, right: str, kind: str, keys: list[str]) -> str:
    if right in "uo":
        right = writer.stream("b" if left in "au" else "m")
    spelling = writer.pick("SYSTEM_TIME", "TIMESTAMP")
    return (
        f"{left} l {kind}JOIN {right} FOR {spelling} AS OF l.t AS r ON {(keys or ['l.k = r.k'])[0]}"
    )


def asof_case(index: int, seed: int) -> Case:
    case = case_of(replace(asof_shape(index), index=f"asof/{index}"), seed)
    settings = {k: v for k, v in case.settings.items() if k != "slack"}
    piecewise = seed % 2 == 1 and all(stream.rows for stream in case.streams)
    return replace(case, settings=settings, piecewise=piecewise)
