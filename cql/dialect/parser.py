"""Parses queries: SELECT with windows and ISTREAM, set operations, and the clauses after them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from cql.dialect import nodes
from cql.dialect.from_parser import FromParser
from cql.dialect.lexical import HintText
from cql.dialect.tokens import RELATION_TO_STREAM, WINDOW_OPEN, CqlTokenizer

_NO_LIST_FOLLOWERS = frozenset(
    {
        TokenType.COMMA,
        TokenType.FROM,
        TokenType.DOT,
        TokenType.ALIAS,
        TokenType.SENTINEL,
        TokenType.R_PAREN,
    }
)


class QueryParser(FromParser):
    """The part of the parser that reads whole queries."""

    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[[Any], tuple[str, Any]]]] = {
        k: v
        for k, v in FromParser.QUERY_MODIFIER_PARSERS.items()
        if k
        in (
            TokenType.MATCH_RECOGNIZE,
            TokenType.WHERE,
            TokenType.GROUP_BY,
            TokenType.HAVING,
            TokenType.QUALIFY,
            TokenType.ORDER_BY,
            TokenType.LIMIT,
            TokenType.OFFSET,
        )
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)
    SET_OP_MODIFIERS: ClassVar[set[str]] = {
        "order",
        "limit",
        "offset",
        nodes.EMIT,
        nodes.ON_BAD_ROW,
        nodes.LATE_OUTPUT,
    }

    def query(self) -> exp.Expr:
        """A whole query, or a refusal."""
        found = self._parse_select(nested=True)
        if found is None:
            self.refuse_unexpected("expected a query (SELECT …)")
        if isinstance(found, exp.Subquery):
            found = self.set_operations(found)
            self._parse_query_modifiers(found)
        return found

    def set_operations(self, this: exp.Expr) -> exp.Expr:
        result = self._parse_set_operations(this)
        assert result is not None
        return result

    def _parse_set_operations(self, this: exp.Expr | None) -> exp.Expr | None:
        result = super()._parse_set_operations(this)
        if isinstance(result, exp.SetOperation):
            self._stream_clauses(result)
        return result

    def parse_set_operation(
        self, this: exp.Expr | None, consume_pipe: bool = False, intersect_only: bool = False
    ) -> exp.SetOperation | None:
        word = self._curr
        if word.token_type in self.SET_OPERATIONS:
            self._refuse_clause_inside(this, word)
        found = super().parse_set_operation(this, consume_pipe, intersect_only)
        return None if found is None else self.placed(found, word)

    def _refuse_clause_inside(self, left: exp.Expr | None, word: Token) -> None:
        """Refuses ``SELECT … LIMIT 2 UNION …``: without brackets, ORDER BY, LIMIT and OFFSET belong
        to the whole query and stand at its end."""
        last = left.expression if isinstance(left, exp.SetOperation) else left
        if not isinstance(last, exp.Select):
            return
        clauses = {"order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET"}
        found = [clause for key, clause in clauses.items() if last.args.get(key)]
        if found:
            every = " ALL" if self._next.token_type == TokenType.ALL else ""
            both = f"{word.text.upper()}{every}"
            self.refuse(
                f"{found[-1]} in front of {both} needs brackets around its SELECT",
                word,
                f"write (SELECT … {found[-1]} …) {both} (SELECT …)",
            )

    def _parse_statement(self) -> exp.Expr | None:
        return self.query()

    def _parse_select(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
        consume_pipe: bool = True,
    ) -> exp.Expr | None:
        return self._parse_select_query(nested, table, parse_subquery_alias, parse_set_operation)

    def _parse_select_query(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
    ) -> exp.Expr | None:
        start = self._curr
        this: exp.Expr
        if start.token_type == TokenType.WITH:
            ctes = self._parse_with()
            this = self.query()
            if this.args.get("with_"):
                self.refuse("a query takes one WITH", start, hint="join the lists of both")
            this.set("with_", ctes)
            return this
        if start.token_type == TokenType.SELECT:
            this = self._select()
        elif self.at_relation_to_stream():
            this = self._relation_to_stream()
        elif start.token_type == TokenType.VALUES:
            values = self._parse_derived_table_values()
            assert values is not None
            this = self.placed(values, start)
        elif nested and start.token_type == TokenType.L_PAREN:
            self._advance()
            inner = self._parse_select(nested=True)
            if inner is None:
                self.refuse_unexpected("expected a query (SELECT …) after (")
            if isinstance(inner, exp.Subquery):
                inner = self._parse_query_modifiers(self.set_operations(inner))
            self.close_paren()
            return self.placed(exp.Subquery(this=inner), start)
        else:
            return None
        return self._parse_set_operations(this) if parse_set_operation else this

    def _select(self) -> exp.Select:
        start = self._curr
        self._advance()
        hint = self._hint_behind(start)
        self._match(TokenType.ALL)
        distinct = self._distinct()
        if self.word_is("TOP") and self._next.token_type == TokenType.NUMBER:
            self.refuse("TOP is not supported", hint="LIMIT n at the end of the query")
        operator, wrapped = self._select_list_operator()
        if operator is not None and distinct is None:
            distinct = self._distinct()  # SELECT ISTREAM DISTINCT a, SELECT ISTREAM(DISTINCT a)
        projections = self._parse_csv(self._parse_expression)
        if not projections:
            self.refuse_unexpected("the select list is empty")
        if wrapped:
            self.close_paren()
            if self._curr.token_type == TokenType.COMMA:
                name = operator.name if operator is not None else ""
                self.refuse("this list is closed", hint=f"{name} takes the whole select list")
        # an unmarked bracket is an index of the last expression
        at_window = self._curr.token_type == WINDOW_OPEN
        window = self.stream_window() if at_window else None
        from_ = self._parse_from()
        select = self.placed(
            exp.Select(hint=hint, distinct=distinct, expressions=projections, from_=from_), start
        )
        if operator is not None:
            select.set(nodes.R2S, operator)
        if window is not None:
            select.set(nodes.SELECT_WINDOW, window)
        self._parse_query_modifiers(select)
        return select

    def _distinct(self) -> exp.Distinct | None:
        if not self._match(TokenType.DISTINCT):
            return None
        distinct = self.placed(exp.Distinct(), self._prev)
        if self._curr.token_type == TokenType.ON:
            self.refuse(
                "DISTINCT ON is not supported",
                hint="GROUP BY these columns, with first(…) or last(…) of the others",
            )
        return distinct

    def _parse_from(
        self, joins: bool = False, skip_from_token: bool = False, consume_pipe: bool = False
    ) -> exp.From | None:
        token = self._curr
        if not skip_from_token and not self._match(TokenType.FROM):
            return None
        return self.placed(exp.From(this=self.from_item()), token)

    def _select_list_operator(self) -> tuple[exp.Var | None, bool]:
        """``SELECT ISTREAM(a, b)``, ``SELECT RSTREAM a``; a column may still be called istream."""
        token = self._curr
        if token.token_type != TokenType.VAR or token.text.upper() not in RELATION_TO_STREAM:
            return None, False
        if self._next.token_type in _NO_LIST_FOLLOWERS or not self._next:
            return None, False
        if self._next.token_type in self.EQUALITY or self._next.token_type in self.COMPARISON:
            return None, False
        if self._next.token_type in (*self.TERM, *self.BITWISE, TokenType.DPIPE, TokenType.SLASH):
            return None, False
        self._advance()
        if self.at_relation_to_stream():
            self.refuse(f"{token.text.upper()} of a stream is not defined", token)
        operator = self.placed(exp.Var(this=token.text.upper()), token)
        return operator, bool(self._match(TokenType.L_PAREN))

    def _relation_to_stream(self) -> exp.Expr:
        """``ISTREAM(SELECT …)``, ``RSTREAM(A UNION B)``."""
        token = self._curr
        self._advance(2)
        inner = self.query_or_names()
        self.close_paren()
        if isinstance(inner, exp.Subquery) and not inner.args.get("with_"):
            inner = inner.unnest()
        if inner.args.get(nodes.R2S):
            self.refuse(f"{token.text.upper()} of a stream is not defined", token)
        if not isinstance(inner, exp.Select | exp.SetOperation):
            self.refuse(f"{token.text.upper()} needs a query", token)
        inner.set(nodes.R2S, self.placed(exp.Var(this=token.text.upper()), token))
        self._stream_clauses(inner)
        return inner

    def query_or_names(self) -> exp.Expr:
        """A query, or STREAM's ``A UNION B`` and ``A EXCEPT B`` on named streams."""
        if not self.at_name() or self.at_query():
            return self.query()
        this = self._star_of_name()
        if self._curr.token_type not in self.SET_OPERATIONS:
            self.refuse_unexpected("expected a query (SELECT …), or UNION or EXCEPT here")
        while self._match_set(self.SET_OPERATIONS):
            operator = self._prev
            kind = {TokenType.UNION: exp.Union, TokenType.EXCEPT: exp.Except}.get(
                operator.token_type, exp.Intersect
            )
            distinct = self._match(TokenType.DISTINCT)
            self._match(TokenType.ALL)
            made = kind(this=this, expression=self._star_of_name(), distinct=distinct)
            this = self.placed(made, operator)
        return this

    def _star_of_name(self) -> exp.Expr:
        token = self._curr
        item = self.object_name("the name of a stream")
        if self.at_bracket():
            item.set(nodes.STREAM_WINDOW, self.stream_window())
        select = exp.Select(expressions=[exp.Star()], from_=exp.From(this=item))
        return self.placed(select, token)

    # ----------------------------------------------------------------- clauses behind a query

    def _parse_match_recognize(self) -> exp.MatchRecognize | None:
        found = super()._parse_match_recognize()
        pattern = found.args.get("pattern") if found is not None else None
        if pattern is not None:
            # sqlglot keeps the blanks of the text between the parentheses
            pattern.set("this", " ".join(pattern.name.split()))
        if found is not None and not found.args.get("define"):
            self.refuse("MATCH_RECOGNIZE needs a DEFINE clause", self._prev)
        return found

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        if not self.word_is("OFFSET") and self._clause_ahead():
            return this
        return super()._parse_alias(this, explicit)

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        group = super()._parse_group(skip_group_by_token)
        if group is not None and group.args.get("all") and group.expressions:
            self.refuse("GROUP BY ALL takes no columns", hint="it groups by all but aggregates")
        if group is not None and not any(group.args.values()):
            self.refuse_unexpected("an expression is missing after GROUP BY")
        if group is not None and self._curr.token_type == TokenType.ALIAS:
            self._refuse_group_name(group)
        return group

    def _refuse_group_name(self, group: exp.Group) -> NoReturn:
        """Refuses ``GROUP BY window(…) AS w``: only the select list gives names."""
        name, key = self._next.text or "name", group.expressions[-1] if group.expressions else None
        called = key.args.get("kind") if isinstance(key, nodes.GroupWindow) else None
        what = f"{str(called).lower()}(…)" if called else "…"
        hint = f"write SELECT {what} AS {name}, … GROUP BY {name}"
        self.refuse("GROUP BY names no columns (AS)", hint=hint)

    def _parse_query_modifiers(self, this: Any) -> Any:
        if not isinstance(this, exp.Query):
            return this
        while True:
            index = self._index
            super()._parse_query_modifiers(this)
            if this.args.get("joins") and not this.args.get("from_"):
                self.refuse("a join needs a FROM clause", self._tokens[index])
            if self.at_window_clause():
                self._window_clause(this)
            elif self._curr.token_type == TokenType.PARTITION_BY:
                self._partition_clause(this)
            else:
                self._stream_clauses(this)
            if self._index == index:
                return this

    def _parse_limit(
        self, this: exp.Expr | None = None, top: bool = False, skip_limit_token: bool = False
    ) -> exp.Expr | None:
        """``LIMIT 3``, ``LIMIT 3 PER WINDOW``; ``LIMIT ALL`` sets no limit."""
        if self.accept("LIMIT", "ALL"):
            return None
        found = super()._parse_limit(this, top, skip_limit_token)
        if self.word_is("PERCENT"):
            self.refuse("PERCENT is not supported", hint="LIMIT takes a number of rows")
        if isinstance(found, exp.Limit) and self.accept("PER", "WINDOW"):
            found.set(nodes.PER_WINDOW, True)
        return found

    def _put(self, this: exp.Expr, key: str, node: exp.Expr, token: Token) -> None:
        if this.args.get(key):
            self.refuse(f"this query has two {key.replace('_', ' ').upper()} clauses", token)
        this.set(key, node)

    def _window_clause(self, this: exp.Expr) -> None:
        token = self._curr
        self._advance()
        if self._curr.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and (
            self._next.token_type == TokenType.ALIAS
        ):
            if this.args.get("windows"):
                self.refuse("this query has two lists of named windows", token)
            this.set("windows", self._parse_csv(self._named_window))
            return
        length = self.parse_duration("WINDOW")
        if not isinstance(this, exp.Select):
            self.refuse("WINDOW stands in a SELECT", token)
        self._put(this, nodes.JOIN_WINDOW, self.placed(nodes.JoinWindow(this=length), token), token)

    def _partition_clause(self, this: exp.Expr) -> None:
        """``PARTITION BY HASH(a, b) INTO 8``, ``PARTITION BY HASH INTO 8``, ``… RANGE(k) …``."""
        token = self._curr
        if not isinstance(this, exp.Select):
            self.refuse("PARTITION BY … INTO stands in a SELECT", token)
        self._advance()
        scheme = self.one_of(("HASH", "RANGE"), "PARTITION BY")
        keys = []
        if self._match(TokenType.L_PAREN):
            keys = self._parse_csv(self._parse_disjunction)
            if not keys:
                self.refuse_unexpected(f"a key is missing in {scheme}( )")
            self.close_paren()
        elif scheme == "RANGE":
            self.refuse("RANGE needs its key in parentheses", hint="PARTITION BY RANGE(k) INTO 8")
        partition = f"PARTITION BY {scheme}{'(…)' if keys else ''}"
        self.require("INTO", after=partition, whole=f"{partition} INTO 8")
        number = self._parse_unary()
        if number is None:
            self.refuse_unexpected("a number of partitions is missing after INTO")
        made = nodes.PartitionBy(this=scheme, expressions=keys, expression=number)
        self._put(this, nodes.PARTITION_BY, self.placed(made, token), token)

    def _named_window(self) -> exp.Expr | None:
        if self._next.token_type != TokenType.ALIAS:
            self.refuse("expected AS ( … ) after the name of a window")
        return self._parse_named_window()

    def _stream_clauses(self, this: exp.Expr) -> None:
        """``EMIT CHANGES``, ``ON BAD ROW KEEP``, ``LATE OUTPUT INTO t``, in any order."""
        while True:
            token = self._curr
            if self.word_is("EMIT"):
                self._put(this, nodes.EMIT, self._emit(), token)
            elif self.word_is("ON", "BAD"):
                self._put(this, nodes.ON_BAD_ROW, self.on_bad_row(), token)
            elif self.word_is("LATE"):
                self._put(this, nodes.LATE_OUTPUT, self.late_output(), token)
            else:
                return

    def _emit(self) -> exp.Expr:
        token = self._curr
        self._advance()
        mode = self.one_of(("CHANGES", "FINAL", "ON WINDOW CLOSE"), "EMIT")
        return self.placed(nodes.Emit(this=mode), token)

    def on_bad_row(self) -> exp.Expr:
        token = self._curr
        self.require("ON", "BAD", "ROW", after="the query", whole="ON BAD ROW KEEP")
        return self.placed(nodes.OnBadRow(this=self.one_of(("FAIL", "KEEP"), "ON BAD ROW")), token)

    def late_output(self) -> exp.Expr:
        token = self._curr
        whole = "LATE OUTPUT INTO table"
        self.require("LATE", "OUTPUT", "INTO", after="the query", whole=whole)
        return self.placed(nodes.LateOutput(this=self.object_name("the name of a table")), token)

    # ----------------------------------------------------------------- hints

    def _hint_behind(self, select: Token) -> exp.Hint | None:
        """``/*+ window_operator(wid), morsel_rows(1024) */`` between SELECT and the next word."""
        end = self._curr.start if self._curr else len(self.sql)
        first = bisect_right(self._hints, select.end, key=lambda hint: hint.start)
        last = bisect_right(self._hints, end, key=lambda hint: hint.start)
        found = self._hints[first:last]
        if not found:
            return None
        hints = [hint for text in found for hint in self._read_hint(text)]
        self._used_hints.update(h.start for h in found)
        return exp.Hint(expressions=hints)

    def _read_hint(self, text: HintText) -> list[nodes.PlanHint]:
        source = self.original[text.body : text.end]
        try:
            toks = [
                Token(t.token_type, t.text, start=t.start + text.body, end=t.end + text.body)
                for t in CqlTokenizer(dialect=self.dialect).tokenize(source)
            ]
        except TokenError:
            start = Token(TokenType.HINT, "/*+", start=text.start, end=text.start + 2)
            self.refuse("this hint has an open quote", start)
        hints: list[nodes.PlanHint] = []
        at = 0
        while at < len(toks):
            name = toks[at]
            if (
                name.token_type in (TokenType.STRING, TokenType.NUMBER)
                or not name.text.isidentifier()
            ):
                self.refuse(f"{name.text!r} is not the name of a hint", name, "name(value, …)")
            at += 1
            values: list[exp.Expr] = []
            if at < len(toks) and toks[at].token_type == TokenType.L_PAREN:
                at, values = self._hint_values(toks, at)
            hint = nodes.PlanHint(this=name.text, expressions=values)
            hints.append(self.placed(hint, name))
            if at < len(toks) and toks[at].token_type == TokenType.COMMA:
                at += 1
        if not hints:
            start = Token(TokenType.HINT, "/*+", start=text.start, end=text.start + 2)
            self.refuse("this hint is empty", start, "for example /*+ morsel_rows(1024) */")
        return hints

    def _hint_values(self, toks: list[Token], at: int) -> tuple[int, list[exp.Expr]]:
        opened = toks[at]
        values: list[exp.Expr] = []
        at += 1
        while at < len(toks) and toks[at].token_type != TokenType.R_PAREN:
            token = toks[at]
            if token.token_type == TokenType.NUMBER:
                values.append(self.placed(exp.Literal.number(token.text), token))
            elif token.token_type == TokenType.STRING:
                values.append(self.placed(exp.Literal.string(token.text), token))
            elif token.text.isidentifier():
                values.append(self.placed(exp.Var(this=token.text), token))
            else:
                self.refuse(f"{token.text!r} is not a value of a hint", token, "name(value, …)")
            at += 1
            if at < len(toks) and toks[at].token_type == TokenType.COMMA:
                at += 1
        if at >= len(toks):
            self.refuse("this hint is not closed", opened, "add )")
        return at + 1, values

    original: str = ""
    """The text as written: ``sql`` has its comments blanked, hints among them."""

    def check_hints(self) -> None:
        for hint in self._hints:
            if hint.start not in self._used_hints:
                token = Token(TokenType.HINT, "/*+", start=hint.start, end=hint.start + 2)
                self.refuse(
                    "a hint stands right behind SELECT",
                    token,
                    hint="a comment is written /* … */",
                )
