"""Damaged texts raise only ParseError, with a position and in time; texts that parse round-trip."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

import pytest

from cql.dialect import KEYWORDS, parse, position_of, to_sql
from cql.errors import ParseError
from tests.support import dialect_corpus

CORPUS = [
    *dialect_corpus.ALL,
    *(path.read_text(encoding="utf-8") for path in dialect_corpus.query_files()),
]
TOKEN = re.compile(r"\s+|'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|[A-Za-z_]\w*|\d+(?:\.\d+)?|.", re.S)
VOCABULARY = sorted({token for text in CORPUS for token in TOKEN.findall(text)} | set(KEYWORDS))
CHARACTERS = "()[]{}<>.,;:'\"`-+*/%=!|&^~?@#$\\_ \n\t\r\0aZé0951≥\u00a0\u2028\ufeff😀\ud800e"

#: CPU seconds that no machine, however slow, needs for a short text.
ENDLESS = 30

Mutation = Callable[[random.Random, str], str]


def on_tokens(change: Callable[[random.Random, list[str]], None]) -> Mutation:
    def mutate(rng: random.Random, text: str) -> str:
        tokens = TOKEN.findall(text)
        change(rng, tokens)
        return "".join(tokens)

    return mutate


@on_tokens
def delete_token(rng: random.Random, tokens: list[str]) -> None:
    if tokens:
        del tokens[rng.randrange(len(tokens))]


@on_tokens
def duplicate_token(rng: random.Random, tokens: list[str]) -> None:
    if tokens:
        at = rng.randrange(len(tokens))
        tokens[at:at] = [tokens[at], " "] * rng.choice((1, 1, 2, 5))


@on_tokens
def swap_tokens(rng: random.Random, tokens: list[str]) -> None:
    if tokens:
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[i], tokens[j] = tokens[j], tokens[i]


@on_tokens
def insert_token(rng: random.Random, tokens: list[str]) -> None:
    tokens.insert(rng.randint(0, len(tokens)), f" {rng.choice(VOCABULARY)} ")


@on_tokens
def replace_token(rng: random.Random, tokens: list[str]) -> None:
    if tokens:
        tokens[rng.randrange(len(tokens))] = rng.choice(VOCABULARY)


def delete_character(rng: random.Random, text: str) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + text[at + 1 :]


def insert_character(rng: random.Random, text: str) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(CHARACTERS) + text[at:]


def swap_case(rng: random.Random, text: str) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + text[at:].swapcase()


def splice(rng: random.Random, text: str) -> str:
    other = rng.choice(CORPUS)
    return text[: rng.randint(0, len(text))] + " " + other[rng.randint(0, len(other)) :]


def embed(rng: random.Random, text: str) -> str:
    other = rng.choice(CORPUS)
    at = rng.randint(0, len(text))
    return f"{text[:at]} ({other}) {text[at:]}"


MUTATIONS: tuple[Mutation, ...] = (
    delete_token,
    duplicate_token,
    swap_tokens,
    insert_token,
    replace_token,
    delete_character,
    insert_character,
    swap_case,
    splice,
    embed,
)


def mutants(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        text = rng.choice(CORPUS)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
            text = rng.choice(MUTATIONS)(rng, text)
        found.append(text)
    return found


def examine(text: str) -> str | None:
    """Parses a text. Returns a description of the parser's fault, or None."""
    start = time.thread_time()
    try:
        trees = parse(text)
    except ParseError as error:
        if time.thread_time() - start > ENDLESS:
            return "a refusal took far too long"
        if error.position is None or error.line is None or error.column is None:
            return "a refusal without a position"
        lines = text.split("\n")
        if error.line > len(lines) or error.column > len(lines[error.line - 1]) + 1:
            return f"the position {error.position} is outside of the text"
        str(error)
        return None if error.__cause__ is None else f"sqlglot failed: {error.__cause__!r}"
    except Exception as error:  # the parser may only raise ParseError
        return f"raised {error!r}"
    if time.thread_time() - start > ENDLESS:
        return "parsing took far too long"
    for tree in trees:
        printed = to_sql(tree)
        try:
            again = parse(printed)
        except ParseError as error:
            return f"printed {printed!r}, which is refused: {error}"
        if again != [tree]:
            return f"printed {printed!r}, which means something else: {to_sql(again[0])!r}"
        if position_of(tree) is None:
            return "a statement without a position"
    return None


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_damaged_texts(seed: int, full: bool) -> None:
    bad = []
    for text in mutants(seed, 100_000 if full else 2_000):
        if problem := examine(text):
            bad.append(f"{text!r}\n    {problem}")
            if len(bad) >= 20:
                break
    assert not bad, f"seed {seed}:\n" + "\n".join(bad)


def test_random_characters(seed: int, full: bool) -> None:
    rng = random.Random(seed)
    for _ in range(20_000 if full else 500):
        text = "".join(rng.choice(CHARACTERS) for _ in range(rng.randint(0, 40)))
        assert examine(text) is None, repr(text)


def test_random_words(seed: int, full: bool) -> None:
    rng = random.Random(seed)
    for _ in range(20_000 if full else 500):
        head = rng.choice(("SELECT ", "SELECT * FROM ", "CREATE STREAM s ", ""))
        text = head + " ".join(rng.choice(VOCABULARY) for _ in range(rng.randint(0, 15)))
        assert examine(text) is None, repr(text)
