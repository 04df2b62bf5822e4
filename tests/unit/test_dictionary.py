"""The dictionary has one code for each text: for texts of any length, from any slice of an array,
added by any thread."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from cql.executor.kernels.lib.dictionary import add_text
from cql.executor.strings.dictionary import ARRAYS, Dictionary


def texts(rng: random.Random, n: int, different: int) -> list[bytes | None]:
    """``n`` random texts of 0 to 200 bytes, most of them short, with zero bytes; some are NULL,
    many are prefixes of other texts."""
    whole = bytes(rng.choice((0, 0, 97, 98)) for _ in range(200))
    made = [whole[: rng.randrange(rng.choice((9, 21, 201)))] for _ in range(different)]
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


def test_kernels_add_while_python_adds(seed: int) -> None:
    """Kernels add without the GIL: at any time a text has one code, in any number of threads."""
    dictionary = Dictionary()
    control = dictionary.control

    def add(k: int) -> None:
        rng = random.Random(seed + k % 2)
        for _ in range(60):
            given = texts(rng, 200, 100)
            if k % 3 == 0:
                array = pa.array(given, pa.binary())
                assert encoded(dictionary, array) == array.to_pylist()
                continue
            for text in given:
                bytes_ = np.frombuffer(text or b"", np.uint8)
                at, n = bytes_.ctypes.data, bytes_.size
                while (code := add_text(control, at, n, ARRAYS)) < 0:
                    dictionary.make_room(n)
                assert dictionary.value(code) == (text or b"")

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(add, k) for k in range(4)]:
            done.result()
    values = [dictionary.value(code) for code in range(1, len(dictionary))]
    assert len(values) == len(set(values))
    code = add_text(control, np.zeros(1).ctypes.data, 3, ARRAYS)
    assert dictionary.encode_values([bytes(3)]) == code
    forget(dictionary)
    assert add_text(control, np.zeros(1).ctypes.data, 3, ARRAYS) == 1
    assert dictionary.depths[1] == ARRAYS
    assert dictionary.value(1) == bytes(3)


def test_a_refused_text_leaves_the_dictionary_usable() -> None:
    """``max_state`` may refuse room, also for a text that a kernel adds."""

    def refuse(before: int, after: int) -> None:
        raise MemoryError

    dictionary = Dictionary(refuse)
    control = dictionary.control
    large = np.zeros(1 << 16, np.uint8)
    assert add_text(control, large.ctypes.data, large.size, ARRAYS) == -1
    with pytest.raises(MemoryError):
        dictionary.make_room(large.size)
    assert add_text(control, large.ctypes.data, 5, ARRAYS) == 1
    assert dictionary.encode_values([bytes(5)]) == 1


def test_room_stays_for_as_many_texts_again() -> None:
    told: list[int] = []
    dictionary = Dictionary(lambda before, after: told.append(after - before))
    begun = dictionary.nbytes
    sizes = []
    for first in (0, 10_000, 20_000):
        dictionary.encode_values([b"request line number %09d" % (first + k) for k in range(10_000)])
        assert len(dictionary) == 10_001
        sizes.append(dictionary.nbytes)
        forget(dictionary)
        sizes.append(dictionary.nbytes)
    assert sizes == [sizes[0]] * 6
    dictionary.encode_values([b"few"])
    forget(dictionary)
    assert dictionary.nbytes == begun == dictionary.nbytes - sum(told)


def forget(dictionary: Dictionary) -> None:
    live = np.arange(len(dictionary)) == 0
    assert dictionary.compact(live).tolist() == [0, *[-1] * len(live[1:]), -1]
    assert len(dictionary) == 1


def test_hashes_of_similar_texts_differ(seed: int) -> None:
    """Texts of each length that differ in one byte, or in their length alone."""
    rng, dictionary = random.Random(seed), Dictionary()
    made = {bytes(n) for n in range(130)}
    for n in range(1, 130):
        whole = bytes(rng.choices(range(256), k=n))
        made |= {
            whole[:k] + bytes([whole[k] ^ 1 << rng.randrange(8)]) + whole[k + 1 :] for k in range(n)
        }
    codes = dictionary.encode_values(sorted(made))
    hashes = dictionary.hashes[codes]
    assert len(set(hashes.tolist())) == len(made)
    assert hashes.min() >= 0
    buckets = np.bincount(hashes & 255, minlength=256)
    assert buckets.max() < 2 * len(made) / 256
