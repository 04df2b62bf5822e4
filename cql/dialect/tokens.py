"""The words and signs of the dialect, and the pass that finds the windows among the brackets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sqlglot import tokens
from sqlglot.tokenizer_core import Token, TokenType

from cql.dialect.lexical import words

WINDOW_OPEN = TokenType.DOTCARET
"""The ``[`` of a stream window. TokenType is closed; only ClickHouse's tokenizer makes this one."""

SIGNS = {
    "||": TokenType.DPIPE,
    "<=": TokenType.LTE,
    ">=": TokenType.GTE,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "==": TokenType.EQ,
    "<=>": TokenType.NULLSAFE_EQ,
    "=>": TokenType.FARROW,
    "::": TokenType.DCOLON,
    "≥": TokenType.GTE,
    "≤": TokenType.LTE,
    "≠": TokenType.NEQ,
    "\\GEQ": TokenType.GTE,
    "\\LEQ": TokenType.LTE,
    "\\NEQ": TokenType.NEQ,
}

RESERVED: dict[str, TokenType] = {
    word: tokens.Tokenizer.KEYWORDS[word]
    for word in words(
        "ALL AND AS BETWEEN CASE CROSS DISTINCT ELSE END ESCAPE EXCEPT EXISTS FALSE FROM FULL "
        "HAVING "
        "ILIKE IN INNER INTERSECT INTERVAL INTO IS JOIN LEFT LIKE LIMIT NATURAL "
        "NOT NULL ON OR OUTER OVER QUALIFY REGEXP RIGHT RLIKE SELECT THEN TRUE "
        "UNION USING VALUES WHEN WHERE WITH"
    )
}
RESERVED |= {
    word: tokens.Tokenizer.KEYWORDS[word]
    for word in ("GROUP BY", "GROUPING SETS", "ORDER BY", "PARTITION BY")
}
"""Words that are never names unless quoted."""

_SOFT: dict[str, TokenType] = {
    word: tokens.Tokenizer.KEYWORDS[word]
    for word in words(
        "ANTI ASC ASOF CUBE CURRENT_DATE CURRENT_TIMESTAMP DESC DIV FILTER FIRST OFFSET RANGE "
        "RECURSIVE ROLLUP ROW ROWS SEMI TABLE"
    )
}
_SOFT["MATCH_RECOGNIZE"] = TokenType.MATCH_RECOGNIZE

TYPES: dict[str, TokenType] = {
    word: tokens.Tokenizer.KEYWORDS[word]
    for word in words(
        "ARRAY BIGINT BINARY BOOL BOOLEAN BYTE CHAR DATE DEC DECIMAL DOUBLE FLOAT INT INTEGER LONG "
        "MAP "
        "NUMERIC REAL SHORT SMALLINT STRING STRUCT TEXT TIME TIMESTAMP TIMESTAMPTZ TIMESTAMP_LTZ "
        "TIMESTAMP_NTZ TINYINT VARBINARY VARCHAR"
    )
}
TYPES["DOUBLE PRECISION"] = TokenType.DOUBLE

RESERVED_TOKENS = frozenset(RESERVED.values())

RELATION_TO_STREAM = ("ISTREAM", "DSTREAM", "RSTREAM")
WINDOW_WORDS = (
    "RANGE",
    "ROWS",
    "SLIDE",
    "CUMULATE",
    "WA",
    "OFFSET",
    "TIME ZONE",
    "NOW",
    "UNBOUNDED",
    "PARTITION BY",
    "SESSION",
)
_CLAUSE_WORDS = words(
    "ISTREAM DSTREAM RSTREAM SLIDE WA NOW UNBOUNDED WINDOW SESSION EMIT CHANGES FINAL CLOSE STREAM "
    "STREAMS VIEW CONSTANT CREATE REPLACE INSERT DROP SET RESET SHOW DESCRIBE EXPLAIN LOGICAL "
    "PHYSICAL "
    "ANALYZE MERMAID KERNEL DECLARE STOP QUERY QUERIES TABLES FUNCTIONS SETTINGS LATE BAD VIEWS "
    "CONSTANTS ORDERED WITHIN WATERMARK DELAY UPDATE KEY PRIMARY QUEUE APPEND SHED RANDOM FIFO "
    "LINECUTTING PLACE WINDOWS LAZY EAGER RATE HZ KHZ MHZ IDLE AFTER HEARTBEAT EVERY SLACK MAX "
    "ADVANCE ZONE "
    "PUNCTUATE FAIL KEEP OUTPUT OPTIONS FORMAT COMMENT DESCRIPTOR TUMBLE HOP CUMULATE TRY_CAST "
    "CAST "
    "EXTRACT SYSTEM_TIME NULLS LAST MATCH_CONDITION DEFINE MEASURES PATTERN OF FOR IF BY "
    "NANOSECONDS MICROSECONDS MILLISECONDS SECONDS MINUTES HOURS DAYS WEEKS "
    "NANOSECOND MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH YEAR"
)

KEYWORDS: tuple[str, ...] = tuple(
    sorted({w for k in (*RESERVED, *_SOFT, *TYPES, *_CLAUSE_WORDS) for w in k.split()})
)
"""Every word with a meaning of its own, upper case: for completion and highlighting."""


class CqlTokenizer(tokens.Tokenizer):
    """Few keywords: every word that the grammar does not need stays an ordinary name."""

    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
    KEYWORDS: ClassVar[dict[str, TokenType]] = {**SIGNS, **RESERVED, **_SOFT, **TYPES}
    SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {
        **tokens.Tokenizer.SINGLE_TOKENS,
        "≥": TokenType.GTE,
        "≤": TokenType.LTE,
        "≠": TokenType.NEQ,
    }
    COMMANDS: ClassVar[set[TokenType]] = set()


# sqlglot puts n'…' and {# … #} into every dialect; comments are blanked before this sees a text
CqlTokenizer._FORMAT_STRINGS = {}
CqlTokenizer._COMMENTS = {}


_INDEX_FOLLOWERS = frozenset(
    {
        TokenType.R_BRACKET,
        TokenType.COMMA,
        TokenType.PLUS,
        TokenType.DASH,
        TokenType.STAR,
        TokenType.SLASH,
        TokenType.MOD,
        TokenType.DIV,
        TokenType.DPIPE,
        TokenType.DOT,
        TokenType.DCOLON,
        TokenType.L_BRACKET,
        TokenType.L_PAREN,
    }
)
_OPERAND_WORDS = frozenset({"RANGE", "ROWS", "SLIDE", "CUMULATE", "WA", "SESSION"})


def mark_windows(toks: Sequence[Token]) -> list[Token]:
    """Retypes the ``[`` that opens a window wherever the words behind it say so.

    ``m[rows]``, ``a[range + 1]`` and ``a[wa.x]`` stay an index. FROM items need no mark: there
    every bracket is a window. (No parser hook can decide this: sqlglot loops on a bracket left.)
    """
    marked = list(toks)
    for i, tok in enumerate(toks):
        if i and tok.token_type in RESERVED_TOKENS and _follows_dot(tok, toks[i - 1]):
            marked[i] = Token(TokenType.VAR, tok.text, tok.line, tok.col, tok.start, tok.end)
        if tok.token_type == TokenType.L_BRACKET and _opens_window(toks, i):
            marked[i] = Token(WINDOW_OPEN, tok.text, tok.line, tok.col, tok.start, tok.end)
    return marked


def _follows_dot(tok: Token, before: Token) -> bool:
    """``window.end`` (Spark's column) is a name although END is reserved."""
    return before.token_type == TokenType.DOT and before.end + 1 == tok.start


def _opens_window(toks: Sequence[Token], i: int) -> bool:
    if i + 2 >= len(toks):
        return False
    word, follower = toks[i + 1], toks[i + 2]
    if word.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return False
    text = word.text.upper()
    if text == "PARTITION BY":
        return True
    return text in _OPERAND_WORDS and follower.token_type not in _INDEX_FOLLOWERS
