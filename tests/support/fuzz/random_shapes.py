"""At most 300 query shapes: fixed texts, with constants as parameters ``:p0`` ….

``shape(i)`` depends on *i* alone, so that one compiled kernel serves all data sets of a shape.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

from tests.support.fuzz.random_windows import WINDOW_SHAPES

SHAPES = 300

#: (range, slide, offset) in ticks: tumbling, overlap up to 23, gaps, offsets.
WINDOWS = (
    (20, 20, 0),
    (20, 10, 0),
    (60, 10, 0),
    (14, 6, 0),
    (10, 24, 0),
    (20, 20, 6),
    (30, 10, -4),
    (1, 1, 0),
    (3, 2, 1),
    (45, 2, 0),
)
_DOMAINS: dict[str, Callable[[random.Random], object]] = {
    "int": lambda rng: rng.choice((0, 1, 2, 3, 7, 50, 1000)),
    "positive": lambda rng: rng.choice((1, 2, 3, 7, 50, 1000)),
    "double": lambda rng: rng.choice((0.0, -1.5, 0.5, 2.0, 100.25)),
    "string": lambda rng: rng.choice(("", "a", "A", "aa", "žluť", "%", "zzz")),
}


@dataclass(frozen=True)
class Shape:
    """``text`` lacks its ON BAD ROW clause; ``params`` are the domains of :p0, :p1 …"""

    index: int | str
    text: str
    streams: tuple[str, ...]
    params: tuple[str, ...]
    by: str | None = None  # a column whose values have their own watermarks

    def draw(self, rng: random.Random) -> dict[str, object]:
        return {f"p{i}": _DOMAINS[domain](rng) for i, domain in enumerate(self.params)}


@cache
def shape(index: int) -> Shape:
    rng = random.Random(f"shape {index}")
    writer = _Writer(rng)
    write = rng.choice(
        (
            *(writer.windowed,) * 4,
            *(writer.select, writer.having, writer.top, writer.nested, writer.whole) * 2,
            *(writer.union, writer.union_windowed, writer.union_all, writer.union_of_ctes),
            *(writer.derived, writer.cte, writer.first, writer.distinct, writer.bucket),
            *(writer.by_time, writer.by_time),
            *(partial(write, writer) for write in WINDOW_SHAPES),
        )
    )
    text = write()
    return _numbered(index, text, writer)


def _numbered(index: int, text: str, writer: _Writer) -> Shape:
    """The shape of a text: drops the parameters of discarded alternatives, numbers the others from
    0, and makes some join keys null-safe."""
    text = _with_null_safe_keys(text)
    used = list(dict.fromkeys(int(n) for n in re.findall(r":p(\d+)", text)))
    text = re.sub(r":p(\d+)", lambda found: f":p{used.index(int(found[1]))}", text)
    params = tuple(writer.params[n] for n in used)
    return Shape(index, text, tuple(dict.fromkeys(writer.streams)), params, writer.by)


#: The spellings of an equal key, by frequency; the writers of shapes use the first.
_EQUAL = ("{} = {}",) * 5 + (
    "{} <=> {}",
    "{} IS NOT DISTINCT FROM {}",
    "({0} = {1} OR {0} IS NULL AND {1} IS NULL)",
)


def _with_null_safe_keys(text: str) -> str:
    """``text`` with some of ``l.k = r.k`` spelled null-safe. Event times, which are never NULL,
    keep ``=``."""
    rng = random.Random(f"null-safe keys of {text}")

    def spelled(found: re.Match[str]) -> str:
        return rng.choice(_EQUAL).format(found[1], found[2])

    return re.sub(r"\b([lr]\.[a-su-z]) = ([lr]\.[a-su-z])\b(?! %)", spelled, text)


@dataclass
class _Writer:
    rng: random.Random
    streams: list[str] = field(default_factory=list)
    params: list[str] = field(default_factory=list)
    by: str | None = None

    # ------------------------------------------------------------- small parts

    def param(self, domain: str) -> str:
        self.params.append(domain)
        return f":p{len(self.params) - 1}"

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def stream(self, *names: str) -> str:
        name = self.rng.choice(names or ("a", "a", "b", "n", "m", "d"))
        self.streams.append(name)
        return name

    def window(self, name: str, wa: str = "t") -> str:
        range_, slide, offset = self.rng.choice(WINDOWS)
        return self.bracket(name, range_, slide, offset, wa)

    def bracket(self, name: str, range_: int, slide: int, offset: int, wa: str) -> str:
        if name in "abc":
            parts = [f"{what} {n * 500} MILLISECONDS" for what, n in
                     (("RANGE", range_), ("SLIDE", slide), ("OFFSET", offset))]  # fmt: skip
        else:
            unit = " DAYS" if name == "d" else ""
            parts = [f"RANGE {range_}{unit}", f"SLIDE {slide}{unit}", f"OFFSET {offset}{unit}"]
        used = parts if offset > 0 or (offset and name in "abc") else parts[:2]
        return f"[{', '.join([*used, f'WA {wa}'])}]"

    # ------------------------------------------------------------- expressions

    def condition(self, depth: int = 2) -> str:
        """A condition that cannot fail."""
        if depth and self.rng.random() < 0.45:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return self.pick(f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})")
        op = self.pick("=", "<>", "<", "<=", ">", ">=", "<=>")
        options: tuple[Callable[[], str], ...] = (
            lambda: f"{self.integer(0)} {op} {self.param('int')}",
            lambda: f"y {op} {self.param('double')}",
            lambda: f"x {op} y",
            lambda: f"x {op} x",
            lambda: f"s {op} {self.param('string')}",
            lambda: f"s LIKE {self.pick(*map(repr, ('%a%', 'a%', '_', '%ť', '', 'a_b', '%')))}",
            lambda: f"k IN ({self.param('int')}, 1, {self.pick('2', 'NULL')})",
            lambda: f"k NOT IN ({self.param('int')}, {self.param('int')})",
            lambda: f"{self.pick('s', 'k', 'x', 'b', 'g')} IS {self.pick('', 'NOT ')}NULL",
            lambda: f"v BETWEEN {self.param('int')} AND 1000000",
            lambda: "b",
            lambda: f"g {op} DATE '2024-02-29'",
            lambda: f"z {op} TIMESTAMP '1970-01-01 00:00:00'",
            lambda: f"w {op} v",
            lambda: f"h {op} 0.5e0",
        )
        return self.rng.choice(options)()

    def integer(self, depth: int = 1) -> str:
        """An integer expression of moderate size that cannot fail."""
        simple: tuple[Callable[[], str], ...] = (
            lambda: "k % 1000",
            lambda: "q",
            lambda: "length(s)",
            lambda: "year(g)",
            lambda: "hour(z)",
            lambda: "dayofweek(g)",
            lambda: f"coalesce(k % 100, {self.param('int')})",
            lambda: f"v % {self.param('positive')}",
        )
        if not depth:
            return self.rng.choice(simple)()
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        return self.pick(
            f"({a} + {b})",
            f"({a} - {b})",
            f"({a} * {b})",
            f"CASE WHEN {self.condition(0)} THEN {a} ELSE {b} END",
            f"CASE WHEN {self.condition(0)} THEN {a} END",
            f"greatest({a}, {b})",
            f"least({a}, {b})",
            f"if({self.condition(0)}, {a}, {b})",
            f"abs({a})",
            f"nullif({a}, {b})",
        )

    def fraction(self) -> str:
        """A fractional expression that cannot fail and has moderate sums."""
        return self.pick(
            "y",
            "y",
            f"y * {self.param('double')}",
            "y + q",
            "-y",
            "abs(y)",
            f"CASE WHEN {self.condition(0)} THEN y ELSE 0e0 END",
            "coalesce(y, 1e0)",
        )

    def text(self) -> str:
        return self.pick(
            "s",
            "upper(s)",
            "lower(s)",
            "trim(s)",
            "substr(s, 1, 2)",
            "substr(s, -2)",
            "concat(s, '-', s)",
            f"s || {self.param('string')}",
            "replace(s, 'a', 'ž')",
            f"coalesce(s, {self.param('string')})",
            "CAST(k AS STRING)",
            "CASE WHEN b THEN s ELSE 'no' END",
        )

    def moment(self) -> str:
        return self.pick(
            "g",
            "z",
            "date_trunc('MONTH', z)",
            "date_trunc('HOUR', z)",
            "CAST(z AS DATE)",
            "date_add(g, 30)",
            "z + INTERVAL '90' MINUTE",
            "CAST(g AS TIMESTAMP)",
        )

    def risky(self) -> str:
        """An expression that fails on some rows."""
        return self.pick(
            f"v + {self.param('int')}",
            "v * v",
            "w - 1",
            "abs(v)",
            "-w",
            f"{self.param('int')} / q",
            "w / v",
            "w % k",
            "y / q",
            "CAST(x AS INT)",
            "CAST(w AS INT)",
            "CAST(s AS INT)",
            "CASE WHEN q <> 0 THEN 100 / q ELSE v + 1 END",
            "CAST(y AS SMALLINT)",
            "datediff(date_add(g, v), g)",
        )

    def curve(self) -> str:
        return self.pick(
            "sqrt(y)",
            "exp(y / 1000e0)",
            "ln(y)",
            "log10(abs(y))",
            "sin(y)",
            "round(y, 1)",
            "floor(y)",
            "ceil(y)",
            "sign(x)",
            "x",
            "x * 2e0",
            "h + h",
            "CAST(h AS DOUBLE)",
            "pow(y, 2e0)",
            "atan(x)",
            "isnan(x)",
            "y % 7e0",
            "TRY_CAST(s AS INT)",
            "CAST(x AS FLOAT)",
            "CAST(b AS INT)",
        )

    def value(self) -> str:
        """Any expression for a select list."""
        make = self.rng.choice(
            (self.integer, self.fraction, self.text, self.moment, self.curve, self.condition)
        )
        return make()

    # ------------------------------------------------------------- clauses

    def where(self, chance: float = 0.5) -> str:
        if self.rng.random() >= chance:
            return ""
        if self.rng.random() < 0.15:
            return f" WHERE {self.condition(0)} AND {self.risky()} > 0"
        return f" WHERE {self.condition()}"

    def keys(self, most: int = 3) -> list[str]:
        pool = ["k", "s", "b", "x", "g", "h", "z", "y", "k % 2", "upper(s)", "year(g)", "w"]
        return self.rng.sample(pool, self.rng.randint(0, most))

    def aggregates(self, most: int = 4) -> list[str]:
        return [self.aggregate() for _ in range(self.rng.randint(1, most))]

    def aggregate(self) -> str:
        numeric = self.pick("q", "v", "y", self.integer(), self.fraction())
        any_ = self.pick("k", "s", "b", "v", "w", "x", "y", "g", "z", "h", self.text())
        call = self.pick(
            "count(*)",
            "count(*)",
            f"count({any_})",
            f"sum({numeric})",
            f"sum({numeric})",
            f"avg({numeric})",
            f"min({any_})",
            f"max({any_})",
            f"count(DISTINCT {any_})",
            f"{self.pick('count', 'sum', 'avg')}(DISTINCT {self.pick('q', 'y', 'h')})",
            f"{self.pick('stddev', 'stddev_pop', 'variance', 'var_pop')}({self.pick('q', 'y')})",
            f"bool_and({self.condition(0)})",
            f"bool_or({self.condition(0)})",
            f"count_if({self.condition(0)})",
            self.holistic(),
            self.holistic(),
            f"sum(CAST({self.risky()} AS INT))" if self.rng.random() < 0.3 else "sum(q)",
        )
        if self.rng.random() < 0.2:
            return f"{call} FILTER (WHERE {self.condition(0)})"
        return call

    def holistic(self) -> str:
        """A holistic aggregate that does not depend on the order of rows."""
        number = self.pick("q", "v", "y", "x", "h", self.integer())
        any_ = self.pick("k", "s", "b", "w", "x", "g", "z", self.text())
        share = self.pick("0", "0.1", "0.25", "0.5", "0.9", "1", "75e-2")
        return self.pick(
            f"median({number})",
            f"median(DISTINCT {number})",
            f"percentile({number}, {share})",
            f"percentile({number}, array({share}, 0.99))",
            f"percentile_cont({share}) WITHIN GROUP (ORDER BY {number} DESC)",
            f"percentile_disc({share}) WITHIN GROUP (ORDER BY {number} {self.pick('', 'DESC')})",
            f"approx_percentile({self.pick('v', 'w', 'x', 'h', 'g', 'z')}, {share})",
            f"mode({any_})",
            f"mode() WITHIN GROUP (ORDER BY {any_} DESC)",
            f"array_agg(DISTINCT {any_} ORDER BY {any_} DESC)",
            f"array_agg({any_} ORDER BY {any_})",
        )

    @staticmethod
    def listed(exprs: list[str], prefix: str = "c") -> str:
        return ", ".join(f"{e} AS {prefix}{i}" for i, e in enumerate(exprs))

    def grouped(self, source: str, keys: list[str], where: str, extra: str = "") -> str:
        shown = [*keys, *self.aggregates()]
        bounds = self.pick("", ", window_start", ", window_end", ", window_start, window_time")
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {self.listed(shown)}{bounds} FROM {source}{where}{by}{extra}"

    # ------------------------------------------------------------- shapes

    def select(self) -> str:
        values = [self.value() for _ in range(self.rng.randint(1, 5))]
        if self.rng.random() < 0.4:
            values.append(self.risky())
        name = self.stream()
        return f"SELECT {self.listed(values)} FROM {name}{self.where()}"

    def bag(self) -> str:
        names = self.rng.sample(("a", "b", "c"), self.rng.randint(2, 3))
        if self.rng.random() < 0.2:
            names = ["n", "m"]
        self.streams += names
        return " UNION ".join(names)

    def union(self) -> str:
        source = self.bag()
        values = [self.value() for _ in range(self.rng.randint(1, 4))]
        return f"SELECT {self.listed(['t', *values])} FROM {source} AS u{self.where()}"

    def union_windowed(self) -> str:
        source = self.bag()
        window = self.window(self.streams[-1])
        return self.grouped(f"{source} AS u {window}", self.keys(), self.where())

    def union_all(self) -> str:
        first, second = self.stream("a", "n"), self.stream("b", "m")
        values = [self.pick("k", "s", "y", "v", self.integer()) for _ in range(2)]
        parts = [f"SELECT {self.listed(values)} FROM {n}{self.where()}" for n in (first, second)]
        return " UNION ALL ".join(parts)

    def union_of_ctes(self) -> str:
        """A union in which each input has its own filter."""
        names = self.rng.sample(("a", "b", "c"), 2)
        self.streams += names
        columns = self.listed(["t", self.integer(), self.text()], "d")
        p, r = (f"(SELECT {columns} FROM {n}{self.where(0.8)})" for n in names)
        return (
            f"WITH p AS {p}, r AS {r} SELECT d2 AS c0, count(*) AS c1, sum(d1) AS c2, window_end "
            f"FROM p UNION r AS u {self.window(names[0], 'd0')} GROUP BY d2"
        )

    def bucket(self) -> str:
        """The rows of each window, ungrouped."""
        name = self.stream("a", "b")
        range_, slide, _ = self.rng.choice(WINDOWS)
        times = f"INTERVAL '{slide * 0.5}' SECOND, INTERVAL '{range_ * 0.5}' SECOND"
        values = self.listed([self.value() for _ in range(self.rng.randint(1, 3))])
        table = f"TABLE(HOP(TABLE {name}, DESCRIPTOR(t), {times}))"
        return f"SELECT {values}, window_start, window_time FROM {table}{self.where()}"

    def windowed(self) -> str:
        name = self.stream()
        if self.rng.random() < 0.25:
            return self.function_window()
        return self.grouped(f"{name} {self.window(name)}", self.keys(), self.where())

    def function_window(self) -> str:
        """Flink's and Spark's spellings of the same windows."""
        self.streams[:] = []
        name = self.stream("a", "b")
        keys = self.keys(2)
        range_, slide, _ = self.rng.choice(WINDOWS)
        times = [f"INTERVAL '{n * 0.5}' SECOND" for n in (slide, range_)]
        if self.rng.random() < 0.5:
            table = f"TABLE(HOP(TABLE {name}, DESCRIPTOR(t), {times[0]}, {times[1]}))"
            if range_ == slide:
                table = f"TABLE(TUMBLE(TABLE {name}, DESCRIPTOR(t), {times[1]}))"
            by = ", ".join([*keys, "window_start", "window_end"])
            shown = self.listed([*keys, *self.aggregates()])
            return f"SELECT {shown}, window_end FROM {table}{self.where()} GROUP BY {by}"
        spark = [f"'{n * 500} milliseconds'" for n in (range_, slide)]
        by = ", ".join([*keys, f"window(t, {', '.join(spark)})"])
        shown = self.listed([*keys, *self.aggregates()])
        return f"SELECT {shown}, window_end FROM {name}{self.where()} GROUP BY {by}"

    def having(self) -> str:
        name = self.stream()
        test = self.pick(
            f"count(*) > {self.param('int')}",
            f"sum(q) <> {self.param('int')}",
            f"max(y) > {self.param('double')} OR count(*) = 1",
            "min(s) IS NOT NULL",
        )
        keys = self.keys(2)
        source = f"{name} {self.window(name)}"
        return self.grouped(source, keys, self.where(), f" HAVING {test}")

    def top(self) -> str:
        """ORDER BY … LIMIT with the keys as last sort keys, so that no tie crosses the cut."""
        name = self.stream()
        keys = self.rng.sample(["k", "s", "b", "g", "k % 3"], self.rng.randint(1, 2))
        measure = self.pick("count(*)", "sum(q)", "max(v)", "min(s)", "avg(y)", "max(x)")
        shown = self.listed([*keys, measure])
        order = [f"c{len(keys)} {self.pick('', 'DESC', 'DESC NULLS FIRST', 'NULLS LAST')}"]
        order += [f"c{i} {self.pick('', 'DESC')}" for i in range(len(keys))]
        cut = self.pick("", " LIMIT 1", " LIMIT 3", " LIMIT 2 OFFSET 1", " LIMIT 100")
        return (
            f"SELECT {shown}, window_end FROM {name} {self.window(name)}{self.where(0.3)} "
            f"GROUP BY {', '.join(keys)} ORDER BY window_end, {', '.join(order)}{cut}"
        )

    def nested(self) -> str:
        """A window over the rows of a window."""
        name = self.stream()
        inner = self.window(name)
        keys = self.keys(2)
        shown = self.listed([*keys, "count(*)", "sum(q)", "max(y)"], "i")
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        source = f"(SELECT {shown}, window_time FROM {name} {inner}{self.where(0.3)}{by})"
        n = len(keys)
        outer = self.listed(
            ["count(*)", f"sum(i{n})", f"max(i{n + 1})", f"min(i{n + 2})", f"avg(i{n})"]
        )
        window = self.window(name, "window_time")
        group = self.pick("", " GROUP BY i0") if keys else ""
        head = "i0 AS k0, " if group else ""
        return f"SELECT {head}{outer}, window_end FROM {source} AS w {window}{group}"

    def whole(self) -> str:
        """An aggregate over the whole input, without a window."""
        name = self.stream()
        keys = self.keys(2)
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        shown = self.listed([*keys, *self.aggregates()])
        return f"SELECT {shown} FROM {name}{self.where()}{by}"

    def by_time(self) -> str:
        """ORDER BY a progressing time, of a stream or of a union."""
        source = f"{self.bag()} AS u" if self.rng.random() < 0.4 else self.stream()
        values = [self.pick("k", "s", "b", "x", "h", "g", self.integer(), self.text())
                  for _ in range(self.rng.randint(1, 3))]  # fmt: skip
        order = [self.pick("t", "t NULLS LAST")]
        more = self.rng.sample(range(len(values)), self.rng.randint(0, len(values)))
        order += [f"c{k} {self.pick('', 'DESC', 'DESC NULLS FIRST', 'NULLS LAST')}" for k in more]
        listed = self.listed(values)
        return f"SELECT t, {listed} FROM {source}{self.where()} ORDER BY {', '.join(order)}"

    def distinct(self) -> str:
        name = self.stream()
        values = [self.pick("k", "s", "b", "x", "h", self.integer(), self.text())
                  for _ in range(self.rng.randint(1, 3))]  # fmt: skip
        return f"SELECT DISTINCT {self.listed(values)} FROM {name}{self.where()}"

    def derived(self) -> str:
        name = self.stream()
        columns = self.listed(["t", self.integer(), self.fraction(), self.text()], "d")
        source = f"(SELECT {columns} FROM {name}{self.where()}) AS r"
        window = self.window(name, "d0")
        return (
            f"SELECT d3 AS c0, count(*) AS c1, sum(d1) AS c2, avg(d2) AS c3, window_start "
            f"FROM {source} {window} WHERE d1 IS NOT NULL GROUP BY d3"
        )

    def cte(self) -> str:
        name = self.stream()
        columns = self.listed(["t", self.integer(), self.pick("s", "k", "b")], "d")
        window = self.window(name, "d0")
        return (
            f"WITH r AS (SELECT {columns} FROM {name}{self.where()}) "
            f"SELECT d2 AS c0, count(*) AS c1, sum(d1) AS c2, count(DISTINCT d1) AS c3 "
            f"FROM r {window} GROUP BY d2"
        )

    def first(self) -> str:
        """Order-sensitive aggregates over one stream (the replay decides the order across
        streams)."""
        name = self.stream()
        keys = self.keys(1)
        values = [self.ordered() for _ in range(self.rng.randint(1, 3))]
        shown = self.listed([*keys, *values, "count(*)"])
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {shown} FROM {name} {self.window(name)}{self.where()}{by}"

    def ordered(self) -> str:
        any_ = self.pick("v", "s", "y", "b", "w", "z")
        separator = self.pick("','", "''", "'ž'")
        by = self.pick("k", "s", "b", "v", "x", "h", "q", "g", "z", self.integer())
        call = self.pick(
            f"{self.pick('first', 'last')}({any_})",
            f"{self.pick('max_by', 'min_by')}({any_}, {by})",
            f"array_agg({any_})",
            f"collect_set({any_})",
            f"array_agg({any_} ORDER BY {by} {self.pick('', 'DESC', 'NULLS LAST')}, q)",
            f"string_agg({self.text()}, {separator})",
            f"listagg(s, ';') WITHIN GROUP (ORDER BY {by} DESC NULLS FIRST)",
            f"string_agg({self.pick('', 'DISTINCT ')}s)",
            f"time_weighted_avg({self.pick('q', 'y', 'h')}, {self.pick('t', 'g', 'z', 'q')})",
            f"time_weighted_avg({self.fraction()}, t, 'linear')",
        )
        return f"{call} FILTER (WHERE {self.condition(0)})" if self.rng.random() < 0.2 else call
