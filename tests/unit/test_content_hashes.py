"""The hash of a key is that of its content, the same in every process and version: checkpoints and
tasks of a cluster divide rows by it. Who changes a number below raises the version of checkpoints
(``executor.state.checkpoint``)."""

from __future__ import annotations

import numpy as np
import pytest

from cql.base.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType
from cql.executor.operators.flow.ownership import hash_of
from cql.executor.strings.dictionary import Dictionary

HASHES = {
    "bigint": (
        BIGINT,
        [0, 1, -7, 1 << 62],
        [0, 5700357418382842095, 6214358306729091584, 2305843013508661248],
    ),
    "int and boolean": (INT, [0, 1, -7], [0, 1063125383339239731, 6163266290513993192]),
    "double": (
        DOUBLE,
        [0.0, -0.0, 1.5, float("nan")],
        [0, 0, 3435120622175256576, 5740963635683917824],
    ),
    "text": (
        STRING,
        ["", "a", "a longer text, of more than sixteen bytes", "ä"],
        [4670694953774547420, 2822137444832366986, 7216102122128033240, 5298529863225171035],
    ),
}


@pytest.mark.parametrize("before", [[], ["other", "texts", "before"]])
@pytest.mark.parametrize("name", HASHES)
def test_hashes_stay(name: str, before: list[str]) -> None:
    kind, values, expected = HASHES[name]
    assert hashes(name, kind, values, before) == expected


def hashes(name: str, kind: DataType, values: list[object], before: list[str]) -> list[int]:
    dictionary = Dictionary()
    dictionary.encode_values([text.encode() for text in before])
    if kind is STRING:
        data = dictionary.encode_values([str(text).encode() for text in values])
    else:
        data = np.array(values, {BIGINT: np.int64, INT: np.int32, DOUBLE: np.float64}[kind])
    columns, types = [(data, None)], [kind]
    if "and" in name:
        columns.append((np.array([False, True, True]), None))
        types.append(BOOLEAN)
    return [int(h) for h in hash_of(columns, types, dictionary)]
