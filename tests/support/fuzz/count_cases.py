"""The full random counts: many cases over at most 300 query shapes, in one program.

::

    count="python -m tests.support.fuzz.count_cases"
    $count --cases 100000 --permuted 10000 --state FILE --kernels FOLDER
    $count relation/7:12:2           # one case again (…:2p: permuted)
    $count --list                    # the shapes
    $count --joins --cases 50000     # those of joins (with --list, too)

A *case* is one execution of the engine: shape × data × options. The data of ``SHAPE:SEED`` (rows,
disorder, slack, cuts, parameters, bad row policy) are drawn once, and their reference answer is
worked out once for each enforced order; OPTIONS is the number of one of the ``TOGETHER`` options
that differ in operator, fusing, morsel size, runtime or enforced order. Each is compared with the
reference: rows, late pairs, bad rows, late rows left out; of a changing relation, two options the
last relation, two the changes.
A *permuted* case is a further execution, with rows of different times in another order of arrival
(``random_permutations``), compared with the answer to the first order.

A shape has a few *profiles*, the options that machine code depends on (``profiles``): every shape
with each legal operator would take hours to compile, so each gets three of them in turn. Constants
and what is known of NULLs make code, too, and are one of two kinds (``data_set``); the tests that
draw both at random are in ``test_random_cases``.

``--state`` keeps the counts, so that a stopped run goes on; a crash of the process loses what came
since the last line. Shapes take turns of ``TURN`` data sets.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import random
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

from cql.planner.nodes.logical import Logical
from cql.planner.optimize.changelog import changes
from tests.reference.naive_aggregates import QueryFailsError
from tests.reference.naive_order import Order
from tests.reference.naive_rows import Answer
from tests.support import groupwise, own_aggregates, relation_cases
from tests.support.fuzz import (
    random_asof_joins,
    random_cases,
    random_joins,
    random_relation_joins,
    random_table_joins,
    random_unnest,
    random_zones,
)
from tests.support.fuzz.known_nulls import known_nulls
from tests.support.fuzz.random_cases import (
    FLUSHES,
    MORSELS,
    Case,
    legal_operators,
    order_of,
    runtime_settings,
)
from tests.support.fuzz.random_data import SCHEMAS, Stream
from tests.support.fuzz.random_permutations import permutable, permuted
from tests.support.fuzz.random_shapes import SHAPES, Shape, shape

#: By column, the value that replaces NULL in a column that holds only NULL.
SOME = (0, 1, "a", True, 2, 3, 4, 0.5, 1.5, 2.5, 5, 6)
TOGETHER = 4
TURN = 25  # data sets of a shape
MOST_FAILURES = 3  # in one turn; then the shape rests
DRAWN = 110

Expected: TypeAlias = Answer | QueryFailsError


# Shapes -------------------------------------------------------------------------------------------


@cache
def names() -> tuple[str, ...]:
    """The names of the shapes, with the kinds spread evenly."""
    kinds = {
        "drawn": drawn(),
        "relation": range(len(relation_cases.RELATIONS)),
        "stream": range(len(relation_cases.STREAMS)),
        "zone": range(len(random_zones.WINDOWS)),
        "own": range(len(own_aggregates.QUERIES)),
        "by": range(groupwise.SHAPES),
        "unnest": range(len(random_unnest.SHAPES)),
    }
    placed = [(k / len(n), f"{kind}/{i}") for kind, n in kinds.items() for k, i in enumerate(n)]
    return tuple(name for _, name in sorted(placed))


@cache
def join_names() -> tuple[str, ...]:
    """The names of the shapes of joins, with the kinds spread evenly."""
    kinds = {
        "join": random_joins.SHAPES,
        "relationjoin": random_relation_joins.SHAPES,
        "latestrows": random_relation_joins.LATEST_SHAPES,
        "tablejoin": random_table_joins.SHAPES,
        "asofjoin": random_asof_joins.SHAPES,
    }
    placed = [(k / n, f"{kind}/{k}") for kind, n in kinds.items() for k in range(n)]
    return tuple(name for _, name in sorted(placed))


#: Patterns; each matches the texts of at least ``EACH`` drawn shapes.
FEATURES = (
    *("SESSION|session_window", "CUMULATE", r"ROWS \d+ SLIDE", "OFFSET", r"HOP\(", r"TUMBLE\("),
    *(r"window\(t, ", "ROW_NUMBER", "LIMIT", r"\bUNION \w+ AS", r"UNION \w+ UNION", "UNION ALL"),
    *("SELECT DISTINCT", r"\(DISTINCT", "FILTER", "array_agg", "percentile|median", r"mode\("),
    r"SELECT DISTINCT .*(unix_|date_trunc|floor\(t|t / |t - t|CAST\(t|\bt\b)",
    *(r"first\(|last\(", "max_by|min_by", "string_agg|listagg", "collect_set", "stddev|variance"),
    "time_weighted",
    *(
        "HAVING",
        "ORDER BY t",
        "WITH ",
        "bool_and|bool_or",
        "count_if",
        "window_time FROM .*WA wind",
    ),
    *(r"GROUP BY .*(unix_|date_trunc|floor\(t|t / |t - t|CAST\(t)", r"avg\(", r"(min|max)\("),
)
EACH = 4


@cache
def drawn() -> tuple[int, ...]:
    """The indices of ``DRAWN`` random shapes that cover every feature."""
    texts = {i: shape(i).text for i in range(SHAPES)}
    chosen: list[int] = []
    for feature in FEATURES:
        having = [i for i, text in texts.items() if re.search(feature, text)]
        missing = EACH - len(set(having) & set(chosen))
        chosen += [i for i in having if i not in chosen][: max(0, missing)]
    others = [i for i in texts if i not in chosen]
    return tuple(sorted([*chosen, *others[: DRAWN - len(chosen)]]))


def data_set(name: str, seed: int) -> Case:
    """The data of ``name:seed`` as a case without options. A shape has two sets of constants,
    because machine code depends on constants."""
    kind, number = name.split("/")
    made = _made(kind, int(number), seed)
    rng = random.Random(f"constants {name} {is_sure(seed)}")
    params = made.shape.draw(rng)
    streams = made.streams
    if is_sure(seed):
        streams = tuple(_without_nulls(s, sure_columns(name), rng) for s in streams)
    return replace(made, seed=f"{name}:{seed}", settings={}, params=params, streams=streams)


def is_sure(seed: int) -> bool:
    """Whether the statistics of a data set report no NULL in its ``sure_columns``. Otherwise they
    report NULLs in all columns. Machine code depends on these statistics."""
    return seed % 4 == 3


@cache
def sure_columns(name: str) -> frozenset[str]:
    rng = random.Random(f"sure {name}")
    return frozenset(c for c in SCHEMAS["n"].names if rng.random() < 0.5)


def _without_nulls(stream: Stream, columns: frozenset[str], rng: random.Random) -> Stream:
    at = [k for k, name in enumerate(SCHEMAS[stream.name].names) if name in columns]
    rows = [list(row) for row in stream.rows]
    for k in at:
        some = [row[k] for row in rows if row[k] is not None]
        for row in rows:
            if row[k] is None:
                row[k] = rng.choice(some) if some else SOME[k]
    return replace(stream, rows=tuple(map(tuple, rows)))


def _made(kind: str, number: int, seed: int) -> Case:
    rng = random.Random(f"{kind} {number}:{seed}")
    match kind:
        case "drawn":
            return random_cases.make_case(number, seed)
        case "join":
            return random_joins.join_case(number, seed)
        case "relationjoin":
            return random_relation_joins.relation_join_case(number, seed)
        case "latestrows":
            return random_relation_joins.latest_rows_case(number, seed)
        case "tablejoin":
            return random_table_joins.table_case(number, seed)
        case "asofjoin":
            return random_asof_joins.asof_case(number, seed)
        case "by":
            return random_cases.case_of(groupwise.by_value(number), seed)
        case "unnest":
            return random_cases.case_of(random_unnest.unnest_shape(number), seed)
        case "relation":
            return relation_cases.case_of(relation_cases.RELATIONS[number], rng)
        case "stream":
            return relation_cases.case_of(relation_cases.STREAMS[number], rng)
        case "zone":
            return random_zones.zone_case(
                random_zones.WINDOWS[number], random_zones.ZONES[number], rng
            )
        case _:
            text, inputs = own_aggregates.QUERIES[number]
            functions = own_aggregates.IN_PYTHON if number % 3 == 0 else own_aggregates.COMPILED
            return own_aggregates.aggregate_case(text, inputs, functions, rng)


# Options ------------------------------------------------------------------------------------------

_OTHERS: tuple[dict[str, Any], ...] = (
    {"adaptive_windows": True},
    *({"window_operator": "two_level", "flush": flush} for flush in FLUSHES),
)
_WINDOW = re.compile(r"SLIDE|HOP\(|TUMBLE\(|CUMULATE|window\(")
_NO_MERGE = re.compile(r"own_odd")
_OWN = re.compile(r"own_\w+\(")


def every_operator(made: Shape) -> list[dict[str, Any]]:
    """The settings of each legal window operator, and of two-level with each ``flush``."""
    if made.by is not None or _NO_MERGE.search(made.text):
        return [{"window_operator": "wid"}, {"window_operator": "auto"}]
    legal = legal_operators(made)
    if _OWN.search(made.text):
        legal = [one for one in legal if one != "subtract"]
    found: list[dict[str, Any]] = [
        {"window_operator": one} for one in legal if one not in ("auto", "two_level")
    ]
    found += _OTHERS if "two_level" in legal else _OTHERS[:1]
    return [*found, {"window_operator": "auto"}]


def profiles(name: str, made: Shape) -> list[dict[str, Any]]:
    """The settings that decide the machine code. A shape with windows gets three legal operators,
    chosen by its name; a shape without windows gets fusion on and off."""
    if not _WINDOW.search(made.text) or "EMIT CHANGES" in made.text:
        return [{"fuse": True}, {"fuse": False}]
    legal, at = every_operator(made), zlib.crc32(name.encode())
    chosen = [legal[(at + k * (1 + at // 16 % 2)) % len(legal)] for k in range(3)]
    return [{**one, "fuse": k != 2} for k, one in enumerate(chosen)]


def options(base: Case, name: str, seed: int) -> list[dict[str, Any]]:
    """``TOGETHER`` different settings for one data set."""
    rng = random.Random(f"options {base.seed}")
    made = profiles(name, base.shape)
    if is_sure(seed):
        made = [made[zlib.crc32(name.encode()) % len(made)]]
    found: list[dict[str, Any]] = []
    while len(found) < TOGETHER:
        settings = dict(made[len(found)] if len(found) < len(made) else rng.choice(made))
        settings |= runtime_settings(rng)
        morsel = rng.choice(MORSELS)
        if morsel is not None:
            settings["morsel_rows"] = morsel
        if settings.get("window_operator") == "two_level":
            settings["flush_every"] = rng.choice((1, 3, 1000))
            settings["flush_windows"] = rng.choice((0, 1, 2, 50))
            settings["low_level_entries"] = rng.choice((1, 4, 64))
        if name.startswith("join/"):
            settings |= _join_operator(base, rng)
        if name.startswith("drawn"):
            settings |= _enforced(base, settings, rng)
        if settings not in found:
            found.append(settings)
    return found


def _join_operator(base: Case, rng: random.Random) -> dict[str, Any]:
    """The settings of a random legal join operator. The costs make Adaptive switch in some
    cases."""

    given = {
        "join_operator": rng.choice(random_joins.legal_join_operators(base.shape)),
        "join_punctuation": rng.choice(("auto", "individual")),
        "join_flush": rng.choice(("slow", "at_once")),
    }
    if given["join_operator"] != "adaptive":
        return given
    return given | {"join_cost": rng.choice((0, 1_000_000)), "join_alpha": rng.choice((0, 0.3))}


def _enforced(base: Case, settings: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Settings that enforce order. Enforcement splits fused stages, as ``fuse`` off does, so a
    fused case only draws the union operator."""
    found = random_cases.order_settings(rng, base.shape)
    if settings["fuse"]:
        return {k: v for k, v in found.items() if k == "union_operator"}
    return found


