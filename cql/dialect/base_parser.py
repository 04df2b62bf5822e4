"""The common base of the parser's parts: refusals with place and hint, strict lists, values."""

from __future__ import annotations

import difflib
import string
from collections.abc import Callable, Collection
from decimal import Decimal
from itertools import pairwise
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp, parser
from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.tokenizer_core import Token, TokenType

from cql.dialect import nodes, unsupported
from cql.dialect.grammar import TYPED_FUNCTIONS
from cql.dialect.lexical import HintText, words
from cql.dialect.tokens import (
    KEYWORDS,
    RESERVED,
    RESERVED_TOKENS,
    SIGNS,
    TYPES,
    stands_as_operand,
)
from cql.errors import did_you_mean

T = TypeVar("T")
E = TypeVar("E", bound=exp.Expr)

NAME_TOKENS: frozenset[TokenType] = frozenset(
    {
        TokenType.VAR,
        TokenType.FILTER,
        TokenType.FIRST,
        TokenType.OFFSET,
        TokenType.RANGE,
        TokenType.ROW,
        TokenType.ROWS,
        *TYPES.values(),
    }
)
_VALUE_ENDS = frozenset(
    {
        *NAME_TOKENS,
        TokenType.IDENTIFIER,
        TokenType.NUMBER,
        TokenType.STRING,
        TokenType.R_PAREN,
        TokenType.R_BRACKET,
        TokenType.STAR,
    }
)
_VALUE_STARTS = frozenset(
    {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, *TYPES.values()}
)
_CONSTANTS = frozenset({TokenType.TRUE, TokenType.FALSE, TokenType.NULL})
_QUERY_STARTS = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN})
_OPERATORS = (exp.Binary, exp.Between, exp.In)
_CLAUSES = words(
    "SELECT FROM WHERE GROUP ORDER HAVING UNION EXCEPT INTERSECT LIMIT JOIN LEFT RIGHT INNER OUTER "
    "WINDOW EMIT WATERMARK QUALIFY USING VALUES BETWEEN DISTINCT"
)
_KEYWORD_SET = frozenset(KEYWORDS)
_QUOTABLE = frozenset(
    RESERVED[w]
    for w in words(
        "AS CASE DISTINCT EXISTS NOT RLIKE SELECT VALUES WITH CROSS END LEFT LIMIT RIGHT"
    )
)


