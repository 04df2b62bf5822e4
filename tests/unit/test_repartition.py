"""State that is divided among another number of partitions."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, SMALLINT, STRING
from cql.executor.kernels.relations import groups
from cql.executor.morsel.morsel import stored_dtype
from cql.executor.operators.flow.ownership import HashOwners, Spread
from cql.executor.operators.relations.group_index import (
    GroupIndex,
    columns_of,
    gather_index,
    key_words,
    live_ids,
)
from cql.executor.operators.relations.key_finder import KeyFinder
from cql.executor.state.repartition import Taken, Values, gather, taken_by_owner
from cql.executor.strings.dictionary import Dictionary
from tests.support.operator_tools import workspace_of


def test_places_are_selected_renumbered_and_appended() -> None:
    """Of two old partitions with slots and groups, a new one takes some. Each group refers to a
    slot; a reference to what is not taken becomes -1."""
    saved = [
        {"value": np.array([10, 11, 12, 13]), "slot": np.array([2, 0, 3], np.int32)},
        {"value": np.array([20, 21]), "slot": np.array([1, -1], np.int32)},
    ]
    taken = Taken()
    taken.take(0, "slot", np.array([0, 2]), 4)
    taken.take(0, "group", np.array([0, 1, 2]), 3)
    taken.take(1, "slot", np.array([1]), 2)
    taken.take(1, "group", np.array([0, 1]), 2)
    layout = {"value": Values("slot"), "slot": Values("group", refers={0: "slot"}, empty=-1)}
    made = gather(layout, saved, taken, {"slot": 4, "group": 6})
    assert made["value"].tolist() == [10, 12, 21, 0]
    assert made["slot"].tolist() == [1, 0, -1, 2, -1, -1]
    assert made["slot"].dtype == np.int32


def test_native_code_writes_the_words_of_keys() -> None:
    kinds = (DOUBLE, FLOAT, SMALLINT, BOOLEAN)
    fields = [Field(f"c{c}", kind, nullable=c % 2 == 0) for c, kind in enumerate(kinds)]
    values: list[list[Any]] = [
        [-1.5, -0.0, 0.0, float("nan"), float("-inf"), 2.5],
        [2.5, -1e30, -0.0, float("nan"), 0.0, -3.5],
        [-1, 1, 0, 5, -32768, 32767],
        [True, False, True, False, True, True],
    ]
    rows, table = {}, []
    for c, (field, column) in enumerate(zip(fields, values, strict=True)):
        data = rows[f"c{c}"] = np.array(column, stored_dtype(field.type.storage))
        mask = rows[f"m{c}"] = np.array([k != 2 or c % 2 for k in range(6)], np.uint8)
        table += [data.ctypes.data, mask.ctypes.data]
    inputs = [(Schema(tuple(fields)), range(4))]
    finder = KeyFinder("o", inputs, workspace_of(16), 16, finds_nulls=True)
    numbers, d = np.arange(6, dtype=np.int32), finder.descriptors[0]
    groups.find_ids(d, np.array(table), 0, numbers, 0, 6)
    found = finder.index.arrays[1][finder.store.arrays["ids"][:6]]
    assert found.tolist() == key_words(rows, range(4), kinds, 6).tolist()


def test_no_place_is_taken() -> None:
    taken = Taken()
    for k in range(2):
        taken.take(k, "slot", np.zeros(0, np.int64), 0)
    saved = [{"value": np.zeros(0)} for _ in range(2)]
    made = gather({"value": Values("slot", 2)}, saved, taken, {"slot": 2})
    assert made["value"].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("before", "after"), [(1, 4), (3, 2), (4, 1), (2, 64)])
def test_groups_find_their_partition_again(before: int, after: int, seed: int) -> None:
    """Each key is in one new partition, the one to which its content belongs, whatever codes its
    text has."""
    r = random.Random(seed)
    types = (INT, STRING, DOUBLE, BIGINT)
    old, new = Dictionary(), Dictionary()
    texts = [f"t{k}" for k in range(50)]
    codes = [np.zeros(50, np.int32) for _ in range(2)]
    old.encode(pa.array(texts), codes[0])
    new.encode(pa.array(r.sample(["other", *texts], 51)), np.zeros(51, np.int32))
    new.encode(pa.array(texts), codes[1])
    translated = np.zeros(len(old) + 1, np.int32)
    translated[codes[0]] = codes[1]
    keys = [
        (r.choice((None, 1, -2)), r.choice((None, *range(50))), r.choice((None, 0.5, -1.5)), k)
        for k in range(300)
    ]
    rows = {}
    for c, column in enumerate(zip(*keys, strict=True)):
        if c == 1:
            column = tuple(None if text is None else codes[0][text] for text in column)
        rows[f"c{c}"] = np.array([value or 0 for value in column])
        rows[f"m{c}"] = np.array([value is not None for value in column], np.uint8)
    words = key_words(rows, range(4), types, len(keys))
    fractions, valid = columns_of(words, types)[2]
    assert np.where(valid, fractions, 0).tolist() == rows["c2"].tolist()

    def owners(parts: int) -> HashOwners:
        spread = Spread(types, (1, 0, 2), parts, ranged=False)
        return HashOwners(spread, lambda found: translated[found], new)

    own = owners(before).of(columns_of(words, types), len(keys))
    saved = []
    for part in range(before):
        index = GroupIndex(types, "index", workspace_of(16))
        ids, _ = index.ids(words[own == part])
        index.give_back(ids[words[own == part, 3] % 5 == 0])
        saved.append(index.snapshot())
    takes = [Taken() for _ in range(after)]
    for k, one in enumerate(saved):
        ids = live_ids(one)
        columns = columns_of(one.arrays["keys"][ids], types)
        found = owners(after).of(columns, len(ids))
        taken_by_owner(k, "group", ids, found, len(one.arrays["keys"]), takes)
    kept, wanted = set(), owners(after).of(columns_of(words, types), len(keys))
    for part, taken in enumerate(takes):
        index = GroupIndex(types, "index", workspace_of(16))
        index.restore(gather_index(saved, taken, "group", max(64, taken.count("group"))))
        mine = words[(wanted == part) & (words[:, 3] % 5 != 0)]
        assert index.live.size == len(mine)
        assert not index.ids(mine)[1].any()
        kept |= {int(line[3]) for line in mine}
    assert len(kept) == 240
