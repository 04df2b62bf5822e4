"""Checks before the tokenizer, and limits on the length and the nesting of a text.

sqlglot silently closes comments and accepts odd characters. This scan refuses an unterminated
string, name or comment at its opening character, and replaces comments by blanks, so that offsets
stay.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from sqlglot.tokenizer_core import Token, TokenType

from cql.errors import ParseError, Position

MAX_TEXT = 1_000_000
"""Characters in one script."""
MAX_TOKENS = 20_000
"""Words and signs in one script: what the parser reads in well under a second."""
MAX_NESTING = 200
"""Parentheses, brackets and CASE within each other."""
MAX_HINTS = 100
"""``/*+ … */`` in one script."""
MAX_TREE_DEPTH = 1_000
"""Nodes from the root of a statement to a leaf; ``a + a + …`` is as deep as it is long."""

_BAD_CHARACTER = re.compile("[\x00\ud800-\udfff]")
_OPENING = re.compile(r"--|/\*|['\"`]")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NOT_NEWLINE = re.compile(r"[^\n]")
_TOKEN_LIKE = re.compile(r"""(?:'[^']*')+|(?:"[^"]*")+|(?:`[^`]*`)+|\w+|[^\s\w]""")
_QUOTED = {"'": "string", '"': "name", "`": "name"}


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class Places:
    """Turns offsets of one text into lines and columns."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        self._starts += [m.end() for m in re.finditer("\n", text)]

    def at(self, offset: int, length: int = 1) -> Position:
        offset = max(0, min(offset, len(self.text)))
        row = bisect_right(self._starts, offset) - 1
        return Position(row + 1, offset - self._starts[row] + 1, max(1, length))

    def error(
        self, message: str, offset: int, length: int = 1, hint: str | None = None
    ) -> ParseError:
        return ParseError(message, position=self.at(offset, length), hint=hint, text=self.text)


@dataclass(frozen=True, slots=True)
class HintText:
    """``/*+ … */``: ``start`` is the offset of the slash, ``body`` the offset of its content."""

    start: int
    body: int
    end: int


@dataclass(frozen=True, slots=True)
class Scanned:
    """A text with its comments replaced by blanks, and the hints of the text."""

    text: str
    hints: tuple[HintText, ...]


def scan(places: Places) -> Scanned:
    """Refuses invalid characters and unterminated pieces; replaces comments by blanks."""
    text = places.text
    if len(text) > MAX_TEXT:
        raise places.error(
            f"the text has {len(text):,} characters; at most {MAX_TEXT:,} are read",
            MAX_TEXT,
            hint="split the script",
        )
    if bad := _BAD_CHARACTER.search(text):
        code = ord(bad.group())
        name = "a NUL character" if code == 0 else f"a lone surrogate (U+{code:04X})"
        raise places.error(f"the text contains {name}", bad.start())
    pieces: list[str] = []
    hints: list[HintText] = []
    at = 0
    if text.startswith("\ufeff"):
        pieces.append(" ")
        at = 1
    while opening := _OPENING.search(text, at):
        start, sign = opening.start(), opening.group()
        pieces.append(text[at:start])
        if sign == "--":
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            pieces.append(" " * (end - start))
        elif sign == "/*":
            end = _comment_end(places, start)
            if text.startswith("/*+", start):
                hints.append(HintText(start, start + 3, end - 2))
            pieces.append(_NOT_NEWLINE.sub(" ", text[start:end]))
        else:
            end = _quoted_end(places, start, sign)
            pieces.append(text[start:end])
        at = end
    pieces.append(text[at:])
    blanked = "".join(pieces)
    if len(hints) > MAX_HINTS:
        raise places.error(f"at most {MAX_HINTS} hints are read", hints[MAX_HINTS].start)
    _check_length(blanked, 0, places)
    for hint in hints:
        _check_length(text[hint.body : hint.end], hint.body, places)
    return Scanned(blanked, tuple(hints))


def _check_length(text: str, offset: int, places: Places) -> None:
    over = next(islice(_TOKEN_LIKE.finditer(text), MAX_TOKENS, None), None)
    if over is not None:
        raise places.error(
            f"the text has more than {MAX_TOKENS:,} words and signs",
            offset + over.start(),
            hint="split the script, or put long lists into a table",
        )


def _quoted_end(places: Places, start: int, quote: str) -> int:
    at = start + 1
    while True:
        end = places.text.find(quote, at)
        if end < 0:
            raise places.error(
                f"this {_QUOTED[quote]} is not closed",
                start,
                hint=f"add {quote} at its end (a {quote} inside is written twice)",
            )
        if places.text.startswith(quote, end + 1):
            at = end + 2
        else:
            return end + 1


def _comment_end(places: Places, start: int) -> int:
    depth, at = 1, start + 2
    while edge := _COMMENT_EDGE.search(places.text, at):
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
        if depth == 0:
            return at
    raise places.error("this comment is not closed", start, hint="add */ at its end")


_NESTED_TYPES = frozenset({TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT})


def check_nesting(tokens: Sequence[Token], places: Places) -> None:
    """Refuses unpaired brackets, and ``((((…))))`` nested too deeply for the parser's stack."""
    open_tokens: list[Token] = []
    cases = angles = 0
    for i, token in enumerate(tokens):
        match token.token_type:
            case TokenType.L_PAREN | TokenType.L_BRACKET | TokenType.DOTCARET:
                open_tokens.append(token)
            case TokenType.R_PAREN | TokenType.R_BRACKET:
                _close(token, open_tokens, places)
            case TokenType.CASE:
                cases += 1
            case TokenType.END:
                cases = max(0, cases - 1)
            case TokenType.LT if i and tokens[i - 1].token_type in _NESTED_TYPES:
                angles += 1
            case TokenType.GT:
                angles = max(0, angles - 1)
            case TokenType.SEMICOLON:
                if open_tokens:
                    _unclosed(open_tokens[-1], places)
                cases = angles = 0
        if len(open_tokens) + cases + angles > MAX_NESTING:
            raise places.error(
                f"parentheses, brackets and CASE nest deeper than {MAX_NESTING}",
                token.start,
                hint="break the statement up with views or CTEs",
            )
    if open_tokens:
        _unclosed(open_tokens[-1], places)


def _close(token: Token, open_tokens: list[Token], places: Places) -> None:
    wanted = "(" if token.token_type == TokenType.R_PAREN else "["
    if not open_tokens:
        raise places.error(f"this {token.text} closes nothing", token.start, hint="remove it")
    opened = open_tokens.pop()
    if opened.text != wanted:
        at = places.at(opened.start)
        raise places.error(
            f"{token.text} cannot close the {opened.text} of line {at.line}, column {at.column}",
            token.start,
            hint=f"close it with {'])'[opened.text == '(']} first",
        )


def _unclosed(opened: Token, places: Places) -> None:
    raise places.error(
        f"this {opened.text} is not closed",
        opened.start,
        hint=f"add {'])'[opened.text == '(']}",
    )
