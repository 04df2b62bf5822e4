"""What the kernels of texts do in whole blocks: valid UTF-8, lengths, digits, searches."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cql.executor.kernels.texts import measure, numbers, validity
from cql.executor.kernels.texts.status import FAILED, VALID
from cql.executor.texts.column import Texts, repaired, texts_from
from cql.executor.texts.functions.required_text import required_text
from tests.support.paths import ROOT

_PIECES = "aé€😀퟿￿\U0010ffff߿ࠀbcdefghijk"
#: What is no UTF-8: surrogates, code points that are too high or have a shorter form, stray bytes.
_WRONG = (
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe0\x80\x80",
    b"\xe0\x9f\xbf",
    b"\xf0\x80\x80\x80",
    b"\xf0\x8f\xbf\xbf",
    b"\xc1\xbf",
    b"\xe2\x82",
    b"\xf5",
    b"\xff",
    b"\x80",
)


def _texts(rng: random.Random) -> list[bytes]:
    """Texts of which more than half of the lists have one that is not UTF-8."""
    made = [
        "".join(rng.choices(_PIECES, k=rng.randrange(60))).encode()
        for _ in range(rng.randrange(1, 7))
    ]
    if rng.random() < 0.6:
        k = rng.randrange(len(made))
        at, change = rng.randrange(len(made[k]) + 1), rng.randrange(3)
        behind = made[k][at + (change == 1) :]
        wrong = rng.choice(_WRONG) if change == 2 else b""
        made[k] = made[k][:at] + wrong + (behind if change else b"")
    return made


def _decoded(text: bytes) -> bytes:
    return text.decode(errors="replace").encode()


def _valid(raw: list[bytes]) -> bool:
    return list(map(_decoded, raw)) == raw


def _flat(texts: list[bytes]) -> Texts:
    made = texts_from(texts)
    return Texts(made.data, np.ascontiguousarray(made.starts), np.ascontiguousarray(made.ends))


def test_validity(seed: int, full: bool) -> None:
    rng, count, valid = random.Random(seed), 200_000 if full else 5_000, 0
    for _ in range(count):
        raw = _texts(rng)
        texts = _flat(raw)
        expected, good = list(map(_decoded, raw)), _valid(raw)
        valid += good
        assert validity.is_valid(texts.data, texts.starts, texts.ends) == good, raw
        fixed = repaired(texts)
        assert [fixed.text(i) for i in range(len(raw))] == expected
    assert count // 5 < valid < 4 * count // 5


def test_validity_of_many_texts() -> None:
    raw = [("ü" * (n % 90) + "x").encode() for n in range(5_000)]
    texts = _flat(raw)
    assert validity.is_valid(texts.data, texts.starts, texts.ends)
    for at in (0, 45, texts.data.size // 2, texts.data.size - 1):
        data = texts.data.copy()
        data[at] = 0xFF
        assert not validity.is_valid(data, texts.starts, texts.ends)
    starts = texts.starts.copy()
    starts[4_000] += 1  # within a character
    ends = np.append(starts[1:], texts.ends[-1])
    assert not validity.is_valid(texts.data, starts, ends)


@pytest.mark.slow
def test_validity_without_wide_lookups() -> None:
    """As on processors that have none."""
    rng = random.Random(7)
    cases = [(raw := _texts(rng), _valid(raw)) for _ in range(300)]
    code = """
import ast, sys
import numpy as np
from cql.executor.kernels.texts.validity import is_valid
for raw, good in ast.literal_eval(sys.stdin.read()):
    bounds = np.cumsum([0, *map(len, raw)])
    data = np.frombuffer(b"".join(raw), np.uint8)
    assert is_valid(data, bounds[:-1].copy(), bounds[1:].copy()) == good, raw
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
        input=repr(cases),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("longest", [0, 3, 40, 300])
def test_lengths_in_a_row(longest: int, seed: int) -> None:
    rng = random.Random(seed)
    texts = ["".join(rng.choices(_PIECES, k=rng.randrange(longest + 1))) for _ in range(3_000)]
    block = _flat([text.encode() for text in texts])
    for first, behind in ((0, 3_000), (1, 2_999), (77, 78)):
        some = Texts(block.data, block.starts[first:behind], block.ends[first:behind])
        found = np.empty(len(some), np.int32)
        measure.length_in_a_row(some.data, some.starts, some.ends, found)
        assert found.tolist() == [len(text) for text in texts[first:behind]]


def _read(raw: list[bytes]) -> list[int | None]:
    texts, out = texts_from(raw), np.zeros(len(raw), np.int64)
    status = np.full(len(raw), VALID, np.uint8)
    numbers.read_integers(texts.data, texts.starts, texts.ends, 2**63 - 1, out, status)
    return [
        None if s == FAILED else value
        for s, value in zip(status.tolist(), out.tolist(), strict=True)
    ]


def test_whole_numbers() -> None:
    values = [0, 2**63 - 1, -(2**63)]
    for digits in range(1, 20):
        for value in (10 ** (digits - 1), 10**digits - 1, int("1234567890987654321"[:digits])):
            values += [value, -value] if value < 2**63 else []
    n = len(values)
    out, status = np.empty(numbers.INTEGER_WIDTH * n, np.uint8), np.full(n, VALID, np.uint8)
    starts, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    numbers.write_integers(np.array(values), out, starts, ends, status)
    made = Texts(out, starts, ends)
    texts = [made.text(i) for i in range(n)]
    assert texts == [str(value).encode() for value in values]
    assert _read(texts) == values
    assert _read([b"+" + t.lstrip(b"-").rjust(30, b"0") for t in texts[:2]]) == values[:2]


def test_what_is_no_whole_number() -> None:
    """Each byte in each place of digits that are read eight at once."""
    for n in (1, 7, 8, 9, 16, 17):
        for at in range(n):
            for byte in range(33, 127):
                text = b"1" * at + bytes([byte]) + b"1" * (n - at - 1)
                expected = int(text) if text.lstrip(b"+-" if at == 0 else b"").isdigit() else None
                assert _read([text]) == [expected], text
    assert _read([b"", b"-", b"+", b" ", b"9223372036854775808"]) == [None] * 5


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("u[0-9]*7&", "7&"),
        ("user=(u[0-9]+)", "user="),
        ("ab?c", "a"),
        ("ab{2}cd", "cd"),
        (r"\.html$", ".html"),
        (r"\{2}xyz", "xyz"),
        (r"\[2]xyz", "xyz"),
        ("[]a]xyz", "xyz"),
        ("[[:alpha:]]xyz", "xyz"),
        (r"\d+foo", "foo"),
        ("a+bc", "bc"),
        ("a|b", ""),
        ("(?i)abc", ""),
        (r"\Qa+b\E", ""),
        (r"a\x41bc", ""),
    ],
)
def test_required_texts(pattern: str, text: str) -> None:
    assert required_text(pattern) == text


def test_required_texts_of_random_patterns(seed: int, full: bool) -> None:
    rng, found = random.Random(seed), 0
    for _ in range(300_000 if full else 20_000):
        pattern = "".join(rng.choices("ab1.+*?[](){}^$\\-:&é", k=rng.randrange(1, 9)))
        part = required_text(pattern)
        if not part:
            continue
        texts = ["".join(rng.choices("ab1.+-:&é{}", k=rng.randrange(12))) for _ in range(6)]
        try:
            matches = pc.match_substring_regex(pa.array(texts), pattern=pattern).to_pylist()
        except pa.ArrowInvalid:
            continue
        for text in (t for t, matched in zip(texts, matches, strict=True) if matched):
            found += 1
            assert part in text, pattern
    assert found > 500