# One data set -------------------------------------------------------------------------------------


@dataclass
class DataSet:
    """The data of ``SHAPE:SEED`` and the reference's answers to them."""

    name: str
    seed: int
    base: Case = field(init=False)
    _plans: dict[bool, Logical] = field(default_factory=dict)
    _answers: dict[tuple[bool, Order], Expected] = field(default_factory=dict)
    _changes: Any = None

    def __post_init__(self) -> None:
        self.base = data_set(self.name, self.seed)

    def cases(self) -> list[Case]:
        every = options(self.base, self.name, self.seed)
        return [
            replace(self.base, seed=f"{self.base.seed}:{k}", settings=settings)
            for k, settings in enumerate(every)
        ]

    def check(self, case: Case) -> str:
        """Compares ``case``, which has the data of this set in their order or permuted, with the
        reference. Returns the outcome; raises AssertionError at a difference."""
        from tests.support.fuzz.random_joins import rooms

        with (
            known_nulls(sure_columns(self.name) if is_sure(self.seed) else frozenset()),
            rooms(zlib.crc32(case.seed.encode())),
        ):
            return self._check(case)

    def _check(self, case: Case) -> str:
        merged = case.settings.get("union_operator") == "merge"
        original = replace(case, streams=self.base.streams)
        if merged not in self._plans:
            self._plans[merged] = random_cases.plan_of(original)
        plan = self._plans[merged]
        key = (merged, order_of(case))
        if key not in self._answers:
            self._answers[key] = random_cases.answer_of(original, plan)
        if not (self.name.startswith("relation") and (changes(plan) or "EMIT" in case.text)):
            return random_cases.held_against(case, plan, self._answers[key])
        if "EMIT" not in case.text and case.seed.rstrip("p")[-1] in "02":
            return random_cases.held_against(case, plan, self._answers[key])
        self._check_changes(case, plan)
        return "same"

    def _check_changes(self, case: Case, plan: Logical) -> None:
        if self._changes is None:
            self._changes = relation_cases.expected_changes(self.base, plan)
        found = relation_cases.difference_of_changes(self._changes, case)
        assert found is None, found


