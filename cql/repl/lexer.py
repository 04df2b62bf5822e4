"""Highlighting: a pygments lexer for the dialect, and the colours of the shell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    _TokenType,
)

from cql.repl import words
from cql.repl.text import Piece, Token, tokens

_PLAIN = {
    Piece.NUMBER: Number,
    Piece.NAME: Name,
    Piece.COMMENT: Comment,
    Piece.HINT: Comment.Preproc,
    Piece.PARAMETER: Name.Variable,
    Piece.SPACE: Text,
}

STYLE = {
    "pygments.keyword": "bold ansiblue",
    "pygments.keyword.type": "ansicyan",
    "pygments.keyword.constant": "ansimagenta",
    "pygments.name.function": "ansicyan",
    "pygments.name.variable": "ansimagenta",
    "pygments.literal.number": "ansimagenta",
    "pygments.literal.string": "ansigreen",
    "pygments.comment": "ansibrightblack italic",
    "pygments.comment.preproc": "ansiyellow",
    "pygments.error": "ansired underline",
    "prompt": "bold",
    "continuation": "ansibrightblack",
}


class CqlLexer(Lexer):  # type: ignore[misc]  # pygments has no types
    """Classifies words as keywords, types, constants or (before a parenthesis) functions. An
    unclosed string or comment is an error from its beginning on."""

    name = "CQL"
    aliases: ClassVar[list[str]] = ["cql"]
    filenames: ClassVar[list[str]] = ["*.cql"]

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, _TokenType, str]]:
        for token in tokens(text):
            yield token.start, _kind(token, text), token.text


def _kind(token: Token, text: str) -> _TokenType:
    match token.kind:
        case Piece.WORD:
            return _word(token.text.upper(), text[token.end : token.end + 1])
        case Piece.STRING:
            return String if len(token.text) > 1 and token.text.endswith("'") else Error
        case Piece.COMMENT if token.text.startswith("/*") and not token.text.endswith("*/"):
            return Error
        case Piece.SIGN:
            return Punctuation if token.text in "()[],;." else Operator
        case kind:
            return _PLAIN[kind]


def _word(word: str, following: str) -> _TokenType:
    if word in words.CONSTANTS:
        return Keyword.Constant
    if word in words.TYPES:
        return Keyword.Type
    if following == "(" and word.lower() in words.functions():
        return Name.Function
    return Keyword if word in words.keywords() else Name
