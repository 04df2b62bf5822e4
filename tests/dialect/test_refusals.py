"""The hint of every refusal differs from the words at fault. A text that follows the hint is not
refused again with the same message and hint at the same position."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from cql.errors import CqlError
from tests.support.bind_fixtures import world
from tests.support.dialect_corpus import ALL
from tests.support.refused_texts import BIND_CASES, DIALECT_CASES, FOREIGN

W = world()
WRITTEN = (
    *(text.replace("^", "") for text, _, _ in BIND_CASES),
    *(text.replace("¦", "", 1) for text, _, _ in DIALECT_CASES),
    *FOREIGN,
)
#: A string, a word or a sign: the part of a text that a mistake drops, repeats or misspells.
_PARTS = re.compile(r"'[^']*'|\w+|[^\w\s]")
#: Matches a hint that shows a form instead of a replacement.
_FORM = re.compile(r"[\[<…]|single quotes")


def refusal(text: str) -> CqlError | None:
    """The error of the parser or the binder for a text, or None."""
    try:
        W.bind(text)
    except CqlError as error:
        return error
    return None


def underlined(text: str, error: CqlError) -> tuple[int, int]:
    """The start and the end of the underlined part of the text."""
    assert error.position is not None
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: error.position.line - 1])) + error.position.column - 1
    return start, start + error.position.length


def replacements(hint: str) -> Iterator[str]:
    """The replacements that a hint offers for the underlined words."""
    if found := re.fullmatch(r"did you mean (.*)\?", hint):
        yield from found[1].split(" or ")
    elif found := re.match(r"(?:one of|columns|its columns|there are|FROM has): (.*)", hint):
        yield from found[1].split(", ")
    elif (found := re.match(r"write (.*?)(?:,| for |$)", hint)) and not _FORM.search(found[1]):
        yield from found[1].split(" or ")


def followed(text: str, error: CqlError, hint: str) -> Iterator[str]:
    """The texts that follow the hint."""
    start, end = underlined(text, error)
    if hint.startswith("add ") and re.fullmatch(r"add (\S+)(?: at its end.*)?", hint):
        yield f"{text} {hint.split()[1]}" if hint[4:] in ")]" else text + hint.split()[1]
    elif hint in ("remove it", "remove the comma"):
        yield text[:start] + text[end:]
    elif found := re.fullmatch(r"a comma is probably missing before '(.*)'", hint):
        at = start if found[1] in text[start:end] else text.rfind(found[1], 0, start)
        yield f"{text[:at].rstrip()}, {text[at:]}"
    for words in replacements(hint):
        yield text[:start] + behind(text[:start], words) + text[end:]


def behind(before: str, words: str) -> str:
    """The words of a clause, without the first words if ``before`` ends with them."""
    parts, said = words.split(), before.upper().split()
    known = next((n for n in range(len(parts), 0, -1) if said[-n:] == parts[:n]), 0)
    return " ".join(parts[known:])


def check(text: str, error: CqlError) -> None:
    hint = error.hint
    if hint is None:
        return
    assert hint, text
    assert hint.lower() not in error.message.lower(), (text, error.message, hint)
    if error.position is None:
        return
    start, end = underlined(text, error)
    shown = text[start:end].lower()
    for word in replacements(hint):
        assert word.lower() != shown, (text, error.message, hint)
    for better in followed(text, error, hint):
        again = refusal(better)
        if again is not None:
            said = (again.message, again.hint, again.position)
            assert said != (error.message, hint, error.position), (text, better)


def test_following_a_hint_leads_on() -> None:
    refused = 0
    for text in WRITTEN:
        error = refusal(text)
        if error is not None:
            refused += 1
            check(text, error)
    assert refused > 250


def mistake(text: str, chance: random.Random) -> str:
    """The text with one part dropped, repeated or misspelt, or cut off behind this part."""
    part = chance.choice([*_PARTS.finditer(text)])
    start, end = part.span()
    misspelt = f"{text[:start]}{part[0][:-1]}x{part[0][-1]}{text[end:]}"
    made = (text[:start] + text[end:], f"{text[:end]} {part[0]}{text[end:]}", misspelt, text[:end])
    return chance.choice(made)


def test_hints_of_mistakes(seed: int, full: bool) -> None:
    chance = random.Random(seed if full else 1)
    refused = 0
    for _ in range(40 if full else 1):
        for text in (*ALL, *WRITTEN):
            if len(text) < 2_000:
                wrong = mistake(text, chance)
                error = refusal(wrong)
                if error is not None:
                    refused += 1
                    check(wrong, error)
    assert refused > 300
