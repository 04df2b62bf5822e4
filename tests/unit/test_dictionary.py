"""The dictionary has one code for each text: for texts of any length, from any slice of an array,
added by any thread."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from cql.executor.strings.dictionary import ARRAYS, Dictionary


def texts(rng: random.Random, n: int, different: int) -> list[bytes | None]:
    """``n`` random texts of 0 to 20 bytes, with zero bytes; some are NULL, many are prefixes of
    other texts."""
    whole = bytes(rng.choice((0, 0, 97, 98)) for _ in range(20))
    made = [whole[: rng.randrange(21)] for _ in range(different)]
    made += [bytes(rng.choices((0, 97, 255), k=rng.randrange(21))) for _ in range(different)]
    return [rng.choice((None, *rng.sample(made, 3))) for _ in range(n)]


def encoded(dictionary: Dictionary, array: pa.Array) -> list[bytes | None]:
    codes = np.zeros(len(array), np.int32)
    dictionary.encode(array, codes)
    assert (codes == 0).tolist() == array.is_null().to_pylist()
    return [dictionary.value(code) if code else None for code in codes.tolist()]


@pytest.mark.parametrize("arrow", [pa.binary(), pa.large_binary()])
def test_a_code_is_a_text(arrow: pa.DataType, seed: int) -> None:
    rng, dictionary = random.Random(seed), Dictionary()
    seen: set[bytes] = set()
    for _ in range(40):
        given = texts(rng, 300, rng.choice((3, 200)))
        first = rng.randrange(100)
        array = pa.array(given, arrow)[first : rng.randrange(first, 301)]
        assert encoded(dictionary, array) == array.to_pylist()
        seen |= {text for text in array.to_pylist() if text is not None}
        assert len(dictionary) == len(seen) + 1  # and the code of NULL
    live = np.array([rng.random() < 0.5 for _ in range(len(dictionary))])
    live[0] = True
    left = {dictionary.value(code) for code in np.flatnonzero(live)[1:].tolist()}
    dictionary.compact(live)
    assert {dictionary.value(code) for code in range(1, len(dictionary))} == left
    assert encoded(dictionary, pa.array(given, arrow)) == given


def test_threads_add_at_once(seed: int) -> None:
    dictionary = Dictionary()

    def add(k: int) -> None:
        rng = random.Random(seed + k % 2)
        for _ in range(60):
            array = pa.array(texts(rng, 200, 100), pa.binary())
            assert encoded(dictionary, array) == array.to_pylist()
            codes = dictionary.encode_results(pa.array([b"%d" % rng.randrange(999)]), ARRAYS)
            assert (dictionary.depths[codes] == ARRAYS).all()
            held = dictionary.decode(codes, None, pa.binary())
            assert held.to_pylist() == [dictionary.value(int(codes[0]))]

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(add, k) for k in range(4)]:
            done.result()
    values = [dictionary.value(code) for code in range(1, len(dictionary))]
    assert len(values) == len(set(values))
