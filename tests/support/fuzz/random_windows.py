"""Query shapes with sessions, CUMULATE, windows of rows, rising keys, Top-N and per-key watermarks,
for ``random_shapes``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tests.support.fuzz.random_shapes import _Writer

Shape: TypeAlias = "Callable[[_Writer], str]"
#: Gaps of sessions, in ticks.
GAPS = (1, 3, 10, 40)


def _length(name: str, ticks: int) -> str:
    if name in "abc":
        return f"{ticks * 500} MILLISECONDS"
    return f"{ticks} DAYS" if name == "d" else f"{ticks}"


def _over(writer: _Writer, keys: list[str], source: str, tail: str, more: str = "") -> str:
    shown = writer.listed([*keys, *writer.aggregates(), *([more] if more else [])])
    bounds = writer.pick("", ", window_start", ", window_start, window_end", ", window_time")
    return f"SELECT {shown}{bounds} FROM {source}{writer.where()}{tail}"


def _by(*keys: str) -> str:
    return f" GROUP BY {', '.join(keys)}" if keys else ""


def session(writer: _Writer) -> str:
    """Sessions of one stream, in each spelling."""
    name = writer.stream()
    gap, keys = _length(name, writer.rng.choice(GAPS)), writer.keys(2)
    more = writer.pick("", writer.ordered())
    match writer.rng.randint(0, 3):
        case 0 if name in "abc":
            window = f"session_window(t, '{gap}')"
            return _over(writer, keys, name, _by(*keys, window), more)
        case 1 if name in "abc":
            number, unit = gap.split()
            window = f"SESSION(t, INTERVAL '{number}' {unit})"
            return _over(writer, keys, name, _by(*keys, window), more)
        case 2:
            keys = [k for k in keys if k.isidentifier()]
            partition = f" PARTITION BY {', '.join(keys)}" if keys else ""
            source = f"TABLE(SESSION(TABLE {name}{partition}, DESCRIPTOR(t), {_interval(gap)}))"
            return _over(writer, keys, source, _by(*keys, "window_start", "window_end"), more)
        case _:
            return _over(writer, keys, f"{name} [SESSION {gap}, WA t]", _by(*keys), more)


def _interval(length: str) -> str:
    number, *unit = length.split()
    return f"INTERVAL '{number}' {unit[0]}" if unit else number


def sessions_of_union(writer: _Writer) -> str:
    """Sessions of a union of streams, each with its own watermark."""
    source = writer.bag()
    gap = _length(writer.streams[-1], writer.rng.choice(GAPS))
    keys = writer.keys(2)
    return _over(writer, keys, f"{source} AS u [SESSION {gap}, WA t]", _by(*keys))


def windows_of_sessions(writer: _Writer) -> str:
    name = writer.stream("a", "n")
    gap = _length(name, writer.rng.choice(GAPS))
    inner = f"SELECT k, count(*) AS n, window_time FROM {name} [SESSION {gap}, WA t]"
    outer = writer.listed(["count(*)", "sum(n)", "max(n)"])
    window = writer.window(name, "window_time")
    return f"SELECT {outer}, window_end FROM ({inner} GROUP BY k) AS i {window}"


#: (size, step, offset) in ticks.
STEPS = ((20, 10, 0), (60, 10, 0), (12, 3, 1), (40, 1, -3), (7, 7, 2))


def cumulate(writer: _Writer) -> str:
    """CUMULATE windows: grouped, or the rows of each window."""
    name = writer.stream("a", "b", "n", "d")
    lengths = [_interval(_length(name, abs(n))) for n in writer.rng.choice(STEPS)]
    size, step, offset = lengths
    offset = writer.pick("", f", {offset}")
    source = f"TABLE(CUMULATE(TABLE {name}, DESCRIPTOR(t), {step}, {size}{offset}))"
    if writer.rng.random() < 0.25:
        values = writer.listed([writer.value() for _ in range(2)])
        return f"SELECT {values}, window_start, window_time FROM {source}{writer.where()}"
    keys = writer.keys(2)
    shown = writer.listed([*keys, *writer.aggregates(), "count(*)"])
    by = _by(*keys, "window_start", "window_end")
    bounds = writer.pick("window_start, window_end", "window_time")
    if writer.rng.random() < 0.2:
        inner = f"SELECT {writer.listed(['count(*)', 'sum(q)'], 'i')}, window_time FROM {source}"
        inner += " GROUP BY window_start, window_end"
        window = writer.window(name, "window_time")
        return f"SELECT sum(i0) AS c, sum(i1) AS d, window_end FROM ({inner}) AS w {window}"
    return f"SELECT {shown}, {bounds} FROM {source}{writer.where()}{by}"


def rows_that_slide(writer: _Writer) -> str:
    """Sliding windows of rows, over all rows or per key, of a stream or of a selection in order."""
    name = writer.stream()
    rows, slide = writer.rng.choice(((1, 1), (5, 5), (30, 7), (4, 10), (100, 1)))
    by = writer.rng.sample(("k", "s", "b", "x"), writer.rng.choice((0, 0, 1, 1, 2)))
    partition = f"PARTITION BY {', '.join(by)} " if by else ""
    window = f"[{partition}ROWS {rows} SLIDE {slide}]"
    if writer.rng.random() < 0.2:
        return writer.grouped(f"(SELECT * FROM {name} ORDER BY t) AS o {window}", writer.keys(), "")
    return writer.grouped(f"{name} {window}", writer.keys(), writer.where())


def _rising(writer: _Writer, name: str) -> str:
    """A function that rises with ``t``."""
    if name in "abc":
        return writer.pick(
            "t",
            "date_trunc('MINUTE', t)",
            "unix_seconds(t) / 7",
            "unix_millis(t) - unix_millis(t) % 2500",
            "floor(unix_seconds(t) / 20e0)",
            "t + INTERVAL '3' SECOND",
            "CAST(t AS DATE)",
        )
    if name == "d":
        return writer.pick("t", "trunc(t, 'MONTH')", "year(t)", "date_add(t, 3)")
    return writer.pick("t", "t / 10", "t - t % 20", "floor(t / 8e0)", "CAST(t AS BIGINT) * 3")


def _distinct(writer: _Writer, source: str, rising: str, keys: list[str]) -> str:
    """Distinct rows with a column that rises with time, and an operator above them."""
    values = writer.rng.sample([rising, *keys], len(keys) + 1)
    text = f"SELECT DISTINCT {writer.listed(values)} FROM {source}{writer.where()}"
    time = f"c{values.index(rising)}"
    inner = f"({text}) AS d"
    other = next((n for of in ("abc", "nm") for n in of if source in of and n != source), None)
    if other is not None and writer.rng.random() < 0.3:
        writer.streams.append(other)
        return f"{text} UNION SELECT {writer.listed(values)} FROM {other}{writer.where()}"
    return writer.pick(
        text,
        text,
        f"{text} ORDER BY {time}",
        f"SELECT count(*) AS n, count(c0) AS m, {time} FROM {inner} GROUP BY {time}",
        f"SELECT DISTINCT {time}, {time} AS again FROM {inner}",
        f"SELECT * FROM {inner} WHERE c0 IS NOT NULL",
    )


def closing(writer: _Writer) -> str:
    """A query grouped by a function that rises with time, so that punctuations close groups."""
    if writer.rng.random() < 0.3:
        source, name = f"{writer.bag()} AS u", writer.streams[-1]
    else:
        source = name = writer.stream()
    rising, keys = _rising(writer, name), writer.keys(2)
    if writer.rng.random() < 0.5:
        return _distinct(writer, source, rising, keys)
    by = writer.rng.sample([rising, *keys], len(keys) + 1)
    if writer.rng.random() < 0.2:
        inner = f"SELECT {rising} AS r, count(*) AS n, sum(q) AS q FROM {source}{writer.where()}"
        outer = writer.listed(["count(*)", "sum(n)", "max(q)"])
        again = ("r / 2 AS g, ", " GROUP BY g") if name in "nm" else ("", "")
        return f"SELECT {again[0]}{outer} FROM ({inner} GROUP BY r) AS i{again[1]}"
    shown = writer.listed([*by, *writer.aggregates()])
    return f"SELECT {shown} FROM {source}{writer.where()}{_by(*by)}"


def top_of_each(writer: _Writer) -> str:
    """Flink's Top-N: the first rows of each window, or of each key in a window; no ties."""
    name = writer.stream()
    keys = writer.rng.sample(["k", "s", "b", "g", "k % 3"], 2)
    by = writer.pick("w", "w, i0", "i1, w")
    order = [f"i2 {writer.pick('', 'DESC', 'DESC NULLS FIRST', 'NULLS LAST')}", "i0", "i1"]
    measure = writer.pick("count(*)", "sum(q)", "max(v)", "min(s)", "avg(y)", "max(x)")
    inner = f"SELECT {writer.listed([*keys, measure], 'i')}, window_start, window_end AS w"
    inner += f" FROM {name} {writer.window(name)}{writer.where(0.3)}{_by(*keys)}"
    number = f"ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {', '.join(order)})"
    test = writer.pick("n <= 2", "n = 1", f"n < {writer.param('positive')}", "n % 2 = 0")
    numbered = f"(SELECT *, {number} AS n FROM ({inner}) AS i) AS r"
    return f"SELECT i0, i1, i2, w, n FROM {numbered} WHERE {test}"


