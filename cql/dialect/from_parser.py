"""FROM items: ``S [w] AS a``, ``A UNION B AS m [w]``, ``TABLE(TUMBLE(…))``, subqueries, joins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cql.dialect import nodes, unsupported
from cql.dialect.duration_parser import DurationParser
from cql.dialect.tokens import RELATION_TO_STREAM, WINDOW_OPEN, WINDOW_WORDS
from cql.errors import did_you_mean

QUERY_STARTS = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.VALUES})
_BRACKETS = frozenset({WINDOW_OPEN, TokenType.L_BRACKET})
_WINDOW_TABLES: dict[str, tuple[str, ...]] = {
    "TUMBLE": ("size", "offset"),
    "HOP": ("slide", "size", "offset"),
    "CUMULATE": ("step", "size", "offset"),
    "SESSION": ("gap",),
}
_WINDOW_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "TUMBLE": ("size", "offset"),
    "HOP": ("slide", "size", "offset"),
    "SESSION": ("gap",),
    "WINDOW": ("size", "slide", "offset"),
    "SESSION_WINDOW": ("gap",),
}
_REQUIRED = {
    "TUMBLE": ("size",),
    "HOP": ("slide", "size"),
    "CUMULATE": ("step", "size"),
    "SESSION": ("gap",),
    "WINDOW": ("size",),
    "SESSION_WINDOW": ("gap",),
}


def _group_window_of(name: str, parser: Any) -> exp.Expr | None:
    found: exp.Expr | None = parser._group_window(name)
    return found


class FromParser(DurationParser):
    """The part of the parser that reads FROM items and their windows."""

    FUNCTION_PARSERS: ClassVar[dict[str, Callable[[Any], exp.Expr | None]]] = {
        **DurationParser.FUNCTION_PARSERS,
        **{name: partial(_group_window_of, name) for name in _WINDOW_FUNCTIONS},
    }

    # ----------------------------------------------------------------- windows

    def at_bracket(self) -> bool:
        return self._curr.token_type in _BRACKETS

    def _at_close(self) -> bool:
        return self._curr.token_type == TokenType.R_BRACKET

    def stream_window(self) -> nodes.StreamWindow:
        """``[RANGE 1 minute, SLIDE 1 minute, WA ts]``; the parts in any order, with commas or
        blanks between them."""
        opened = self._curr
        self._advance()
        args: dict[str, object] = {}
        while self._curr and not self._at_close():
            if args and self._match(TokenType.COMMA) and self._at_close():
                self.refuse("nothing stands behind this comma", self._prev, "remove the comma")
            self._window_part(args)
        if not self._match(TokenType.R_BRACKET):
            self.refuse("this window is not closed", opened, hint="add ]")
        if not args:
            self.refuse(
                "this window is empty",
                opened,
                hint="a window is [RANGE 1 MINUTE, SLIDE 1 MINUTE, WA ts]",
            )
        self._resolve_kind(args, opened)
        return self.placed(nodes.StreamWindow(**args), opened)

    def _resolve_kind(self, args: dict[str, object], opened: Token) -> None:
        if "kind" in args:
            extra = [k for k in args if k not in ("kind", "wa", "gap")]
            if extra:
                self.refuse(f"[{args['kind']}] takes nothing else but WA", opened)
        elif "rows" in args:
            args["kind"] = "ROWS"
            if "zone" in args:
                self.refuse("TIME ZONE needs RANGE", opened)
            if "cumulate" in args:
                self.refuse("CUMULATE needs RANGE", opened, "[RANGE 1 DAY, CUMULATE 1 HOUR, WA ts]")
        elif "range" in args:
            args["kind"] = "RANGE"
            if "zone" in args and not {"cumulate", "slide"} & args.keys():
                self.refuse("TIME ZONE needs SLIDE or CUMULATE", opened)
            if "cumulate" in args and "slide" in args:
                self.refuse("a window either slides or cumulates", opened, "leave one of them out")
        else:
            self.refuse(
                "this window has no extent",
                opened,
                hint="it needs RANGE, ROWS, NOW or UNBOUNDED",
            )

    def _window_part(self, args: dict[str, object]) -> None:
        token = self._curr

        def put(key: str, value: object) -> None:
            if key in args:
                self.refuse(f"this window has two {token.text.upper()} clauses", token)
            args[key] = value

        if self.accept("RANGE"):
            if self.accept("UNBOUNDED"):
                put("range", exp.Var(this="UNBOUNDED"))
            else:
                put("range", self.parse_duration("RANGE"))
            self.accept("PRECEDING")
        elif self.accept("ROWS"):
            put("rows", exp.Var(this="UNBOUNDED") if self.accept("UNBOUNDED") else self._rows())
            self.accept("PRECEDING")
        elif self.accept("SLIDE"):
            put("slide", self.parse_duration("SLIDE"))
        elif self.accept("CUMULATE"):
            put("cumulate", self.parse_duration("CUMULATE"))
        elif self.accept("OFFSET"):
            put("offset", self.parse_duration("OFFSET", signed=True))
        elif self.accept("TIME", "ZONE"):
            put("zone", self._zone())
        elif self.accept("WITH", "RESTS"):
            put("rests", self.placed(exp.Var(this="RESTS"), token))
        elif self.accept("WA"):
            put("wa", self._attribute("WA"))
        elif self.accept("SESSION"):
            put("kind", "SESSION")
            args["gap"] = self.parse_duration("SESSION")
        elif self.word_is("NOW") or self.word_is("UNBOUNDED"):
            self._advance()
            put("kind", token.text.upper())
        elif self._match(TokenType.PARTITION_BY):
            put("partition", self._partition())
        else:
            hint = did_you_mean(token.text, WINDOW_WORDS) if token else None
            self.refuse(
                f"{token.text!r} starts no part of a window",
                token,
                hint=hint or f"one of: {', '.join(WINDOW_WORDS)}",
            )

    def _zone(self) -> exp.Expr:
        token = self._curr
        if not self._match(TokenType.STRING):
            self.refuse("TIME ZONE needs a text", token, hint="TIME ZONE 'Europe/Prague'")
        return self.placed(exp.Literal.string(token.text), token)

    def _rows(self) -> exp.Expr:
        token = self._curr
        if token.token_type == TokenType.NUMBER and token.text.isdecimal():
            self._advance()
            return self.placed(exp.Literal.number(token.text), token)
        if self._match(TokenType.COLON):
            return self._parameter()
        if self.at_name() and not any(self.word_is(w) for w in WINDOW_WORDS):
            return self.placed(exp.Column(this=self.name()), token)
        raise self.refusal("ROWS needs a whole number of rows", hint="for example ROWS 100")

    def _attribute(self, what: str) -> exp.Expr:
        """``ts``, an attribute of the item itself, is an Identifier; ``M1.ts`` is a Column."""
        token = self._curr
        first = self.name(f"the name of a column after {what}")
        if not self._match(TokenType.DOT):
            return first
        return self.placed(exp.Column(this=self.name("a column"), table=first), token)

    def _partition(self) -> list[exp.Expr]:
        columns = [self._attribute("PARTITION BY")]
        while self._curr.token_type == TokenType.COMMA and not any(
            self.word_is(*word.split(), ahead=1) for word in WINDOW_WORDS
        ):
            self._advance()
            columns.append(self._attribute("PARTITION BY"))
        return columns

    # ----------------------------------------------------------------- items

    def _parse_table(
        self,
        schema: bool = False,
        joins: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
        parse_bracket: bool = False,
        is_db_reference: bool = False,
        parse_partition: bool = False,
        consume_pipe: bool = False,
    ) -> exp.Expr | None:
        return self.from_item()

    def from_item(self) -> exp.Expr:
        """One item, or a bag union of several items: UNION binds tighter than the comma."""
        token = self._curr
        first, _ = self._single_item(first=True)
        if not self._at_from_union():
            self._no_second_window()
            return first
        members = [first]
        distinct = False
        window_after_alias = False
        while self._at_from_union():
            self._advance()
            if self._match(TokenType.DISTINCT):
                distinct = True
            else:
                self._match(TokenType.ALL)
            member, window_after_alias = self._single_item()
            members.append(member)
        last = members[-1]
        union = nodes.FromUnion(expressions=members, distinct=distinct or None)
        alias, window = last.args.get("alias"), last.args.get(nodes.STREAM_WINDOW)
        if alias is not None and not isinstance(last, exp.Values):
            last.set("alias", None)
            union.set("alias", alias)
        others_windowed = any(m.args.get(nodes.STREAM_WINDOW) for m in members[:-1])
        if self.at_bracket() and not window_after_alias:
            union.set(nodes.STREAM_WINDOW, self.stream_window())
        elif window is not None and (window_after_alias or not others_windowed):
            last.set(nodes.STREAM_WINDOW, None)
            union.set(nodes.STREAM_WINDOW, window)
        self._item_watermark(union)
        self._no_second_window()
        return self.placed(union, token)

    def _no_second_window(self) -> None:
        if self.at_bracket():
            self.refuse("this item has two windows", hint="remove one of them")

    def _at_from_union(self) -> bool:
        """Whether the current UNION is between FROM items.

        Then a name follows, or a parenthesized query with an alias or a window."""
        return self._unites_items(self._index)

    def _unites_items(self, index: int) -> bool:
        if self._kind(index) != TokenType.UNION:
            return False
        index += 1 + (self._kind(index + 1) in (TokenType.ALL, TokenType.DISTINCT))
        if index >= self._tokens_size:
            return True
        opened = index
        while self._kind(index) == TokenType.L_PAREN:
            index += 1
        if index >= self._tokens_size:
            return False
        word, behind = self._tokens[index].text.upper(), self._kind(index + 1)
        operator = word in RELATION_TO_STREAM and behind == TokenType.L_PAREN
        if not operator and self._kind(index) not in QUERY_STARTS:
            return word not in RELATION_TO_STREAM or behind is not None
        return opened < index and self._is_item_behind(self._closing(opened) + 1)

    def _is_item_behind(self, index: int) -> bool:
        """Whether an alias, a window or a union with an item begins at token ``index``."""
        kind = self._kind(index)
        if kind in _BRACKETS or kind == TokenType.ALIAS or self._unites_items(index):
            return True
        named = kind == TokenType.IDENTIFIER or kind in self.TABLE_ALIAS_TOKENS
        return named and not self._clause_ahead(index - self._index)

    def _kind(self, index: int) -> TokenType | None:
        return self._tokens[index].token_type if 0 <= index < self._tokens_size else None

    def _closing(self, opened: int) -> int:
        """The index of the token that closes the parenthesis at ``opened``; the number of tokens if
        the parenthesis stays open."""
        depth = 0
        for index in range(opened, self._tokens_size):
            kind = self._tokens[index].token_type
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            if depth == 0:
                return index
        return self._tokens_size

    def _single_item(self, first: bool = False) -> tuple[exp.Expr, bool]:
        """The item, and whether its window follows its alias. The window of a ``first`` item may
        also follow its watermark; behind a later item of a union it is that of the union."""
        token = self._curr
        stream = self.word_is("STREAM") and self._names_follow_stream()
        if stream:
            self._advance()
        item = self._bare_item()
        if "start" not in item.meta:
            item.update_positions(token)
        if stream:
            if not isinstance(item, exp.Table):
                self.refuse("STREAM stands before the name of a table", token)
            item.set(nodes.STREAM, True)
        if isinstance(item, exp.Table) and (version := self._parse_version()):
            item.set("version", version)
        window_after_alias = False
        self._window_behind(item)
        self._item_watermark(item)
        if first:
            self._window_behind(item)
        if not item.args.get("alias") and (alias := self._parse_table_alias()):
            item.set("alias", alias)
            window_after_alias = self._window_behind(item)
        self._item_watermark(item)
        if first:
            self._window_behind(item)
        return item, window_after_alias

    def _window_behind(self, item: exp.Expr) -> bool:
        """Reads the window of an item that has none yet; whether there was one."""
        if not self.at_bracket() or item.args.get(nodes.STREAM_WINDOW):
            return False
        item.set(nodes.STREAM_WINDOW, self.stream_window())
        return True

    def _names_follow_stream(self) -> bool:
        return self._next.token_type == TokenType.IDENTIFIER or (
            self._next.token_type in self.TABLE_ALIAS_TOKENS and not self._clause_ahead(1)
        )

    def _bare_item(self) -> exp.Expr:
        token = self._curr
        if token.token_type == TokenType.L_PAREN:
            return self._wrapped_item()
        if token.token_type == TokenType.VALUES:
            values = self._parse_derived_table_values()
            assert values is not None
            return values
        if token.token_type == TokenType.TABLE:
            self._advance()
            if not self._match(TokenType.L_PAREN):
                self.refuse(
                    "expected ( after TABLE", hint="TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), …))"
                )
            item = self._table_function()
            self.close_paren()
            return item
        if self._next.token_type == TokenType.L_PAREN and token.token_type in self.ID_VAR_TOKENS:
            return self._table_function()
        if token.token_type == TokenType.STRING:
            hint = f"declare it: CREATE STREAM s USING csv OPTIONS (path '{token.text}')"
            self.refuse("a file is no stream or table by itself", token, hint)
        if not self.at_name():
            self.refuse_unexpected(
                f"the name of a stream or table is missing before {token.text!r}"
                if token
                else "the name of a stream or table is missing at the end"
            )
        return self.object_name("the name of a stream or table")

    def _wrapped_item(self) -> exp.Expr:
        """``(SELECT …)``, ``(A UNION B)``, ``(a JOIN b ON …)``."""
        opened = self._curr
        self._advance()
        if self.at_query():
            query = self.query()
            self.close_paren()
            return self.placed(exp.Subquery(this=query), opened)
        item = self.from_item()
        joins = list(self._parse_joins())
        if isinstance(item, exp.Subquery) and self._curr.token_type in self.SET_OPERATIONS:
            # ((SELECT …) UNION (SELECT …)): the item is the first operand of a query
            query = self.set_operations(item)
            self.close_paren()
            return self.placed(exp.Subquery(this=query), opened)
        self.close_paren()
        if isinstance(item, nodes.FromUnion) and not any(
            (joins, item.args.get("alias"), item.args.get(nodes.STREAM_WINDOW))
        ):
            return item
        if joins:
            item.set("joins", joins)
        return self.placed(exp.Subquery(this=item), opened)

    def at_query(self) -> bool:
        if self._curr.token_type in QUERY_STARTS:
            return True
        return self.at_relation_to_stream()

    def at_relation_to_stream(self) -> bool:
        return (
            self._curr.token_type == TokenType.VAR
            and self._curr.text.upper() in RELATION_TO_STREAM
            and self._next.token_type == TokenType.L_PAREN
        )

    def _table_function(self) -> exp.Expr:
        token = self._curr
        name = token.text.upper()
        if name in _WINDOW_TABLES and self._next.token_type == TokenType.L_PAREN:
            self._advance(2)
            return self._window_table(name, token)
        if self._kind(self._index + 2) == TokenType.TABLE:
            return self._operator_over_table(token)
        function = None
        if token.token_type != TokenType.TABLE:  # TABLE(TABLE(…)) is not valid
            function = self._parse_function(optional_parens=False, anonymous=True)
        if function is None:
            self.refuse(
                "expected a table function",
                hint=did_you_mean(token.text, _WINDOW_TABLES) or "TUMBLE, HOP, CUMULATE, SESSION",
            )
        return self.placed(exp.Table(this=function), token)

    def _operator_over_table(self, start: Token) -> nodes.TableFunction:
        """``f(TABLE t, …)``, where the table may be a query in parentheses, or have a window or
        PARTITION BY."""
        name = self.name("a table function")
        self._advance(2)
        opened = self._curr
        if opened.token_type == TokenType.L_PAREN:
            source = self._wrapped_item()
        else:
            source = self.placed(self.object_name("the name of a stream or table"), opened)
        self._window_behind(source)
        keys = self._partition_columns()
        self.refuse_unsupported(unsupported.OF_ARGUMENT)
        constants: list[exp.Expr] = []
        while self._match(TokenType.COMMA):
            constants.append(self._parse_assignment() or self.refuse("an argument is missing"))
        self.close_paren()
        made = nodes.TableFunction(this=name, source=source, partition=keys, expressions=constants)
        return self.placed(made, start)

    def _partition_columns(self) -> list[exp.Expr]:
        """``PARTITION BY a``, ``PARTITION BY (a, b)``; empty if there is no such clause."""
        if not self._match(TokenType.PARTITION_BY):
            return []
        several = self._match(TokenType.L_PAREN)
        columns: list[exp.Expr] = [self.name("a column")]
        while several and self._match(TokenType.COMMA):
            columns.append(self.name("a column"))
        if several:
            self.close_paren()
        return columns

    # ----------------------------------------------------------------- window table functions

    def _window_table(self, kind: str, start: Token) -> nodes.WindowTable:
        """The arguments after ``TUMBLE(``: Flink's, Flink's named ones, or RisingWave's."""
        args: dict[str, object] = {"kind": kind}
        order = ["source", "time", *_WINDOW_TABLES[kind]]
        place = 0
        while True:
            token = self._curr
            key = self._argument_name(order, kind)
            if key is None:
                if place >= len(order):
                    self.refuse(f"{kind} takes at most {len(order)} arguments", token)
                key = order[place]
            if kind == "SESSION" and key == "gap" and self.word_is("DESCRIPTOR", "("):
                key = "partition"  # Calcite's order: the key before the gap
            place += key != "partition"
            if key in args:
                self.refuse(f"{kind} has two {key.upper()} arguments", token)
            if key == "source":
                args["source"] = self._source(args)
            elif key == "time":
                args["time"] = self._time_column()
            elif key == "partition":
                args["partition"] = self._key_columns()
            else:
                args[key] = self.parse_duration(key.upper(), signed=key == "offset")
            if not self._match(TokenType.COMMA):
                break
        self.close_paren()
        self._complete(kind, ("source", "time", *_REQUIRED[kind]), args, start)
        return self.placed(nodes.WindowTable(**args), start)

    def _argument_name(self, order: list[str], kind: str) -> str | None:
        if self._next.token_type != TokenType.FARROW:
            return None
        word = self._curr.text.upper()
        key = {"DATA": "source", "TIMECOL": "time"}.get(word, word.lower())
        if kind == "SESSION":
            key = {"KEY": "partition", "SIZE": "gap"}.get(word, key)
        if key not in (*order, *(("partition",) if kind == "SESSION" else ())):
            names = ["DATA", "TIMECOL", *(k.upper() for k in _WINDOW_TABLES[kind])]
            self.refuse(f"{kind} has no argument {word}", hint=did_you_mean(word, names))
        self._advance(2)
        return key

    def _source(self, args: dict[str, object]) -> exp.Expr:
        table_word = self._match(TokenType.TABLE)
        if self._curr.token_type == TokenType.L_PAREN:
            self._advance()
            query = self.query()
            self.close_paren()
            return query
        source: exp.Expr = self.object_name("the name of a stream or table")
        if table_word and self._match(TokenType.PARTITION_BY):
            if args["kind"] != "SESSION":
                self.refuse("only SESSION takes PARTITION BY", self._prev, hint="use GROUP BY")
            columns: list[exp.Expr] = [self.name("a column")]
            while self._curr.token_type == TokenType.COMMA and self._next.text.upper() not in (
                "DESCRIPTOR",
                "TIMECOL",
                "GAP",
            ):
                self._advance()
                columns.append(self.name("a column"))
            args["partition"] = columns
        return source

    def _time_column(self) -> exp.Identifier:
        if not self.accept("DESCRIPTOR"):
            return self.name("a time column, or DESCRIPTOR(ts)")
        if not self._match(TokenType.L_PAREN):
            self.refuse("expected ( after DESCRIPTOR")
        name = self.name("a time column")
        self.close_paren()
        return name

    def _key_columns(self) -> list[exp.Expr]:
        """Calcite's ``DESCRIPTOR(a, b)``, which other dialects write as PARTITION BY."""
        if not self.accept("DESCRIPTOR") or not self._match(TokenType.L_PAREN):
            self.refuse("expected DESCRIPTOR(column)")
        columns: list[exp.Expr] = [self.name("a column")]
        while self._match(TokenType.COMMA):
            columns.append(self.name("a column"))
        self.close_paren()
        return columns

    def _complete(
        self, kind: str, needed: tuple[str, ...], args: dict[str, object], start: Token
    ) -> None:
        missing = [key for key in needed if key not in args]
        if missing:
            shown = {"source": "table", "time": "time column"}
            self.refuse(f"{kind} lacks its {' and '.join(shown.get(m, m) for m in missing)}", start)

    def _group_window(self, kind: str) -> nodes.GroupWindow:
        """The arguments after ``TUMBLE(`` in an expression; ``hop(INTERVAL .., INTERVAL ..)`` has
        no column.
        """
        start = self._tokens[self._index - 2]
        args: dict[str, object] = {"kind": kind}
        keys = list(_WINDOW_FUNCTIONS[kind])
        if self._curr.token_type != TokenType.INTERVAL:
            args["this"] = self._parse_bitwise()
            if args["this"] is None:
                self.refuse(f"{kind} needs a time column")
            if not self._match(TokenType.COMMA):
                self._complete(kind, _REQUIRED[kind], args, start)
        args[keys.pop(0)] = self.parse_duration(kind)
        while self._match(TokenType.COMMA):
            if not keys:
                self.refuse(f"{kind} takes at most {1 + len(_WINDOW_FUNCTIONS[kind])} arguments")
            key = keys.pop(0)
            args[key] = self.parse_duration(f"{kind}'s {key}", signed=key == "offset")
        if self._curr.token_type != TokenType.R_PAREN:
            self.refuse_unexpected(f"expected ) at the end of {kind}(")
        self._complete(kind, _REQUIRED[kind], args, start)
        return self.placed(nodes.GroupWindow(**args), start)

    # ----------------------------------------------------------------- what follows an item

    def _item_watermark(self, item: exp.Expr) -> None:
        """``WATERMARK ts DELAY OF INTERVAL 5 SECONDS``."""
        if not self.word_is("WATERMARK"):
            return
        token = self._curr
        if self._tokens_size <= self._index + 2 or not self.word_is("DELAY", ahead=2):
            return
        if item.args.get(nodes.FROM_WATERMARK):
            self.refuse("this item has two watermarks", hint="remove one of them")
        self._advance()
        column = self.name("a column")
        whole = "WATERMARK column DELAY OF INTERVAL 5 SECONDS"
        self.require("DELAY", after="WATERMARK …", whole=whole)
        self.accept("OF")
        delay = self.parse_duration("DELAY OF")
        node = nodes.FromWatermark(this=column, delay=delay)
        item.set(nodes.FROM_WATERMARK, self.placed(node, token))

    def _clause_ahead(self, ahead: int = 0) -> bool:
        """Whether a clause starts here with a first word that could also be an alias."""

        def reads(*words: str) -> bool:
            return self.word_is(*words, ahead=ahead)

        if reads("EMIT"):
            return self._tokens_size > self._index + ahead + 1 and self._tokens[
                self._index + ahead + 1
            ].token_type in (TokenType.VAR, TokenType.ON)
        if reads("LATE"):
            return reads("LATE", "OUTPUT")
        if reads("WATERMARK"):
            return self.word_is("DELAY", ahead=ahead + 2)
        if reads("MATCH_CONDITION"):
            return True
        if reads("FOR"):
            return reads("FOR", "SYSTEM_TIME") or reads("FOR", "TIMESTAMP")
        if reads("WINDOW"):
            return self.at_window_clause(ahead)
        return reads("OFFSET")

    def at_window_clause(self, ahead: int = 0) -> bool:
        """``WINDOW 10 minutes``, ``WINDOW :w``, ``WINDOW d`` or ``WINDOW w AS (…)``."""
        if not self.word_is("WINDOW", ahead=ahead):
            return False
        index = self._index + ahead + 1
        if index >= self._tokens_size:
            return False
        return self._tokens[index].token_type in (
            TokenType.NUMBER,
            TokenType.STRING,
            TokenType.INTERVAL,
            TokenType.COLON,
            TokenType.VAR,
            TokenType.IDENTIFIER,
        )

    def _parse_table_alias(
        self, alias_tokens: Collection[TokenType] | None = None
    ) -> exp.TableAlias | None:
        token = self._curr
        explicit = token.token_type == TokenType.ALIAS
        if explicit:
            self._advance()
        elif self._clause_ahead():
            return None
        else:
            self.refuse_unsupported(unsupported.OF_QUERY)
        if not self.at_name() or (
            not explicit
            and token.token_type != TokenType.IDENTIFIER
            and token.token_type not in self.TABLE_ALIAS_TOKENS
        ):
            if explicit:
                self.refuse("expected a name after AS")
            return None
        name = self.name()
        columns = self.names("a column") if self._curr.token_type == TokenType.L_PAREN else None
        return self.placed(exp.TableAlias(this=name, columns=columns), token)

    def _parse_version(self) -> exp.Version | None:
        """``FOR SYSTEM_TIME AS OF a.ts``, ``FOR TIMESTAMP AS OF a.ts``."""
        word = next((w for w in ("SYSTEM_TIME", "TIMESTAMP") if self.word_is("FOR", w)), None)
        if word is None:
            return None
        token = self._curr
        self._advance(2)
        self.require("AS", "OF", after=f"FOR {word}", whole=f"FOR {word} AS OF time")
        at = self._parse_bitwise()
        if at is None:
            self.refuse("an expression is missing after AS OF")
        return self.placed(exp.Version(this="TIMESTAMP", kind="AS OF", expression=at), token)

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        """A comma, or ``[ASOF|NATURAL] [LEFT|RIGHT|FULL] [INNER|CROSS|SEMI|ANTI] JOIN item
        [ON|USING]``; ASOF may also follow the other words.
        """
        token = self._curr
        if self._match(TokenType.COMMA):
            return self.placed(exp.Join(this=self.from_item()), token)
        index = self._index
        method, side, kind = self._parse_join_parts()
        if method is None and (side or kind) and self._match(TokenType.ASOF):
            method = self._prev  # LEFT ASOF JOIN
        if not self._match(TokenType.JOIN):
            self._retreat(index)
            return None
        args: dict[str, object] = {"this": self.from_item()}
        for key, part in (("method", method), ("side", side), ("kind", kind)):
            if part:
                args[key] = part.text.upper()
        if self.word_is("MATCH_CONDITION"):
            if args.get("method") != "ASOF":
                self.refuse("only an ASOF JOIN takes MATCH_CONDITION", hint="use ON")
            self._advance()
            args["match_condition"] = self._parse_wrapped(self._parse_comparison)
        if self._curr.token_type == TokenType.ON and not self.word_is("ON", "BAD", "ROW"):
            self._advance()
            args["on"] = self._parse_disjunction()
            if args["on"] is None:
                self.refuse_unexpected("a condition is missing after ON")
        elif self._match(TokenType.USING):
            args["using"] = self.names("a column")
        return self.placed(exp.Join(**args), token)

    @abstractmethod
    def query(self) -> exp.Expr:
        """A whole query; the query parser, a subclass, implements the method."""

    @abstractmethod
    def set_operations(self, this: exp.Expr) -> exp.Expr:
        """The set operations after a first operand; implemented like ``query``."""
