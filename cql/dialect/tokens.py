"""The words and signs of the dialect, and the pass that tells windows from other brackets."""

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
    "WITH RESTS",
)
_CLAUSE_WORDS = words(
    "ISTREAM DSTREAM RSTREAM SLIDE WA NOW UNBOUNDED WINDOW SESSION EMIT CHANGES FINAL CLOSE STREAM "
    "STREAMS VIEW CONSTANT CREATE REPLACE INSERT DROP SET RESET SHOW DESCRIBE EXPLAIN LOGICAL "
    "PHYSICAL "
    "ANALYZE MERMAID KERNEL DECLARE STOP MATERIALIZED REFRESH FRESHNESS FULL QUERY "
    "QUERIES TABLES FUNCTIONS SETTINGS LATE BAD VIEWS "
    "CONSTANTS ORDERED WITHIN WATERMARK DELAY UPDATE KEY CHANGELOG DEBEZIUM PRIMARY QUEUE "
    "APPEND SHED RANDOM FIFO LINECUTTING PLACE ADAPTIVE STALENESS UNDER "
    "WINDOWS LAZY EAGER RATE HZ KHZ MHZ TOLERANCE IDLE AFTER HEARTBEAT EVERY SLACK MAX "
    "ADVANCE ZONE RESTS "
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
    """A tokenizer with few keywords: a word that the grammar does not need is an ordinary name."""

    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
    KEYWORDS: ClassVar[dict[str, TokenType]] = {**SIGNS, **RESERVED, **_SOFT, **TYPES}
    SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {
        **tokens.Tokenizer.SINGLE_TOKENS,
        "≥": TokenType.GTE,
        "≤": TokenType.LTE,
        "≠": TokenType.NEQ,
    }
    COMMANDS: ClassVar[set[TokenType]] = set()


# sqlglot adds n'…' and {# … #} to every dialect; ``scan`` blanks the comments before tokenizing
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
    """Retypes each ``[`` that opens a window, judged by the words after it.

    ``m[rows]``, ``a[range + 1]`` and ``a[wa.x]`` stay an index. After FROM items, every bracket is
    a window and needs no mark. (No parser hook can decide this: sqlglot loops on a bracket that a
    hook leaves.)
    """
    marked = list(toks)
    cases = 0
    for i, tok in enumerate(toks):
        if i and tok.token_type in RESERVED_TOKENS and _is_name(toks, i, marked[i - 1], cases):
            # treated like a quoted name, and printed as one
            dot = toks[i - 1].token_type == TokenType.DOT
            kind = TokenType.VAR if dot else TokenType.IDENTIFIER
            marked[i] = Token(kind, tok.text, tok.line, tok.col, tok.start, tok.end)
        else:
            cases += (tok.token_type == TokenType.CASE) - (tok.token_type == TokenType.END)
        if tok.token_type == TokenType.L_BRACKET and _opens_window(toks, i):
            marked[i] = Token(WINDOW_OPEN, tok.text, tok.line, tok.col, tok.start, tok.end)
    return marked


_COMPARISONS = frozenset(t for t in SIGNS.values() if t not in (TokenType.DCOLON, TokenType.FARROW))
_BINARY = _COMPARISONS | {
    TokenType.PLUS,
    TokenType.DASH,
    TokenType.SLASH,
    TokenType.MOD,
    TokenType.EQ,
    TokenType.LT,
    TokenType.GT,
    TokenType.AND,
    TokenType.OR,
}
#: After these tokens, only an operand or a name can begin, no clause.
_OPERAND_AHEAD = _BINARY | {
    TokenType.SELECT,
    TokenType.DISTINCT,
    TokenType.COMMA,
    TokenType.L_PAREN,
    TokenType.WHERE,
    TokenType.HAVING,
    TokenType.NOT,
    TokenType.BETWEEN,
    TokenType.CASE,
    TokenType.WHEN,
    TokenType.THEN,
    TokenType.ELSE,
    TokenType.GROUP_BY,
    TokenType.ORDER_BY,
    TokenType.PARTITION_BY,
    TokenType.FROM,
    TokenType.JOIN,
    TokenType.ON,
}
#: Before these tokens, an operand or a name has ended.
_OPERAND_BEHIND = _BINARY | {
    TokenType.COMMA,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
    TokenType.FROM,
    TokenType.ALIAS,
    TokenType.DOT,
    TokenType.DCOLON,
    TokenType.STAR,
    TokenType.IS,
    TokenType.IN,
    TokenType.BETWEEN,
    TokenType.LIKE,
    TokenType.THEN,
    TokenType.WHEN,
    TokenType.ELSE,
    TokenType.END,
    TokenType.ASC,
    TokenType.DESC,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.ORDER_BY,
    TokenType.HAVING,
    TokenType.LIMIT,
    TokenType.OFFSET,
    TokenType.UNION,
    TokenType.SEMICOLON,
    *TYPES.values(),
}
#: Further tokens that may follow a table.
_TABLE_BEHIND = frozenset(
    RESERVED[w] for w in words("CROSS FULL INNER JOIN LEFT NATURAL ON RIGHT USING")
)
#: Words that are keywords only after a complete operand or clause.
_LATE_WORDS = frozenset(
    RESERVED[w]
    for w in words("CROSS END ESCAPE FULL INNER INTO LEFT LIMIT NATURAL OUTER OVER RIGHT USING")
)
#: The other keywords, without those that begin an operand: CASE, NOT, EXISTS, literals, queries,
#: DISTINCT.
_CLAUSES_AS_NAMES = frozenset(
    RESERVED[w]
    for w in words(
        "ALL AND BETWEEN ELSE EXCEPT FROM HAVING ILIKE IN INTERSECT INTERVAL IS JOIN LIKE ON OR "
        "QUALIFY THEN UNION WHEN WHERE"
    )
)
#: Plain words of DDL and of windows before the name of a column.
_COLUMN_AHEAD = frozenset({"BY", "WA", "WATERMARK"})


def _is_name(toks: Sequence[Token], i: int, before: Token, cases: int) -> bool:
    """Whether the reserved word at token ``i`` can only be a name in its place.

    Examples: ``window.end``, ``SELECT left, limit FROM t``, ``max(end)``, ``start AS end``. (Spark
    reserves none of these words.) ``before`` is the previous token as marked; ``cases`` is the
    number of open CASE.
    """
    tok = toks[i]
    behind = toks[i + 1].token_type if i + 1 < len(toks) else TokenType.SEMICOLON
    kind, left = tok.token_type, before.token_type
    if left == TokenType.DOT:
        return before.end + 1 == tok.start
    if kind in _CLAUSES_AS_NAMES:
        ahead = left in (TokenType.SELECT, TokenType.COMMA, TokenType.L_PAREN)
        return ahead and behind in (TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM)
    if kind not in _LATE_WORDS:
        return False
    if left == TokenType.ALIAS:
        return behind != TokenType.L_PAREN
    if left == TokenType.VAR and before.text.upper() in _COLUMN_AHEAD:
        named = behind in (TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.IN)
        return named or behind == TokenType.SEMICOLON or _reads(toks, i + 1, "DELAY", "WITHIN")
    if kind == TokenType.END and left in (TokenType.THEN, TokenType.ELSE):
        return behind in _BINARY or behind in (TokenType.END, TokenType.ELSE, TokenType.WHEN)
    if kind == TokenType.END and not cases and left in (TokenType.VAR, TokenType.R_PAREN):
        return behind in (TokenType.COMMA, TokenType.FROM)  # an alias without AS
    if left in (TokenType.FROM, TokenType.JOIN) and behind in _TABLE_BEHIND:
        return True
    return stands_as_operand(toks, i, before)


def stands_as_operand(toks: Sequence[Token], i: int, before: Token) -> bool:
    """Whether an operand or a name must begin at token ``i`` and can end there."""
    behind = toks[i + 1].token_type if i + 1 < len(toks) else TokenType.SEMICOLON
    return before.token_type in _OPERAND_AHEAD and behind in _OPERAND_BEHIND


def _reads(toks: Sequence[Token], i: int, *known: str) -> bool:
    return i < len(toks) and toks[i].text.upper() in known


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
