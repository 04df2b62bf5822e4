"""Text functions on Python strings, and casts between text and everything else.

Positions and lengths count code points, as in Spark. Regular expressions are those of RE2 (through
pyarrow): for every pattern, the time of matching is linear in the text's length; RE2 has no
look-around and no back-references.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cql.base.types import DataType, Kind
from cql.planner.interpret import datetime_patterns as patterns
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.time import DAY, SECOND, civil_from_days
from cql.planner.nodes.expr import Value

MAX_REPEAT = 1 << 24  # largest result in bytes; a row that needs more is a bad row


# -- casts -------------------------------------------------------------------------------------

_SPACE = "".join(map(chr, range(33))) + "\x7f"
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?\Z")
_SPECIAL = {
    "inf": "inf",
    "+inf": "inf",
    "infinity": "inf",
    "+infinity": "inf",
    "-inf": "-inf",
    "-infinity": "-inf",
    "nan": "nan",
}
_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")


def from_text(text: str, to: DataType) -> Value:
    """The ANSI CAST of a string. Raises EvaluationError if it does not convert to ``to``."""
    trimmed = text.strip(_SPACE)
    value: Value = None
    match to.kind:
        case Kind.BINARY:
            return text.encode()
        case Kind.BOOLEAN:
            word = trimmed.lower()
            value = True if word in _TRUE else False if word in _FALSE else None
        case Kind.TINYINT | Kind.SMALLINT | Kind.INT | Kind.BIGINT:
            value = _integer(trimmed, _BITS[to.kind])
        case Kind.FLOAT | Kind.DOUBLE:
            value = _number(trimmed, to.kind is Kind.FLOAT)
        case Kind.DECIMAL:
            value = _decimal(trimmed, to)
        case Kind.DATE:
            value = patterns.read_date(trimmed)
        case Kind.TIMESTAMP:
            value = patterns.read_timestamp(trimmed, zoned=True)
        case Kind.TIMESTAMP_NTZ:
            value = patterns.read_timestamp(trimmed, zoned=False)
    if value is None:
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise EvaluationError("cast", f"the text {shown!r} is not a valid {to.with_limit}")
    return value


def _integer(text: str, bits: int) -> int | None:
    if not _INTEGER.match(text) or len(text.lstrip("+-0")) > 19:
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def _number(text: str, narrow: bool) -> float | None:
    word = _SPECIAL.get(text.lower())
    if word is None and not _NUMBER.match(text):
        return None
    value = float(word or text)
    if narrow:
        import numpy as np

        with np.errstate(over="ignore"):
            return float(np.float32(value))
    return value


def _decimal(text: str, to: DataType) -> int | None:
    from decimal import ROUND_HALF_UP, Context, Decimal

    if not _NUMBER.match(text):
        return None
    number = Decimal(text)
    if number and number.adjusted() >= to.precision - to.scale:
        return None
    if number.adjusted() < -to.scale - 1:
        return 0
    context = Context(prec=max(60, len(text) + 40), rounding=ROUND_HALF_UP)
    value = int(context.quantize(number.scaleb(to.scale, context), Decimal(1)))
    return value if abs(value) < 10**to.precision else None


def to_text(value: Value, source: DataType) -> str:
    """The CAST of a value to a string, in Spark's format."""
    match source.kind, value:
        case Kind.BINARY, bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as e:
                raise EvaluationError("cast", "the bytes are not valid UTF-8") from e
        case Kind.BOOLEAN, _:
            return "true" if value else "false"
        case Kind.DECIMAL, int():
            digits = str(abs(value)).zfill(source.scale + 1)
            point = len(digits) - source.scale
            sign = "-" if value < 0 else ""
            return (f"{sign}{digits[:point]}.{digits[point:]}").rstrip(".")
        case Kind.DATE, int():
            return patterns.write_date(value)
        case ((Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ), int()):
            return patterns.write_timestamp(value)
        case Kind.INTERVAL, int():
            return _interval_text(value)
        case _, float():
            return real_text(value, source.kind is Kind.FLOAT)
    return str(value)


