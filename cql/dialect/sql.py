"""``parse``, ``to_sql`` and ``position_of``: the whole dialect in three calls."""

from __future__ import annotations

import logging
from typing import cast

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token

from cql.base.recursion import deep_stack
from cql.dialect import grammar
from cql.dialect.base_parser import RefusalError
from cql.dialect.generator import CqlGenerator
from cql.dialect.lexical import Places, check_nesting, scan
from cql.dialect.statements import CqlParser
from cql.dialect.tokens import CqlTokenizer, mark_windows
from cql.errors import ParseError, Position

logger = logging.getLogger(__name__)

# the exceptions that sqlglot raises on unforeseen texts
_SQLGLOT_FAILURES = (
    SqlglotError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class Cql(Dialect):
    """The dialect for sqlglot. Integer divided by integer is an integer."""

    TYPED_DIVISION = True
    ORIGINAL_NAME_META_KEY = "written_name"
    Tokenizer = CqlTokenizer
    Parser = CqlParser
    Generator = CqlGenerator


def parse(text: str) -> list[exp.Expression]:
    """The statements of a script.

    Raises only :class:`cql.errors.ParseError`, with a position in ``text``. The text of a statement
    is ``text[meta["text_start"]:meta["text_end"]]``.
    """
    if not isinstance(text, str):
        raise ParseError(f"a statement is text, not {type(text).__name__}")
    places = Places(text)
    scanned = scan(places)
    with deep_stack():
        dialect = Cql()
        try:
            toks = mark_windows(CqlTokenizer(dialect=dialect).tokenize(scanned.text))
        except TokenError as error:
            raise places.error("these characters form no word", error.start or 0) from None
        check_nesting(toks, places)
        parser = CqlParser(dialect=dialect)
        try:
            trees = parser.script(toks, scanned.text, text, scanned.hints)
            for tree in trees:
                grammar.check(tree)
                _place(tree, places)
        except RefusalError as refusal:
            error_at = places.error(refusal.message, refusal.start, refusal.length, refusal.hint)
            raise error_at from None
        except grammar.ForeignNodeError as foreign:
            at = _start(foreign.node) or 0
            raise places.error(foreign.message, at) from None
        except RecursionError:
            raise _give_up(parser, places, "this nests too deeply") from None
        except _SQLGLOT_FAILURES as cause:
            logger.debug("sqlglot failed on a text", exc_info=cause)
            raise _give_up(parser, places, "this is not understood") from cause
    return cast("list[exp.Expression]", trees)


def parse_one(text: str) -> exp.Expression:
    """The only statement of a text."""
    trees = parse(text)
    if len(trees) != 1:
        where = Places(text).at(trees[1].meta["text_start"] if trees else 0)
        found = f"{len(trees)} statements" if trees else "no statement"
        raise ParseError(
            f"expected one statement and found {found}",
            position=where,
            hint="write one statement, such as SELECT * FROM s" if not trees else None,
            text=text,
        )
    return trees[0]


def to_sql(tree: exp.Expr) -> str:
    """The tree as one line of text, which parses back to an equal tree."""
    with deep_stack():
        return CqlGenerator(
            dialect=Cql(),
            comments=False,
            normalize_functions=False,
            unsupported_level=ErrorLevel.IGNORE,
        ).generate(tree, copy=False)


def position_of(node: exp.Expr) -> Position | None:
    """The place of the node's own token in the parsed text; for a node without a token, the first
    place among its descendants."""
    return cast("Position | None", node.meta.get("position"))


def _place(tree: exp.Expr, places: Places) -> None:
    """Sets the positions of the nodes. (sqlglot's columns are those of the last characters.)"""
    # by id(node): the first place among the node's descendants, as offset, length and position
    first: dict[int, tuple[int, int, Position]] = {}
    for node in reversed(list(tree.walk())):  # children before their parents
        found = own = below = first.get(id(node))
        meta = node._meta
        if meta and (start := meta.get("start")) is not None:
            length = meta["end"] - start + 1
            position = places.at(start, length)
            meta["line"], meta["col"] = position.line, position.column
            found = own = start, length, position
            if below is not None and below[:2] < found[:2]:
                found = below
        if found is None or own is None:
            continue
        node.meta["position"] = own[2]
        above = id(node.parent)
        known = first.get(above)
        if known is None or found[:2] < known[:2]:
            first[above] = found


def _start(node: exp.Expr) -> int | None:
    starts = [n.meta["start"] for n in node.walk() if n.meta.get("start") is not None]
    if starts:
        return int(min(starts))
    return _start(node.parent) if node.parent is not None else None


def _give_up(parser: CqlParser, places: Places, message: str) -> ParseError:
    token: Token | None = parser._curr or parser._prev
    return places.error(message, token.start if token else 0)