def permuted_of(case: Case) -> Case | None:
    """The case with its rows in another arrival order, or None if it has none."""
    if not permutable(case):
        return None
    other = permuted(case, random.Random(f"permuted {case.seed}"))
    return None if other is None else replace(other, seed=f"{case.seed}p")


# Counting -----------------------------------------------------------------------------------------


@dataclass
class Count:
    """The counts of one shape."""

    sets: int = 0  # the next seed
    cases: int = 0
    permuted: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: str, *, permuted: bool) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if permuted:
            self.permuted += 1
        else:
            self.cases += 1


@dataclass
class Counts:
    """The counts of all shapes; they continue those in the file ``path``, if it exists."""

    path: Path | None
    shapes: dict[str, Count] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            held = json.loads(self.path.read_text())
            self.shapes = {name: Count(**one) for name, one in held.items()}

    def save(self) -> None:
        if self.path is not None:
            aside = self.path.with_suffix(".new")
            aside.write_text(json.dumps({k: vars(v) for k, v in self.shapes.items()}, indent=1))
            aside.replace(self.path)

    @property
    def cases(self) -> int:
        return sum(one.cases for one in self.shapes.values())

    @property
    def permuted(self) -> int:
        return sum(one.permuted for one in self.shapes.values())

    @property
    def failures(self) -> list[str]:
        return [name for one in self.shapes.values() for name in one.failures]

    def summary(self) -> str:
        outcomes: Counter[str] = Counter()
        for one in self.shapes.values():
            outcomes.update(one.outcomes)
        lines = [
            f"{self.cases:,} cases and {self.permuted:,} permuted ones over {len(self.shapes)} "
            f"shapes, {len(self.failures)} failures; {dict(outcomes)}"
        ]
        lines += [
            f"  again: python -m tests.support.fuzz.count_cases {name}" for name in self.failures
        ]
        return "\n".join(lines)


