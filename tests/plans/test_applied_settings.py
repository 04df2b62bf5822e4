"""Every setting over plans of every kind: the plan shows the setting, or EXPLAIN reports that it
does not apply, or it is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.base.settings import SETTINGS
from cql.errors import CqlError
from cql.session.applied import OF_ALL, OF_RUN, RULES
from tests.support.setting_plans import BASES, QUERIES, explained, session, values_of

TOLD = "not applied here: "
#: Settings that are obeyed but that EXPLAIN does not show: limits, what a session shows, how
#: kernels are made, how rows are cut.
UNSEEN = frozenset(
    (
        *("morsel_rows", "fuse", "queue", "max_state", "max_overlap"),
        *("kernel_cache", "progress", "function_timeout", "epoch_ms"),
    )
)

#: Values that a plan may have without the setting, each with its text in EXPLAIN.
BY_ITSELF = {
    ("on_bad_row", "fail"): "bad rows: fail",
    ("on_bad_row", "keep"): "bad rows: kept",
    ("order_enforcement", "sort"): "order: the latest of",
    ("workers", 1): "1 worker",
    ("workers", 2): "2 workers",
    ("window_operator", "wid"): "WidAggregate",
    ("union_operator", "pass_through"): "pass-through",
    ("join_operator", "oop_join"): "OopJoin",
    ("join_order", "written"): "Join",
    ("join_punctuation", "joint"): "joint punctuation on",
}
#: Settings that raise an error where a plan cannot obey them.
REFUSED = frozenset(
    ("join_operator", "window_operator", "table_refresh", "slack", "order_enforcement")
)


@pytest.fixture(scope="module")
def shared() -> Iterator[cql.Session]:
    with session() as made:
        yield made


def test_each_setting_has_its_rule() -> None:
    assert list(RULES) == list(SETTINGS)
    assert OF_RUN < OF_ALL < set(SETTINGS)
    for name in SETTINGS:
        values = values_of(name)
        assert SETTINGS[name].default not in values
        assert values or len(SETTINGS[name].choices) == 1, name


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("base", BASES, ids=str)
def test_a_setting_is_seen_or_told_or_refused(
    shared: cql.Session, base: dict[str, Any], full: bool, seed: int
) -> None:
    """A setting that EXPLAIN reports leaves the plan as it is; no applied setting is reported."""
    rng = random.Random(seed)
    for query in list(QUERIES) if full or not base else rng.sample(list(QUERIES), 3):
        for name in SETTINGS:
            values = [value for value in values_of(name) if base.get(name) != value]
            for value in values if full else rng.sample(values, min(1, len(values))):
                _check(shared, query, base, name, value)


def _check(session: cql.Session, query: str, base: dict[str, Any], name: str, value: Any) -> None:
    text, where = QUERIES[query], f"{name} = {value} over {query}, {base}"
    without = {other: base[other] for other in base if other != name}
    try:
        before = _without_told(explained(session, text, without))
        lines = explained(session, text, {**without, name: value})
    except CqlError:  # a forced choice that cannot run; see test_window_joins, test_choose
        assert REFUSED & {name, *base} or value == "spark", where
        return
    told = [line for line in lines if line.startswith(f"{TOLD}{name} = ")]
    plan = _without_told(lines)
    if told:
        assert len(told) == 1, where
        assert plan == before, f"{where}: told, and yet obeyed"
    elif name not in UNSEEN:
        seen = plan != before or BY_ITSELF.get((name, value), TOLD) in "\n".join(plan)
        assert seen, f"{where}: neither seen nor told"


def _without_told(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith(TOLD)]


@pytest.mark.auto_runtime
@pytest.mark.parametrize(
    ("query", "settings", "why"),
    [
        ("relation", {"window_operator": "panes"}, "there is no window with SLIDE"),
        ("relation", {"flush": "lazy"}, "there is no window with SLIDE"),
        ("relations", {"join_operator": "sync_filter"}, "a join of relations follows the changes"),
        ("table", {"join_operator": "adaptive"}, "a join with a table looks its rows up"),
        ("asof", {"join_operator": "oop_join"}, "an ASOF join has one operator"),
        ("tumbling", {"window_operator": "panes"}, "do not overlap are kept by wid"),
        ("sessions", {"window_operator": "wid"}, "sessions have one operator"),
        ("whole", {"window_operator": "panes"}, "without a window keeps one set of groups"),
        ("band", {"join_punctuation": "individual"}, "no groups of both times"),
        ("union of tables", {"union_operator": "merge"}, "no column has a watermark in all inputs"),
        ("sliding", {"flush_windows": 3}, "no aggregate has two levels"),
        ("band", {"join_alpha": 0.5}, "no join gives its rows in the order of time"),
        ("table", {"table_refresh": "1 hour"}, "no stream without an end is joined"),
        ("sliding", {"scheduler": "lp", "runtime": "fifo"}, "the runtime is fifo"),
        ("sliding", {"slice_us": 5}, "and not fifo_slice or ordered"),
        ("sliding", {"tuple_burst": 5}, "and not fifo, fifo_slice, run_to_completion"),
        ("rows", {"worklist": "shared", "runtime": "ordered"}, "no operator is split"),
        ("rows", {"partitions": 2, "runtime": "ordered"}, "no operator can be split by keys"),
        ("rows", {"tasks_by": "key", "runtime": "fifo"}, "the runtime is fifo, and not spark"),
        ("bad rows", {"on_bad_row": "fail"}, "ON BAD ROW of the query says it"),
        ("rows", {"function_timeout": "1 second"}, "no function of yours is called"),
        ("rows", {"shared_windows": "off"}, "this query runs alone"),
        ("endless", {"epoch_ms": 5}, "no rows of input without an end go into a table"),
    ],
)
def test_the_reason(shared: cql.Session, query: str, settings: dict[str, Any], why: str) -> None:
    name = next(iter(settings))
    told = [
        line
        for line in explained(shared, QUERIES[query], settings)
        if line.startswith(
            f"{TOLD}{name} = {SETTINGS[name].format(SETTINGS[name].parse(settings[name]))}: "
        )
    ]
    assert len(told) == 1
    assert why in told[0]


@pytest.mark.auto_runtime
def test_an_endless_insert_has_epochs(shared: cql.Session) -> None:
    shared.sql("RESET")
    shared.register_table("kept", pa.table({"ts": [1], "name": ["x"]}), replace=True)
    shared.set("epoch_ms", 5)
    assert TOLD not in str(shared.sql(f"EXPLAIN INSERT INTO kept {QUERIES['endless']}"))
    assert f"{TOLD}epoch_ms = 5" in str(shared.sql(f"EXPLAIN INSERT INTO kept {QUERIES['table']}"))


def test_partition_by_says_how_many(shared: cql.Session) -> None:
    text = (
        "SELECT k, count(*) AS n FROM a [RANGE 60 SLIDE 60] GROUP BY k PARTITION BY HASH(k) INTO 3"
    )
    lines = explained(shared, text, {"runtime": "ordered", "partitions": 5})
    assert f"{TOLD}partitions = 5: PARTITION BY says it" in lines


@pytest.mark.auto_runtime
def test_queries_that_start_together_are_told_once(shared: cql.Session) -> None:
    shared.sql("RESET")
    for name, value in {"shared_windows": "off", "scheduler": "lp", "flush": "lazy"}.items():
        shared.set(name, value)
    text = str(shared.query_set(f"{QUERIES['sliding']}; {QUERIES['rows']}").explain())
    assert text.count(f"{TOLD}scheduler = lp") == 1
    assert text.count(f"{TOLD}flush = lazy") == 2
    assert f"{TOLD}shared_windows" not in text


@pytest.mark.auto_runtime
def test_defaults_are_told_of_nothing(shared: cql.Session) -> None:
    for query in QUERIES.values():
        assert TOLD not in "\n".join(explained(shared, query, {}))