_COLUMNS = "t, k, s, b, v, w, q, x, y, h, g, z"


def _united(writer: _Writer, name: str) -> str:
    """A union of the stream ``name`` and others, which may have one watermark for all their
    rows."""
    others = next(list(kind) for kind in ("abc", "nm", "d") if name in kind)
    names = [name, *writer.rng.sample(others, min(len(others), writer.rng.choice((1, 2))))]
    writer.streams += names
    kind = writer.rng.random()
    if kind < 0.3:
        return f"{' UNION '.join(names)} AS u"
    turned = ", ".join(reversed(_COLUMNS.split(", ")))
    members = [
        f"SELECT {columns} FROM (SELECT * FROM {one}{writer.where()}) AS i{n}"
        for n, one in enumerate(names)
        for columns in [_COLUMNS if kind < 0.6 else turned]
    ]
    if len(members) > 2 and writer.rng.random() < 0.5:
        members[1:] = [f"SELECT * FROM ({' UNION ALL '.join(members[1:])}) AS j{writer.where()}"]
    return f"({' UNION ALL '.join(members)}) AS u"


def by_value(writer: _Writer, *, united: bool = False) -> str:
    """A query over a stream, or a union, in which each value of a key has its own watermark."""
    name, by = writer.stream(), writer.pick("k", "k", "s", "s", "b", "g", "z", "q")
    writer.by = by
    more = [key for key in ("k", "s", "b", "x", "q", "k % 2", "g") if key != by]
    keys = [by, *writer.rng.sample(more, writer.rng.choice((0, 0, 1, 2)))]
    writer.rng.shuffle(keys)
    calls = ["count(*)", "sum(q)", "avg(y)", "min(s)", "max(x)", "count(v)", "max(g)", "min(w)"]
    calls += [f"sum(q) FILTER (WHERE {writer.condition(0)})", "stddev(q)", "sum(CAST(w AS INT))"]
    kept = [writer.holistic(), writer.holistic(), f"count(DISTINCT {writer.pick('s', 'v', 'x')})"]
    kept += [f"{writer.pick('sum', 'avg')}(DISTINCT {writer.pick('q', 'y', 'h')})"]
    kept = [f"{c}{writer.pick('', f' FILTER (WHERE {writer.condition(0)})')}" for c in kept]
    shown = [*keys, *writer.rng.sample(calls, writer.rng.choice((1, 2, 3)))]
    shown += writer.rng.sample(kept, writer.rng.choice((0, 1, 2, 3)))
    writer.rng.shuffle(shown)
    having = writer.pick("", "", " HAVING count(*) > 1", " HAVING 10 / count(*) <> 3")
    source = f"{name} {writer.window(name)}"
    if united:
        source = f"{_united(writer, name)} {writer.window(name)}"
    elif writer.rng.random() < 0.3:
        inner = f"(SELECT {_COLUMNS}, q + 1 AS r FROM {name}{writer.where()})"
        source = f"{inner} AS i {writer.window(name)}"
    text = f"{writer.listed(shown)}, window_start, window_end FROM {source}{writer.where()}"
    text = f"SELECT {text}{_by(*keys)}{having}"
    if writer.rng.random() < 0.2:
        return f"SELECT window_end, count(*) AS n FROM ({text}) AS o GROUP BY window_end"
    return text


WINDOW_SHAPES: tuple[Shape, ...] = (
    by_value,
    top_of_each,
    closing,
    closing,
    session,
    sessions_of_union,
    windows_of_sessions,
    cumulate,
    cumulate,
    rows_that_slide,
)