def real_text(x: float, narrow: bool) -> str:
    """A float in Java's format: the shortest digits that read back as ``x``, with an exponent
    (1.0E7) from 10**7 on and below 0.001. ``narrow``: x is a binary32 value."""
    if x != x:
        return "NaN"
    if x in (float("inf"), float("-inf")):
        return "Infinity" if x > 0 else "-Infinity"
    if narrow:
        import numpy as np

        text = np.format_float_scientific(np.float32(x), unique=True, trim="0")
    else:
        import numpy as np

        text = np.format_float_scientific(np.float64(x), unique=True, trim="0")
    mantissa, exponent = text.split("e")
    power = int(exponent)
    if x == 0 or -3 <= power < 7:
        return _plain(mantissa, power)
    if mantissa.endswith("."):
        mantissa += "0"
    return f"{mantissa}E{power}"


def _plain(mantissa: str, power: int) -> str:
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = whole + fraction.rstrip("0")
    point = len(whole) + power
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}" if digits.strip("0") else f"{sign}0.0"
    digits = digits.ljust(point, "0")
    return f"{sign}{digits[:point]}.{digits[point:] or '0'}"


def _interval_text(micros: int) -> str:
    days, rest = divmod(abs(micros), DAY)
    seconds, part = divmod(rest, SECOND)
    fraction = f".{part:06}".rstrip("0") if part else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
    return f"INTERVAL '{'-' if micros < 0 else ''}{days} {clock}' DAY TO SECOND"


# -- LIKE and regular expressions ---------------------------------------------------------------


@lru_cache(maxsize=1024)
def like_segments(pattern: str, escape: str) -> tuple[tuple[str | None, ...] | None, ...]:
    """The runs of a LIKE pattern, with None for each ``%`` between two runs. A run is a tuple of
    characters; None in a run matches any one character."""
    out: list[tuple[str | None, ...] | None] = []
    run: list[str | None] = []
    at = 0
    while at < len(pattern):
        c = pattern[at]
        if c == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise EvaluationError(
                    "value", f"the LIKE pattern {pattern!r} escapes something else than % or _"
                )
            run.append(pattern[at])
        elif c == "%":
            out += [tuple(run), None]
            run = []
        else:
            run.append(None if c == "_" else c)
        at += 1
    out.append(tuple(run))
    return tuple(out)


def _fits(text: str, at: int, run: tuple[str | None, ...]) -> bool:
    return at + len(run) <= len(text) and all(
        c is None or c == text[at + k] for k, c in enumerate(run)
    )


def like(text: str, pattern: str, escape: str = "\\") -> bool:
    """LIKE without backtracking: each run between two ``%`` matches at the first possible
    position."""
    runs = [r for r in like_segments(pattern, escape) if r is not None]
    if len(runs) == 1:
        return len(text) == len(runs[0]) and _fits(text, 0, runs[0])
    first, *middle, last = runs
    if not _fits(text, 0, first):
        return False
    at = len(first)
    for run in middle:
        at = _find(text, at, run)
        if at < 0:
            return False
        at += len(run)
    return len(text) - len(last) >= at and _fits(text, len(text) - len(last), last)


def _find(text: str, at: int, run: tuple[str | None, ...]) -> int:
    if None not in run:
        return text.find("".join(c for c in run if c is not None), at)
    return next((k for k in range(at, len(text) - len(run) + 1) if _fits(text, k, run)), -1)


def ilike(text: str, pattern: str, escape: str = "\\") -> bool:
    return like(text.lower(), pattern.lower(), escape.lower())