def turn(name: str, count: Count, most_permuted: int, *, sets: int = TURN) -> Iterator[str]:
    """Runs the next data sets of a shape; yields a report of each failure."""
    begun = len(count.failures)
    left = most_permuted
    for _ in range(sets):
        seed = count.sets
        count.sets += 1
        made = DataSet(name, seed)
        for case in made.cases():
            other = permuted_of(case) if left > 0 else None
            for one, moved in ((case, False), (other, True)):
                if one is None:
                    continue
                try:
                    count.add(made.check(one), permuted=moved)
                    left -= moved
                except Exception as error:  # any failure is reported, and the count goes on
                    count.add("fails to hold", permuted=moved)
                    count.failures.append(one.seed)
                    yield f"{one.seed}: {type(error).__name__}: {error}\n{one.describe()}"
        if len(count.failures) - begun >= MOST_FAILURES:
            yield f"{name} rests: {MOST_FAILURES} failures"
            return


def run(
    counts: Counts, shapes: Sequence[str], cases: int, permuted: int, *, turn_of: int = TURN
) -> Iterator[None]:
    """Runs turns until both counts are reached; yields after each turn."""
    resting: set[str] = set()
    while counts.cases < cases or counts.permuted < permuted:
        name = _next(counts, [s for s in shapes if s not in resting], counts.cases / max(cases, 1))
        if name is None:
            return
        count = counts.shapes.setdefault(name, Count())
        begun, clock = time.process_time(), time.strftime("%H:%M:%S")
        print(f"{clock} {name}", end="", flush=True)
        before = count.cases, count.permuted
        share = max(0, permuted - counts.permuted)
        most = 1 + 2 * permuted * turn_of * TOGETHER // max(cases, 1)
        for failure in turn(name, count, min(share, most), sets=turn_of):
            print(f"\nFAILURE {failure}", flush=True)
            if " rests: " in failure:
                resting.add(name)
        counts.save()
        took = time.process_time() - begun
        print(
            f" +{count.cases - before[0]} +{count.permuted - before[1]}p {took:.1f} s,"
            f" {counts.cases} cases, {counts.permuted} permuted,"
            f" {len(counts.failures)} failures",
            flush=True,
        )
        yield


