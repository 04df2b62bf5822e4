"""The program that counts random cases (``count_cases``); ``--full`` runs all cases."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.reference.naive_progress import Column
from tests.support.fuzz import count_cases
from tests.support.fuzz.count_cases import (
    FEATURES,
    TOGETHER,
    Count,
    Counts,
    DataSet,
    data_set,
    join_names,
    names,
    options,
)
from tests.support.fuzz.random_cases import FLUSHES
from tests.support.fuzz.random_data import Stream, random_stream
from tests.support.fuzz.random_permutations import _shuffled


def test_at_most_300_shapes_of_every_kind() -> None:
    assert len(names()) == len(set(names())) <= 300
    texts = {name: data_set(name, 0).shape.text for name in names()}
    assert len(set(texts.values())) > len(names()) * 0.95
    assert {name.split("/")[0] for name in names()[:20]} == {
        "drawn", "relation", "stream", "zone", "own", "by", "unnest",
    }  # fmt: skip


def test_at_most_300_shapes_of_joins() -> None:
    assert len(join_names()) == len(set(join_names())) <= 300
    assert {name.split("/")[0] for name in join_names()[:20]} == {
        "join", "relationjoin", "tablejoin", "asofjoin", "latestrows",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["relationjoin/4", "drawn/3", "relation/4", "stream/2", "zone/1", "own/5"]
)
def test_a_data_set_is_made_from_its_name_alone(name: str) -> None:
    for seed in (1, 3):
        a, b = DataSet(name, seed), DataSet(name, seed)
        assert [c.describe() for c in a.cases()] == [c.describe() for c in b.cases()]
        different = {repr(sorted(o.items())) for o in options(a.base, name, seed)}
        assert len(different) == TOGETHER


def test_every_operator_is_among_the_profiles() -> None:
    met = {
        (one.get("window_operator"), one.get("flush"), one.get("adaptive_windows"))
        for name in names()
        for one in count_cases.profiles(name, data_set(name, 0).shape)
    }
    assert {operator for operator, _, _ in met} == {
        None, "auto", "wid", "panes", "buffered", "two_stacks", "subtract", "two_level",
    }  # fmt: skip
    assert len(met) == 8 + len(FLUSHES)
    assert all(FEATURES)


def _marks(stream: Stream) -> dict[tuple[object, ...], bool]:
    """By row: whether the row is late, the row watermark of a late row, and the place of a row that
    is late or has no time."""
    known = Column(stream.progress, None)
    found = {}
    for k, row in enumerate(stream.rows):
        late = row[0] is not None and row[0] < known.mark
        found[row] = (late, known.mark if late else None, k if late or row[0] is None else None)
        if row[0] is not None:
            known.row(row[0])
    return found


def test_permutations_make_no_late_rows(seed: int) -> None:
    moved = 0
    for number in range(200):
        rng = random.Random(f"{seed} {number}")
        made = random_stream(rng, rng.choice("an"))
        rows = tuple((r[0], k, *r[2:]) for k, r in enumerate(made.rows))  # all rows differ
        stream = Stream(made.name, rows, made.slack)
        other = Stream(made.name, _shuffled(stream, rng), made.slack)
        assert _marks(other) == _marks(stream)
        moved += other != stream
        for time in {r[0] for r in rows}:
            assert [r for r in rows if r[0] == time] == [r for r in other.rows if r[0] == time]
    assert moved > 20


def test_counts_go_on(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    counts = Counts(path)
    list(count_cases.run(counts, ["drawn/1"], 4, 0, turn_of=1))
    assert (counts.cases, counts.failures) == (4, [])
    again = Counts(path)
    assert vars(again) == vars(counts)
    list(count_cases.run(again, ["drawn/1"], 8, 1, turn_of=1))
    assert again.shapes["drawn/1"].sets >= 2
    assert again.permuted


def test_a_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: DataSet, case: object) -> str:
        raise AssertionError("differs")

    monkeypatch.setattr(DataSet, "check", fails)
    count = Count()
    told = list(count_cases.turn("drawn/1", count, 0, sets=9))
    assert count.failures[0] == "drawn/1:0:0"
    assert "differs" in told[0]
    assert "drawn/1 rests" in told[-1]
    assert count.sets == 1


def test_all_of_them(full: bool) -> None:
    if not full:
        pytest.skip("with --full")
    counts = Counts(None)
    list(count_cases.run(counts, names(), 100_000, 10_000))
    assert not counts.failures, counts.summary()