class RefusalError(SqlglotParseError):
    """A refusal of the text; sqlglot's own backtracking may still catch the exception."""

    def __init__(self, message: str, start: int, length: int, hint: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.length = length
        self.hint = hint


def _finds_its_end(
    name: str, parse: Callable[[BaseParser], exp.Expr | None]
) -> Callable[[BaseParser], exp.Expr | None]:
    """Makes ``parse`` refuse a missing ``)``, which sqlglot accepts after CAST, EXTRACT and other
    functions."""

    def parsed(self: BaseParser) -> exp.Expr | None:
        node = parse(self)
        if self._curr.token_type != TokenType.R_PAREN:
            self.refuse(f"expected ) at the end of {name}(")
        return node

    return parsed


class BaseParser(parser.Parser):
    """sqlglot's parser without the syntax that this dialect does not have."""

    ID_VAR_TOKENS: ClassVar[set[TokenType]] = set(NAME_TOKENS)
    ALIAS_TOKENS: ClassVar[set[TokenType]] = set(NAME_TOKENS)
    TABLE_ALIAS_TOKENS: ClassVar[set[TokenType]] = set(NAME_TOKENS - {TokenType.OFFSET})
    WINDOW_ALIAS_TOKENS: ClassVar[set[TokenType]] = {TokenType.VAR}
    RESERVED_TOKENS: ClassVar[set[TokenType]] = {
        *parser.Parser.RESERVED_TOKENS,
        *RESERVED_TOKENS,
        *SIGNS.values(),
        TokenType.NUMBER,
        TokenType.STRING,
    }
    BRACKETS: ClassVar[frozenset[TokenType]] = frozenset({TokenType.L_BRACKET})
    SUPPORTS_USER_DEFINED_TYPES: ClassVar[bool] = False

    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {
        **{k: v for k, v in parser.Parser.FUNCTIONS.items() if k in TYPED_FUNCTIONS},
        "IF": lambda args: (
            exp.Case(
                ifs=[exp.If(this=args[0], true=args[1])], default=args[2] if len(args) > 2 else None
            )
            if 2 <= len(args) <= 3
            else exp.Anonymous(this="IF", expressions=args)
        ),
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[[Any], exp.Expr | None]]] = {
        name: _finds_its_end(name, parser.Parser.FUNCTION_PARSERS[name])
        for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION")
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[[Any], exp.Expr | None]]] = {
        "CASE": lambda self: self._parse_case(),
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, type[exp.Expr]]] = {
        TokenType.CURRENT_DATE: exp.CurrentDate,
        TokenType.CURRENT_TIMESTAMP: exp.CurrentTimestamp,
    }
    COLUMN_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        k: v
        for k, v in parser.Parser.COLUMN_OPERATORS.items()
        if k in (TokenType.DOT, TokenType.DCOLON)
    }
    PRIMARY_PARSERS: ClassVar[dict[TokenType, Callable[[Any, Token], exp.Expr | None]]] = {
        TokenType.STRING: lambda self, token: self._string(token),
        TokenType.NUMBER: lambda self, token: self._number(token),
        TokenType.NULL: parser.Parser.PRIMARY_PARSERS[TokenType.NULL],
        TokenType.TRUE: parser.Parser.PRIMARY_PARSERS[TokenType.TRUE],
        TokenType.FALSE: parser.Parser.PRIMARY_PARSERS[TokenType.FALSE],
        TokenType.STAR: lambda self, token: self._star(token),
    }
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Callable[[Any], exp.Expr | None]]] = {
        TokenType.COLON: lambda self: self._parameter(),
        TokenType.PLACEHOLDER: lambda self: self.refuse(
            "a parameter needs a name", self._prev, hint="name it, as in :n"
        ),
    }
    SUBQUERY_PREDICATES: ClassVar[dict[TokenType, type[exp.SubqueryPredicate]]] = {
        TokenType.EXISTS: exp.Exists,
    }
    LAMBDAS: ClassVar[dict[TokenType, Any]] = {}
    UNARY_PARSERS: ClassVar[dict[TokenType, Callable[[Any], exp.Expr | None]]] = {
        k: parser.Parser.UNARY_PARSERS[k]
        for k in (TokenType.PLUS, TokenType.NOT, TokenType.TILDE, TokenType.DASH)
    }
    RANGE_PARSERS: ClassVar[dict[TokenType, Callable[..., exp.Expr | None]]] = {
        k: parser.Parser.RANGE_PARSERS[k]
        for k in (
            TokenType.BETWEEN,
            TokenType.ILIKE,
            TokenType.IN,
            TokenType.IS,
            TokenType.LIKE,
            TokenType.RLIKE,
        )
    }
    TYPE_LITERAL_PARSERS: ClassVar[dict[Any, Any]] = {}

    def reset(self) -> None:
        super().reset()
        self._hints: tuple[HintText, ...] = getattr(self, "_hints", ())
        self._used_hints: set[int] = set()

    # ----------------------------------------------------------------- refusals

    def refuse(self, message: str, token: Token | None = None, hint: str | None = None) -> NoReturn:
        """Refuses the text at ``token`` (default: the current token, or the end of the text)."""
        raise self.refusal(message, token, hint)

    def refusal(
        self, message: str, token: Token | None = None, hint: str | None = None
    ) -> RefusalError:
        start, length = self._place_of(token)
        return RefusalError(message, start, length, self._backticks() or hint)

    def _backticks(self) -> str | None:
        """A hint if the user probably meant a word of the grammar as a name."""
        for i in (self._index, self._index - 1):
            token = self._tokens[i] if 0 < i < self._tokens_size else None
            if (
                token is not None
                and token.token_type in _QUOTABLE
                and stands_as_operand(self._tokens, i, self._tokens[i - 1])
            ):
                return f"{token.text} is a word of the grammar: as a name it is `{token.text}`"
        return None

    def _place_of(self, token: Token | None) -> tuple[int, int]:
        token = token or self._curr
        if token.token_type != TokenType.SENTINEL:
            return token.start, token.end - token.start + 1
        last = self._tokens[-1] if self._tokens else None
        return (last.end + 1 if last else 0), 1

    def raise_error(self, message: str, token: Token = parser.SENTINEL_NONE) -> None:
        """Turns sqlglot's own errors into refusals with the dialect's messages."""
        bad = token or self._curr
        near = f"before {bad.text!r}" if bad else "at the end"
        if message.startswith("Required"):
            message = f"an expression or a name is missing {near}"
        elif message.startswith("Expected table name"):
            message = f"the name of a stream or table is missing {near}"
        elif message.startswith(("Invalid expression", "Failed to parse any")):
            message = f"unexpected {bad.text!r}" if bad else "unexpected end"
        elif message.startswith("Expected TYPE"):
            message = f"the name of a type is missing {near}"
            self.refuse(message, hint=did_you_mean(bad.text, TYPES) if bad else None)
        else:
            message = f"{message[:1].lower()}{message[1:]} {near}"
        self.refuse_unexpected(message, bad or None)

    def refuse_unsupported(self, clauses: unsupported.Clauses, ahead: int = 0) -> None:
        """Refuses a clause of another dialect at the current token, if there is one."""
        for clause, hint in clauses.items():
            if self.word_is(*clause, ahead=ahead):
                name = " ".join(word for word in clause if word not in ("(", "SELECT", "ALL"))
                self.refuse(f"{name} is not supported", self._tokens[self._index + ahead], hint)

    def _refuse_operator(self) -> None:
        """Refuses a two-sign operator of another dialect near the current token."""
        around = self._tokens[max(0, self._index - 2) : self._index + 2]
        for first, second in pairwise(around):
            sign = first.text + second.text
            if sign in unsupported.OPERATORS and first.end + 1 == second.start:
                token = Token(TokenType.VAR, "", start=first.start, end=second.end)
                self.refuse(f"{sign} is not supported", token, unsupported.OPERATORS[sign])

    def refuse_unexpected(self, message: str, token: Token | None = None) -> NoReturn:
        """Refuses the text with the most likely cause: a clause of another dialect, a misspelt
        clause, or a missing comma."""
        self.refuse_unsupported(unsupported.OF_QUERY)
        self._refuse_operator()
        index = self._index
        around = [self._tokens[i] for i in (index - 1, index) if 0 <= i < self._tokens_size]
        for i, suspect in zip(
            (j for j in (index - 1, index) if 0 <= j < self._tokens_size), around, strict=True
        ):
            before = self._tokens[i - 1].token_type if i > 0 else None
            if suspect.token_type == TokenType.VAR and before in _VALUE_ENDS:
                word = suspect.text.upper()
                close = difflib.get_close_matches(word, _CLAUSES, n=1, cutoff=0.74)
                if close and word not in _KEYWORD_SET and len(word) > 3:
                    self.refuse(
                        f"unexpected {suspect.text!r}", suspect, f"did you mean {close[0]}?"
                    )
        hint = None
        if self._prev.token_type == TokenType.VAR and self._prev.text.upper() in ("GROUP", "ORDER"):
            self.refuse(message, token, f"did you mean {self._prev.text.upper()} BY?")
        if (
            self._curr.token_type in _VALUE_STARTS
            and self._prev.token_type in _VALUE_ENDS
            and self._prev.token_type != TokenType.STAR
            and self._curr.text.upper() not in _KEYWORD_SET
        ):
            hint = f"a comma is probably missing before {self._curr.text!r}"
        elif self._curr.token_type == TokenType.L_PAREN and self._prev.token_type in NAME_TOKENS:
            ahead = self._tokens[index - 2] if index > 1 else self._curr
            plain = ahead.text.upper() not in _KEYWORD_SET
            if plain and ahead.token_type in _VALUE_ENDS - {TokenType.STAR}:
                hint = f"a comma is probably missing before {self._prev.text!r}"
        self.refuse(message, token, hint)

    # ----------------------------------------------------------------- small things

    def placed(self, node: E, token: Token) -> E:
        """The node, validated, with the position of ``token``."""
        return self.expression(node, token=token)

    def expression(
        self, instance: E, token: Token | None = None, comments: list[str] | None = None
    ) -> E:
        """The node, validated; an operator extends from the start of its first operand to the end
        of its last operand."""
        made: E = super().expression(instance, token, comments)
        if token is None and isinstance(made, _OPERATORS) and self._prev:
            start = made.this.meta.get("start") if isinstance(made.this, exp.Expr) else None
            if start is not None:
                made.update_positions(start=start, end=self._prev.end)
        return made

    def word_is(self, *words: str, ahead: int = 0) -> bool:
        """Whether the next tokens are ``words``; quoted names and strings never are."""
        for i, word in enumerate(words):
            index = self._index + ahead + i
            if index >= self._tokens_size:
                return False
            token = self._tokens[index]
            if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
                return False
            if token.text.upper() != word:
                return False
        return True

    def accept(self, *words: str) -> bool:
        if not self.word_is(*words):
            return False
        self._advance(len(words))
        return True

    def require(self, *words: str, after: str, whole: str) -> None:
        """Consumes ``words`` or refuses; the hint is the ``whole`` clause unless a word is
        misspelt."""
        for word in words:
            if not self.accept(word):
                shown = " ".join(words)
                close = did_you_mean(self._curr.text, [word], few=0) if self._curr else None
                self.refuse(f"expected {shown} after {after}", hint=close or f"write {whole}")

    def one_of(self, words: Collection[str], after: str) -> str:
        """Consumes and returns the next word; refuses a word that is not in ``words``."""
        for word in words:
            parts = word.split()
            if self.accept(*parts):
                return word
        shown = ", ".join(sorted(words))
        hint = did_you_mean(self._curr.text, words, few=0) if self._curr else None
        if hint is None and len(words) <= 4:
            hint = "write " + " or ".join(f"{after} {word}" for word in words)
        raise self.refusal(f"expected one of {shown} after {after}", hint=hint)

    def name(self, what: str = "a name") -> exp.Identifier:
        """An identifier; otherwise the refusal calls the missing name ``what``."""
        token = self._curr
        if token.token_type == TokenType.IDENTIFIER:
            self._advance()
            return self.placed(exp.Identifier(this=token.text, quoted=True), token)
        if token.token_type in NAME_TOKENS:
            self._advance()
            return self.placed(exp.Identifier(this=token.text, quoted=False), token)
        raise self.refusal(f"expected {what}" + (f", not {token.text!r}" if token else ""))

    def at_name(self) -> bool:
        return self._curr.token_type in NAME_TOKENS or self._curr.token_type == TokenType.IDENTIFIER

    def names(self, what: str) -> list[exp.Expr]:
        """``(a, b)``."""
        if not self._match(TokenType.L_PAREN):
            self.refuse(f"expected ( before {what}")
        found: list[exp.Expr] = [self.name(what)]
        while self._match(TokenType.COMMA):
            found.append(self.name(what))
        self.close_paren()
        return found

    def close_paren(self) -> None:
        if not self._match(TokenType.R_PAREN):
            self.refuse_unexpected(
                f"expected ) before {self._curr.text!r}" if self._curr else "expected )"
            )

    def object_name(self, what: str = "a name") -> exp.Table:
        """``catalog.schema.name``."""
        token = self._curr
        parts = [self.name(what)]
        while self._match(TokenType.DOT):
            parts.append(self.name("a name after the dot"))
        if len(parts) > 3:
            self.refuse("a name has at most three parts (catalog.schema.name)", token)
        keys = ("this", "db", "catalog")
        return self.placed(exp.Table(**dict(zip(keys, reversed(parts), strict=False))), token)

    def _parse_csv(
        self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA
    ) -> list[T]:
        if self._curr.token_type == sep:
            self.refuse("nothing stands before this comma", hint="remove the comma")
        item = parse_method()
        items = [] if item is None else [item]
        while item is not None and self._match(sep):
            comma = self._prev
            item = parse_method()
            if item is None:
                self.refuse("nothing stands behind this comma", comma, hint="remove the comma")
            items.append(item)
        return items

    def _number(self, token: Token) -> exp.Expr:
        text = token.text
        try:
            Decimal(text)
        except ArithmeticError:
            shown = text if len(text) <= 40 else text[:37] + "..."
            self.refuse(f"{shown!r} is not a number", token)
        behind = self._curr
        if behind.token_type == TokenType.VAR and behind.start == token.end + 1:
            self._advance()
            return self._typed_number(token, behind)
        return self.placed(exp.Literal.number(text), token)

    def _typed_number(self, token: Token, behind: Token) -> exp.Expr:
        """``1L``, ``2.0D``."""
        kind, whole = behind.text.upper(), token.text + behind.text
        both = Token(TokenType.NUMBER, whole, start=token.start, end=behind.end)
        if kind not in nodes.NUMBER_TYPES:
            self.refuse(f"{whole!r} is neither a number nor a name", both)
        if kind in "YSL" and not token.text.isdecimal():
            name = nodes.NUMBER_TYPES[kind]
            self.refuse(f"{whole!r} is no {name}: it has a point or an exponent", both)
        return self.placed(nodes.TypedNumber(this=token.text, kind=kind), both)

    def _star(self, token: Token) -> exp.Expr:
        """``*``, ``* EXCEPT (a, b)``; ``* EXCEPT (SELECT …)`` is a set operation."""
        self._refuse_operator()
        star = self.placed(exp.Star(), token)
        word, named = self._curr.text.upper(), self._next.token_type == TokenType.L_PAREN
        if not named or self._curr.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            return star
        if word in ("REPLACE", "RENAME"):
            self.refuse(f"* {word} is not part of this dialect", hint="* EXCEPT (a), … AS a")
        behind = self._tokens[self._index + 2 :][:1]
        if word in ("EXCEPT", "EXCLUDE") and behind and behind[0].token_type not in _QUERY_STARTS:
            self._advance()
            star.set("except_", self.names("a column"))
        return star

    def _prefixed_string(self, prefix: Token) -> exp.Expr:
        """``X'00ff'``; refuses any other letter before a string."""
        digits = self._next
        both = Token(TokenType.STRING, digits.text, start=prefix.start, end=digits.end)
        if prefix.text.upper() != "X":
            hint = "backslashes stand for themselves" if prefix.text.upper() == "R" else None
            self.refuse(f"{prefix.text} in front of a string means nothing", prefix, hint)
        if not set(digits.text) <= set(string.hexdigits):
            self.refuse("X'…' takes hexadecimal digits", both, hint="for example X'00FF'")
        self._advance(2)
        text = digits.text.upper()
        return self.placed(exp.HexString(this="0" * (len(text) % 2) + text), both)

    def _parse_primary(self) -> exp.Expr | None:
        if self._curr.token_type == TokenType.DOT and self._next.token_type == TokenType.NUMBER:
            dot, number = self._curr, self._next
            self._advance(2)
            text = f"0.{number.text}"
            return self._number(Token(TokenType.NUMBER, text, start=dot.start, end=number.end))
        if self._prev.token_type == TokenType.DOT and self._curr.token_type in _CONSTANTS:
            self._advance()  # t.true is a column of t, also with a blank after the dot
            return self.placed(exp.Identifier(this=self._prev.text, quoted=False), self._prev)
        return super()._parse_primary()

    def _string(self, token: Token) -> exp.Expr:
        if self._curr.token_type == TokenType.STRING:
            self.refuse("two strings side by side", hint="put || or a comma between them")
        return self.placed(exp.Literal.string(token.text), token)

    def _parameter(self) -> exp.Expr:
        colon = self._prev
        token = self._curr
        if token.start != colon.end + 1 or token.token_type not in NAME_TOKENS:
            self.refuse("expected a name directly behind ':'", colon, hint="a parameter is :name")
        self._advance()
        return self.placed(exp.Placeholder(this=token.text), colon)

    def _parse_unary(self) -> exp.Expr | None:
        token = self._curr
        if token.token_type == TokenType.PARAMETER:
            self.refuse("'@' starts nothing in this dialect", hint="a parameter is written :name")
        behind = self._next
        joined = behind.token_type == TokenType.STRING and behind.start == token.end + 1
        if joined and token.token_type == TokenType.VAR:
            return self._prefixed_string(token)
        node = super()._parse_unary()
        if node is not None and "start" not in node.meta:
            node.update_positions(token)
        if isinstance(node, exp.Column | exp.Paren):
            node.meta["end"] = self._prev.end
        return node

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        """``arr[1]``, ``m['k']``; ``mark_windows`` has already retyped the ``[`` of a window."""
        while self._curr.token_type == TokenType.L_BRACKET:
            opened = self._curr
            if this is None:
                self.refuse("a list starts with its name", hint="write ARRAY(1, 2, 3)")
            self._advance()
            index = self._parse_disjunction()
            if index is None:
                self.refuse(
                    "this index or window is empty",
                    opened,
                    hint="a window is [RANGE 1 MINUTE, SLIDE 1 MINUTE, WA ts]",
                )
            if not self._match(TokenType.R_BRACKET):
                self.refuse_unexpected(f"expected ] before {self._curr.text!r}")
            this = self.expression(exp.Bracket(this=this, expressions=[index]))
        return this

    def _negate_range(self, this: exp.Expr | None = None) -> exp.Expr | None:
        negated = super()._negate_range(this)
        # a NOT BETWEEN b AND c = d: without parentheses, NOT would print before the comparison
        follower = self._curr.token_type
        if isinstance(negated, exp.Not) and (
            follower in self.EQUALITY or follower in self.COMPARISON
        ):
            return self.expression(exp.Paren(this=negated))
        return negated

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if self._curr.token_type != TokenType.L_PAREN:
            self.refuse("expected ( after IN", hint="IN (1, 2) or IN (SELECT …)")
        if self._next.token_type == TokenType.R_PAREN:
            self.refuse("this list is empty")
        return super()._parse_in(this, alias)

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.refuse("expected AND after BETWEEN", hint="BETWEEN low AND high")
        high = self._parse_bitwise()
        if isinstance(this, exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ):
            this = exp.Paren(this=this)
        return self.expression(exp.Between(this=this, low=low, high=high))

    def _parse_case(self) -> exp.Expr | None:
        start = self._prev
        operand = None if self._curr.token_type == TokenType.WHEN else self._parse_disjunction()
        branches = []
        while self._match(TokenType.WHEN):
            condition = self._parse_disjunction()
            if not self._match(TokenType.THEN):
                self.refuse("expected THEN after WHEN …")
            branches.append(self.expression(exp.If(this=condition, true=self._parse_disjunction())))
        if not branches:
            self.refuse("expected WHEN after CASE")
        default = None
        if self._match(TokenType.ELSE):
            default = self._parse_disjunction()
            if default is None:
                self.refuse("an expression is missing after ELSE")
        if not self._match(TokenType.END):
            self.refuse_unexpected("expected END after CASE …")
        return self.placed(exp.Case(this=operand, ifs=branches, default=default), start)

    def _parse_cast(self, strict: bool, safe: bool | None = None) -> exp.Expr:
        this = self._parse_disjunction()
        if this is None or not self._match(TokenType.ALIAS):
            self.refuse_unexpected("expected CAST(expression AS type)")
        kind = self.data_type("AS")
        if safe:
            return self.expression(exp.TryCast(this=this, to=kind))
        return self.expression(exp.Cast(this=this, to=kind))

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        # with allow_identifiers, sqlglot would tokenize any other name again to look for a type
        return super()._parse_types(check_func, schema, False, with_collation)

    def data_type(self, after: str) -> exp.Expr:
        """The name of a type; otherwise the refusal suggests a type."""
        token = self._curr
        kind = self._parse_types(check_func=False, schema=False, allow_identifiers=False)
        if not isinstance(kind, exp.DataType | exp.Interval):
            if not token:
                self.refuse(f"the name of a type is missing after {after}")
            hint = did_you_mean(token.text, TYPES)
            self.refuse(
                f"{token.text!r} is not a type", token, hint=hint or "for example INT, STRING"
            )
        return self.placed(kind, token)

    def _parse_if(self) -> exp.Expr | None:
        return None
