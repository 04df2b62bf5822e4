"""A hint is obeyed, or refused at its place with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import cql
from cql.base.settings import SETTINGS
from cql.errors import CqlError, PlanError, SettingError
from tests.support.setting_plans import BASES, QUERIES, cases, explained, session, values_of

#: Settings that cover more than one query: as hints they are always refused.
OF_SESSION = ("shared_windows", "progress")


@pytest.fixture(scope="module")
def shared() -> Iterator[cql.Session]:
    with session() as made:
        yield made


def _hinted(text: str, *hints: str) -> str:
    return text.replace("SELECT", f"SELECT /*+ {', '.join(hints)} */", 1)


@pytest.mark.sampled
@pytest.mark.parametrize("query", QUERIES)
def test_a_hint_is_refused_where_the_setting_is_told(
    shared: cql.Session, query: str, full: bool
) -> None:
    """A hint is refused where EXPLAIN reports its setting as not applied; elsewhere the hint gives
    the same plan as SET."""
    text = QUERIES[query]
    for base in BASES if full else BASES[:1]:
        for name, value in cases():
            if name in base or not (full or value == values_of(name)[0]):
                continue
            try:
                lines = explained(shared, text, {**base, name: value})
            except CqlError:
                continue
            told = any(line.startswith(f"not applied here: {name} = ") for line in lines)
            shared.sql(f"RESET {name}")
            hint = f"{name}('{SETTINGS[name].format(value)}')"
            if not told and name not in OF_SESSION:
                given = str(shared.sql(_hinted(text, hint)).explain()).splitlines()
                assert given == lines, hint
                continue
            with pytest.raises(PlanError, match=f"the hint {name}.* cannot be obeyed") as raised:
                shared.sql(_hinted(text, hint))
            assert (raised.value.line, raised.value.column) == (1, text.index("SELECT") + 12)
            assert raised.value.hint


@pytest.mark.auto_runtime
def test_a_hint_for_a_mechanism_that_is_not_there_is_refused_by_default_too(
    shared: cql.Session,
) -> None:
    """``flush(slow)`` requires two levels; ``window_operator(auto)`` requires no mechanism."""
    shared.sql("RESET")
    for hint in ("flush(slow)", "scheduler(ct)", "multiway_join(single)", "join_flush(slow)"):
        with pytest.raises(PlanError, match="cannot be obeyed"):
            shared.sql(_hinted(QUERIES["sliding"], hint))
    for hint in ("window_operator(auto)", "slack(off)", "workers(0)", "order_enforcement(none)"):
        assert shared.sql(_hinted(QUERIES["rows"], hint))


def test_hints_are_judged_together(shared: cql.Session) -> None:
    shared.sql("RESET")
    taken = _hinted(QUERIES["sliding"], "window_operator(two_level)", "flush(lazy)")
    assert "(SET window_operator = 'two_level', flush = 'lazy')" in shared.sql(taken).explain()
    refused = _hinted(
        QUERIES["sliding"], "window_operator(two_level)", "flush(lazy)", "flush_every(3)"
    )
    with pytest.raises(PlanError, match=r"flush_every\(3\) cannot be obeyed: flush = lazy decides"):
        shared.sql(refused)


def test_a_hint_over_a_setting(shared: cql.Session) -> None:
    """EXPLAIN reports the setting as not applied; a hint for the same mechanism is refused."""
    shared.sql("RESET")
    shared.set("join_operator", "sync_filter")
    lines = explained(shared, QUERIES["table"], {"join_operator": "sync_filter"})
    assert any(line.startswith("not applied here: join_operator = sync_filter") for line in lines)
    with pytest.raises(PlanError, match="a join with a table looks its rows up"):
        shared.sql(_hinted(QUERIES["table"], "join_operator(oop_join)"))
    with pytest.raises(SettingError):
        shared.sql(_hinted(QUERIES["table"], "join_operator(nested_loops)"))


@pytest.mark.parametrize(
    "statement", ["INSERT INTO named {}", "CREATE TABLE made AS {}", "EXPLAIN {}"]
)
def test_hints_of_other_statements(shared: cql.Session, statement: str) -> None:
    shared.sql("RESET")
    text = statement.format(_hinted("SELECT k, name FROM named", "union_operator(merge)"))
    with pytest.raises(PlanError, match="there is no union") as raised:
        shared.sql(text)
    assert raised.value.column == text.index("union_operator") + 1


def test_hints_of_queries_that_start_together(shared: cql.Session) -> None:
    """In a query set, a hint for one query's plan is taken; one for the shared run is refused."""
    shared.sql("RESET")
    one, other = QUERIES["sliding"], QUERIES["rows"]
    assert shared.query_set(f"{_hinted(one, 'window_operator(wid)')}; {other}")
    for hint, why in (
        ("flush(lazy)", "no aggregate has two levels"),
        ("scheduler(lp)", "is for one query"),
        ("shared_windows(off)", "SET shared_windows before them"),
    ):
        with pytest.raises(PlanError) as raised:
            shared.query_set(f"{_hinted(one, hint)}; {other}")
        assert why in f"{raised.value}"
        assert raised.value.column == 12