def _run(name: str, text: str, **options: Any) -> Any:
    """The result of one pyarrow string kernel for one text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kernel: Any = getattr(pc, name)
    try:
        return kernel(pa.array([text], pa.string()), **options)[0].as_py()
    except pa.ArrowInvalid as e:
        pattern = str(options["pattern"])
        raise EvaluationError(
            "value", f"the regular expression {pattern!r} is not valid in RE2: {e}"
        ) from e


def rlike(text: str, pattern: str) -> bool:
    return bool(_run("match_substring_regex", text, pattern=pattern))


@lru_cache(maxsize=1024)
def extraction(pattern: str, wanted: tuple[int, ...]) -> str:
    """``pattern`` with a name, ``found`` and its number, for each group that is ``wanted``; group 0
    is the whole match. pyarrow's extraction needs names, and RE2 is faster with few groups. Raises
    EvaluationError if there is no such group."""
    out, groups = ["(?P<found0>"] if 0 in wanted else [], 0
    at, in_class = 0, False
    while at < len(pattern):
        c = pattern[at]
        if c == "\\":
            if pattern.startswith("\\Q", at):
                end = pattern.find("\\E", at)
                end = len(pattern) if end < 0 else end + 2
            else:
                end = at + 2
            out.append(pattern[at:end])
            at = end
            continue
        if in_class:
            in_class = c != "]"
        elif c == "[":
            in_class = True
            skip = 2 if pattern.startswith("[^]", at) else 1 if pattern.startswith("[]", at) else 0
            out.append(pattern[at : at + skip])
            at += skip
            c = pattern[at : at + 1]
        elif c == "(":
            named = re.match(r"\(\?P?<([A-Za-z_]\w*)>", pattern[at:])
            if named or not pattern.startswith("(?", at):
                groups += 1
                out.append(f"(?P<found{groups}>" if groups in wanted else "(?:")
                at += named.end() if named else 1
                continue
        out.append(c)
        at += 1
    for group in wanted:
        if not 0 <= group <= groups:
            raise EvaluationError(
                "value", f"regexp_extract: the pattern has {groups} groups, not {group}"
            )
    return "".join(out) + (")" if 0 in wanted else "")


def regexp_extract(text: str, pattern: str, group: int) -> str:
    found = _run("extract_regex", text, pattern=extraction(pattern, (group,)))
    return "" if found is None else str(found[f"found{group}"] or "")


@lru_cache(maxsize=1024)
def replacement_of(java: str) -> str:
    out, at = [], 0
    while at < len(java):
        c, following = java[at], java[at + 1 : at + 2]
        if c == "\\" and following:
            out.append("\\\\" if following == "\\" else following)
            at += 2
        elif c == "$" and following.isdigit():
            out.append("\\" + following)
            at += 2
        elif c == "$":
            raise EvaluationError("value", "regexp_replace: $ in the replacement names no group")
        else:
            out.append("\\\\" if c == "\\" else c)
            at += 1
    return "".join(out)


def regexp_replace(text: str, pattern: str, replacement: str) -> str:
    options = {"pattern": pattern, "replacement": replacement_of(replacement)}
    if (len(text) + 1) * len(replacement) > MAX_REPEAT:
        # Matches do not overlap: each reference in the replacement copies at most the whole text.
        found = int(_run("count_substring_regex", text, pattern=pattern))
        _bounded(found * len(replacement) + (1 + replacement.count("$")) * len(text))
    return str(_run("replace_substring_regex", text, **options))


# -- functions ---------------------------------------------------------------------------------


def substring(text: str, pos: int, length: int = 1 << 40) -> str:
    """``length`` characters from position ``pos``, counted from 1 (0 counts as 1); a negative
    ``pos`` counts from the end."""
    start = pos - 1 if pos > 0 else len(text) + pos if pos < 0 else 0
    end = start + length
    return text[max(start, 0) : max(end, 0)] if end > start else ""


def _pad(left: bool) -> Callable[..., str]:
    def run(text: str, length: int, fill: str = " ") -> str:
        if length <= len(text) or not fill:
            return text[: max(length, 0)]
        need = _bounded(length) - len(text)
        padding = (fill * (need // len(fill) + 1))[:need]
        return padding + text if left else text + padding

    return run


def _bounded(size: int) -> int:
    if size > MAX_REPEAT:
        raise EvaluationError("value", f"a text of {size} characters is too long")
    return size


def repeat(text: str, n: int) -> str:
    _bounded(len(text) * max(n, 0))
    return text * max(n, 0)


def split_part(text: str, delimiter: str, part: int) -> str:
    if part == 0:
        raise EvaluationError("value", "split_part counts parts from 1 (or from -1, the last)")
    parts = text.split(delimiter) if delimiter else [text]
    index = part - 1 if part > 0 else len(parts) + part
    return parts[index] if 0 <= index < len(parts) else ""


def translate(text: str, source: str, to: str) -> str:
    table: dict[int, str | None] = {}
    for k, c in enumerate(source):
        table.setdefault(ord(c), to[k] if k < len(to) else None)
    return text.translate(table)


def locate(part: str, text: str, pos: int = 1) -> int:
    if not part:
        return int(pos > 0)
    return text.find(part, pos - 1) + 1 if pos > 0 else 0


def initcap(text: str) -> str:
    return " ".join(w[:1].title() + w.lower()[len(w[:1].lower()) :] for w in text.split(" "))


def chr_(n: int) -> str:
    return "" if n < 0 else chr(n & 0xFF)


_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def hex_(value: int | str | bytes) -> str:
    if isinstance(value, int):
        return f"{value % 2**64:X}"
    data = value.encode() if isinstance(value, str) else value
    _bounded(2 * len(data))
    return data.hex().upper()


def unhex(text: str) -> bytes | None:
    if not set(text) <= _HEX_DIGITS:
        return None
    return bytes.fromhex("0" * (len(text) % 2) + text)


def replace(text: str, old: str, new: str = "") -> str:
    if not old:
        return text
    if len(new) > len(old):
        _bounded(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _size(value: str | bytes) -> int:
    return len(value.encode()) if isinstance(value, str) else len(value)


def concat(*parts: Any) -> Any:
    _bounded(sum(len(p) for p in parts))
    return parts[0][:0].join(parts)


#: Functions that have a value for all arguments, if the text that they make is not too long.
NEVER_FAIL: dict[str, Callable[..., Any]] = {
    "upper": str.upper,
    "lower": str.lower,
    "length": len,
    "octet_length": _size,
    "trim": lambda s, chars=" ": s.strip(chars) if chars else s,
    "ltrim": lambda s, chars=" ": s.lstrip(chars) if chars else s,
    "rtrim": lambda s, chars=" ": s.rstrip(chars) if chars else s,
    "substring": substring,
    "left": lambda s, n: substring(s, 1, n),
    "right": lambda s, n: substring(s, -n) if n > 0 else "",
    "concat": concat,
    "replace": replace,
    "translate": translate,
    "reverse": lambda s: s[::-1],
    "locate": locate,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": lambda s, part: part in s,
    "initcap": initcap,
    "ascii": lambda s: ord(s[0]) if s else 0,
    "chr": chr_,
    "unhex": unhex,
    "dayname": lambda d: patterns.DAY_NAMES[(d + 3) % 7][:3],
    "monthname": lambda d: patterns.MONTH_NAMES[civil_from_days(d)[1] - 1][:3],
}
#: Functions that raise EvaluationError for some arguments.
MAY_FAIL: dict[str, Callable[..., Any]] = {
    "repeat": repeat,
    "lpad": _pad(True),
    "rpad": _pad(False),
    "split_part": split_part,
    "hex": hex_,
    "like": like,
    "ilike": ilike,
    "rlike": rlike,
    "regexp_extract": regexp_extract,
    "regexp_replace": regexp_replace,
    "to_date": patterns.parse_date,
    "to_timestamp": patterns.parse_timestamp,
    "date_format": patterns.date_format,
}
TEXT_FUNCTIONS = {**NEVER_FAIL, **MAY_FAIL}
#: The index of the one argument that can make a function fail. ``resolve`` checks a constant one.
FAILS_BY = {
    "like": 1,
    "ilike": 1,
    "rlike": 1,
    "regexp_replace": 1,
    "date_format": 1,
    "split_part": 2,
    "lpad": 1,
    "rpad": 1,
}