def _next(counts: Counts, shapes: Sequence[str], share: float) -> str | None:
    """The shape of the next turn. New shapes begin as the count grows, so that a run that is cut
    short has many cases of some shapes instead of a few of each. Of the shapes that have begun, the
    one with the fewest data sets is next."""
    begun = [name for name in shapes if name in counts.shapes]
    if len(begun) < len(shapes) and len(begun) <= share * len(shapes):
        return next(name for name in shapes if name not in counts.shapes)
    return min(begun, key=lambda name: counts.shapes[name].sets, default=None)


def again(name: str) -> int:
    """Runs one case and prints its outcome; a name without options runs the case of the tests.
    Returns the exit code."""
    found = re.fullmatch(r"(\w+)/(\d+):(\d+)(?::(\d+)(p?))?", name)
    if found is None:
        print(__doc__)
        return 2
    if found[4] is None:
        from tests.support.fuzz.random_joins import rooms

        case = _made(found[1], int(found[2]), int(found[3]))
        print(case.describe())
        with rooms(int(found[3])):
            print(random_cases.check(case))
        return 0
    made = DataSet(f"{found[1]}/{found[2]}", int(found[3]))
    case = made.cases()[int(found[4])]
    if found[5]:
        other = permuted_of(case)
        assert other is not None
        case = other
    print(case.describe())
    print(made.check(case))
    return 0


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("case", nargs="?")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--permuted", type=int, default=10_000)
    parser.add_argument("--shapes", help="only those that match", default="")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--kernels", type=Path, help="keeps the machine code, all of it")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--joins", action="store_true")
    given = parser.parse_args(args)
    if given.kernels is not None:
        from cql.executor.codegen import module

        mock.patch.object(module, "prune", return_value=None).start()
        random_cases.EVERYWHERE["kernel_cache"] = str(given.kernels)
    if given.case:
        return again(given.case)
    every = join_names() if given.joins else names()
    shapes = [name for name in every if re.search(given.shapes, name)]
    if given.list:
        for name in shapes:
            base = data_set(name, 0)
            print(name, base.shape.text, profiles(name, base.shape))
        return 0
    faulthandler.enable()
    counts = Counts(given.state)
    for _ in run(counts, shapes, given.cases, given.permuted):
        gc.collect()
        gc.freeze()  # kernels live as long as the process
    print(counts.summary())
    return 1 if counts.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
