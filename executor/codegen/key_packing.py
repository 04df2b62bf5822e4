"""Keys packed into 64-bit words: two ints are one word. (The bits of a further word flag NULL
keys.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cql.base.types import DataType, Kind


@dataclass(frozen=True, slots=True)
class KeyPart:
    """The place of a key: ``bits`` bits at ``shift`` of key word ``word``."""

    word: int
    shift: int
    bits: int


#: The place of a value that has a word to itself.
WORD = KeyPart(0, 0, 64)
#: The descriptor's word that points to the address of the hashes of all texts.
TEXT_HASHES = "text hashes"
_KEY_BITS = {
    "bool": 1,
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "float32": 64,
    "float64": 64,
}


def pack_keys(types: list[DataType]) -> tuple[list[KeyPart], int]:
    """Packs keys first fit, in their order; returns the parts and the number of words, at least
    1."""
    parts: list[KeyPart] = []
    free: list[int] = []
    for t in types:
        bits = _KEY_BITS[t.storage]
        word = next((w for w, room in enumerate(free) if room >= bits), None)
        if word is None:
            free.append(64)
            word = len(free) - 1
        parts.append(KeyPart(word, 64 - free[word], bits))
        free[word] -= bits
    return parts, max(1, len(free))


def spread_keys(types: Sequence[DataType]) -> tuple[list[KeyPart], int]:
    """``pack_keys`` for the words that decide the partition of a key: a text (or an array) has a
    word to itself, which holds its hash."""
    free, count = pack_keys([kind for kind in types if not kind.is_coded])
    packed = iter(free)
    count = count if free else 0
    parts = []
    for kind in types:
        parts.append(KeyPart(count, 0, 64) if kind.is_coded else next(packed))
        count += kind.is_coded
    return parts, count


def key_expression(kind: DataType, value: str, part: KeyPart) -> str:
    """The bits of a key, shifted to their place in the key word, as text."""
    if kind.is_fraction:
        bits = f"key_bits(float64({value}))"
    elif kind.kind is Kind.BOOLEAN:
        bits = f"(1 if {value} else 0)"
    else:
        bits = f"int64({value})"
    if part.bits < 64 and kind.kind is not Kind.BOOLEAN:
        bits = f"({bits} & {(1 << part.bits) - 1})"
    return f"({bits} << {part.shift})" if part.shift else bits


def key_value(kind: DataType, word: str, part: KeyPart) -> str:
    if kind.is_fraction:
        value = f"f64_of_bits({word})"
        return f"float32({value})" if kind.kind is Kind.FLOAT else value
    if kind.kind is Kind.BOOLEAN:
        return f"(({word} >> {part.shift}) & 1) != 0"
    if part.bits == 64:
        return word
    signed = f"(({word} << {64 - part.shift - part.bits}) >> {64 - part.bits})"
    return f"{kind.storage}({signed})"
