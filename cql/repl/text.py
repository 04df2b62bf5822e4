"""The shell's view of an unfinished text: its strings and comments, and whether it is complete.

This scanner is not the parser: it must work on every half-typed line, and before the parser is
loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Piece(Enum):
    WORD = "word"
    NUMBER = "number"
    STRING = "string"
    NAME = "quoted name"
    COMMENT = "comment"
    HINT = "hint"
    PARAMETER = "parameter"
    SIGN = "sign"
    SPACE = "space"


#: Unclosed strings, names and comments reach to the end of the text.
_PIECES = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--[^\n]*)
  | (?P<hint>/\*\+(?:[^*]|\*(?!/))*(?:\*/)?)
  | (?P<block>/\*)
  | (?P<string>'(?:[^']|'')*'?)
  | (?P<name>"(?:[^"]|"")*"?|`(?:[^`]|``)*`?)
  | (?P<parameter>:[^\W\d]\w*)
  | (?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<word>[^\W\d]\w*)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {
    "space": Piece.SPACE,
    "comment": Piece.COMMENT,
    "hint": Piece.HINT,
    "string": Piece.STRING,
    "name": Piece.NAME,
    "parameter": Piece.PARAMETER,
    "number": Piece.NUMBER,
    "word": Piece.WORD,
    "sign": Piece.SIGN,
}
_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Token:
    kind: Piece
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def tokens(text: str) -> Iterator[Token]:
    """Cuts ``text`` into pieces without a gap; never fails."""
    at = 0
    while at < len(text):
        found = _PIECES.match(text, at)
        assert found is not None
        group = str(found.lastgroup)
        end = _comment_end(text, at) if group == "block" else found.end()
        kind = Piece.COMMENT if group == "block" else _KINDS[group]
        yield Token(kind, text[at:end], at)
        at = end


def _comment_end(text: str, start: int) -> int:
    """The end of the comment at ``start``; comments nest, as in the parser."""
    depth, at = 1, start + 2
    for edge in _EDGE.finditer(text, at):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def is_complete(text: str) -> bool:
    """Whether Enter should run ``text``.

    A complete text is empty, a command of the shell, or statements whose last one ends with ``;``
    (a statement set with ``END;``)."""
    if text.lstrip().startswith("\\") or not text.strip():
        return True
    if text.strip().lower() in ("exit", "quit", "help"):
        return True
    last: Token | None = None
    statement: list[str] = []
    in_set = False
    for token in tokens(text):
        if token.kind not in (Piece.SPACE, Piece.COMMENT, Piece.HINT):
            last = token
            if token.text == ";":
                in_set = in_set and statement != ["END"]
                statement = []
            else:
                statement.append(token.text.upper())
                in_set = in_set or statement[-3:] == ["STATEMENT", "SET", "BEGIN"]
                if in_set and statement[-1] == "BEGIN":
                    statement = []
        elif token.kind is not Piece.SPACE and not _closed(token.text):
            return False
    return last is not None and last.text == ";" and not in_set


def _closed(comment: str) -> bool:
    return comment.startswith("--") or comment.endswith("*/")


def significant(text: str) -> list[Token]:
    """The pieces without blanks and comments."""
    skipped = (Piece.SPACE, Piece.COMMENT, Piece.HINT)
    return [t for t in tokens(text) if t.kind not in skipped]
