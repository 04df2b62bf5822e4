"""The reference's functions of strings; characters are code points."""

from __future__ import annotations

import re
from typing import Any

from cql.planner.nodes.expr import Call
from tests.reference.naive_cast import to_text
from tests.reference.naive_registry import function
from tests.reference.naive_values import BadRowError


@function("upper")
def _upper(call: Call, text: Any) -> Any:
    return text.upper()


@function("lower")
def _lower(call: Call, text: Any) -> Any:
    return text.lower()


@function("length")
def _length(call: Call, text: Any) -> Any:
    return len(text)


@function("trim")
def _trim(call: Call, text: Any, of: Any = " ") -> Any:
    return text.strip(of)


@function("ltrim")
def _ltrim(call: Call, text: Any, of: Any = " ") -> Any:
    return text.lstrip(of)


@function("rtrim")
def _rtrim(call: Call, text: Any, of: Any = " ") -> Any:
    return text.rstrip(of)


@function("reverse")
def _reverse(call: Call, text: Any) -> Any:
    return text[::-1]


@function("substring")
def _substring(call: Call, text: Any, start: Any, length: Any = None) -> Any:
    """Places count from 1, negative ones from the end; 0 means 1. The part left of the text is
    empty.

    >>> _substring(None, "abc", -5, 3), _substring(None, "abc", 2)
    ('a', 'bc')
    """
    begin = start - 1 if start > 0 else (len(text) + start if start < 0 else 0)
    end = len(text) if length is None else begin + length
    return text[max(begin, 0) : max(end, 0)] if end > begin else ""


@function("left")
def _left(call: Call, text: Any, length: Any) -> Any:
    return text[: max(length, 0)]


@function("right")
def _right(call: Call, text: Any, length: Any) -> Any:
    return text[max(len(text) - length, 0) :] if length > 0 else ""


@function("concat")
def _concat(call: Call, *texts: Any) -> Any:
    pairs = zip(texts, call.args, strict=True)
    return "".join(t if isinstance(t, str) else to_text(t, a.type) for t, a in pairs)


@function("replace")
def _replace(call: Call, text: Any, search: Any, by: Any = "") -> Any:
    return text.replace(search, by) if search else text


@function("startswith")
def _starts_with(call: Call, text: Any, prefix: Any) -> Any:
    return text.startswith(prefix)


@function("endswith")
def _ends_with(call: Call, text: Any, suffix: Any) -> Any:
    return text.endswith(suffix)


@function("contains")
def _contains(call: Call, text: Any, part: Any) -> Any:
    return part in text


@function("locate")
def _locate(call: Call, part: Any, text: Any, start: Any = 1) -> Any:
    if not part:  # Spark finds an empty text at place 1, wherever the search begins
        return 1 if start > 0 else 0
    return text.find(part, start - 1) + 1 if start > 0 else 0


@function("split_part")
def _split_part(call: Call, text: Any, delimiter: Any, part: Any) -> Any:
    if part == 0:
        raise BadRowError("parts count from 1")
    parts = text.split(delimiter) if delimiter else [text]
    index = part - 1 if part > 0 else len(parts) + part
    return parts[index] if 0 <= index < len(parts) else ""


@function("rlike")
def _rlike(call: Call, text: Any, pattern: Any) -> Any:
    """Python's expressions have the syntax of RE2's as far as the query files use it; classes such
    as ``\\d`` are of ASCII there."""
    return re.search(pattern, text, re.ASCII) is not None


@function("regexp_extract")
def _regexp_extract(call: Call, text: Any, pattern: Any, group: Any = 1) -> Any:
    found = re.search(pattern, text, re.ASCII)
    return "" if found is None else found[group] or ""


@function("lpad", "rpad")
def _pad(call: Call, text: Any, length: Any, fill: Any = " ") -> Any:
    if length <= len(text) or not fill:
        return text[: max(length, 0)]
    padding = (fill * length)[: length - len(text)]
    return padding + text if call.fn == "lpad" else text + padding


@function("concat_ws", nulls=True)
def _concat_ws(call: Call, separator: Any, *texts: Any) -> Any:
    return None if separator is None else separator.join(t for t in texts if t is not None)


@function("repeat")
def _repeat(call: Call, text: Any, times: Any) -> Any:
    return text * max(times, 0)


@function("octet_length")
def _octet_length(call: Call, text: Any) -> Any:
    return len(text.encode("utf-8") if isinstance(text, str) else text)


def like(text: str, pattern: str, escape: str = "\\") -> bool:
    """``%`` matches any text, ``_`` any one character; the escape makes the next character
    plain.

    >>> like("50%", "50\\\\%"), like("abc", "a_"), like("abc", "a%")
    (True, False, True)
    """
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return any(like(text[i:], rest, escape) for i in range(len(text) + 1))
    if first == escape and rest:
        first, rest = rest[0], rest[1:]
    elif first == "_":
        return bool(text) and like(text[1:], rest, escape)
    return text[:1] == first and like(text[1:], rest, escape)


@function("like")
def _like(call: Call, text: Any, pattern: Any, escape: Any = "\\") -> Any:
    return like(text, pattern, escape)


@function("ilike")
def _ilike(call: Call, text: Any, pattern: Any, escape: Any = "\\") -> Any:
    return like(text.lower(), pattern.lower(), escape)


@function("ascii")
def _ascii(call: Call, text: Any) -> Any:
    return ord(text[0]) if text else 0


@function("chr")
def _chr(call: Call, code: Any) -> Any:
    return "" if code < 0 else chr(code % 256)


@function("hex")
def _hex(call: Call, value: Any) -> Any:
    """The 64 bits of a number in hexadecimal without leading zeros, or two digits per byte."""
    if isinstance(value, int):
        bits, digits = value % 2**64, ""
        while bits or not digits:
            bits, digit = divmod(bits, 16)
            digits = "0123456789ABCDEF"[digit] + digits
        return digits
    return "".join(f"{b:02X}" for b in (value.encode() if isinstance(value, str) else value))


@function("unhex")
def _unhex(call: Call, text: Any) -> Any:
    digits = ["0123456789abcdef".find(c.lower()) if c.isascii() else -1 for c in text]
    if -1 in digits:
        return None
    if len(digits) % 2:
        digits.insert(0, 0)
    return bytes(16 * a + b for a, b in zip(digits[::2], digits[1::2], strict=True))


@function("initcap")
def _initcap(call: Call, text: Any) -> Any:
    """Small letters depend on the whole word (a sigma at its end)."""

    def capital(word: str) -> str:
        return word[:1].title() + word.lower()[len(word[:1].lower()) :]

    return " ".join(map(capital, text.split(" ")))


@function("translate")
def _translate(call: Call, text: Any, old: Any, new: Any) -> Any:
    """Replaces characters of ``old`` one by one; a character without a partner in ``new``
    vanishes."""
    return "".join(c if c not in old else new[old.index(c) : old.index(c) + 1] for c in text)
