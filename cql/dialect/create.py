"""Parses CREATE STREAM, CREATE VIEW, CREATE TABLE and CREATE CONSTANT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cql.dialect import duration, nodes, sources, unsupported
from cql.dialect.parser import QueryParser
from cql.errors import did_you_mean

#: What a statement can create and drop.
KINDS = ("STREAM", "VIEW", "TABLE", "CONSTANT")
_STREAM_CLAUSES = (
    "ORDERED BY",
    "WATERMARK",
    "UPDATE KEY",
    "CHANGELOG",
    "QUEUE",
    "WINDOWS",
    "STALENESS UNDER",
    "REFRESH",
    "RATE",
    "IDLE AFTER",
    "HEARTBEAT",
    "MAX ADVANCE",
    "PUNCTUATE",
    "ON BAD ROW",
    "LATE OUTPUT",
)
_LISTS = ("ordered_by", "watermark", "punctuate")


class CreateParser(QueryParser):
    """Parses the parts of CREATE statements, and the literals of settings and constants."""

    CLAUSES: ClassVar[dict[str, tuple[str, Callable[[Any], exp.Expr]]]] = {
        "ORDERED": ("ordered_by", lambda self: self._ordered_by()),
        "WATERMARK": ("watermark", lambda self: self._watermark()),
        "UPDATE": ("update_key", lambda self: self._update_key()),
        "CHANGELOG": ("changelog", lambda self: self._changelog()),
        "QUEUE": ("queue", lambda self: self._queue()),
        "WINDOWS": ("windows", lambda self: self._windows_mode()),
        "STALENESS": ("staleness", lambda self: self._staleness()),
        "REFRESH": ("refresh", lambda self: self._refresh()),
        "RATE": ("rate", lambda self: self._rate()),
        "IDLE": ("idle_after", lambda self: self._idle_after()),
        "HEARTBEAT": ("heartbeat", lambda self: self._heartbeat()),
        "MAX": ("max_advance", lambda self: self._max_advance()),
        "PUNCTUATE": ("punctuate", lambda self: self._punctuate()),
        "ON": ("on_bad_row", lambda self: self.on_bad_row()),
        "LATE": ("late_output", lambda self: self.late_output()),
    }

    def create(self) -> exp.Expr:
        replace = self.accept("OR", "REPLACE")
        if self.accept("MATERIALIZED", "VIEW"):
            return self._materialized_view(replace)
        self._view_words()
        kind = self.one_of(KINDS, "CREATE")
        if kind == "CONSTANT":
            return self._constant(replace)
        exists = self._if("IF", "NOT", "EXISTS")
        args: dict[str, Any] = {
            "this": self.object_name(f"the name of the {kind.lower()}"),
            "replace": replace or None,
            "exists": exists or None,
        }
        if kind == "STREAM":
            return self._create_stream(args)
        if kind == "VIEW":
            if self._curr.token_type == TokenType.L_PAREN:
                args["expressions"] = self.names("a column")
            args["query"] = self._query_after_as()
            if args["query"] is None:
                self.refuse_unexpected("expected AS and a query")
            return self.expression(nodes.CreateView(**args))
        return self._create_table(args)

    def _view_words(self) -> None:
        """Skips ``TEMP`` and ``TEMPORARY`` before VIEW.

        The words change nothing: every view belongs to its session."""
        temporary = self.word_is("TEMP") or self.word_is("TEMPORARY")
        if temporary and self._next.text.upper() == "VIEW":
            self._advance()
        elif temporary:
            self.refuse(
                "only views are created as temporary",
                hint="leave the word out: tables without a database end with the session anyway",
            )
        elif self.word_is("EXTERNAL"):
            hint = "leave the word out: LOCATION 'folder' makes the table one of files"
            self.refuse("CREATE EXTERNAL is not supported", hint=hint)
        elif self.word_is("GLOBAL"):
            self.refuse("CREATE GLOBAL is not supported", hint="CREATE VIEW name AS SELECT …")

    def _materialized_view(self, replace: bool) -> exp.Expr:
        """``v COMMENT 'text' FRESHNESS 1 MINUTE AS SELECT …``; the clauses come in any order."""
        exists = self._if("IF", "NOT", "EXISTS")
        args: dict[str, Any] = {
            "this": self.object_name("the name of the materialized view"),
            "replace": replace or None,
            "exists": exists or None,
        }
        while self._curr and self._curr.token_type != TokenType.ALIAS:
            self.refuse_unsupported(unsupported.OF_MATERIALIZED_VIEW)
            token = self._curr
            clause = self.one_of(("COMMENT", "FRESHNESS", "AS"), "the name")
            if clause.lower() in args:
                self.refuse(f"this view has two {clause} clauses", token)
            if clause == "FRESHNESS":
                args["freshness"] = self.parse_duration("FRESHNESS")
            elif self._match(TokenType.STRING):
                text = exp.Literal.string(self._prev.text)
                args["comment"] = self.placed(text, self._prev)
            else:
                self.refuse("expected a string after COMMENT", hint="COMMENT 'text'")
        begin = self._next.start if self._next else 0
        args["query"] = self._query_after_as()
        if args["query"] is None:
            self.refuse_unexpected("expected AS and a query")
        made = self.expression(nodes.CreateMaterializedView(**args))
        made.meta["query_start"] = begin
        return made

    def _if(self, *words: str) -> bool:
        if not self.accept("IF"):
            return False
        self.require(*words[1:], after="IF", whole=" ".join(words))
        return True

    def _constant(self, replace: bool) -> exp.Expr:
        """``SYN = 2`` or ``WEIGHTS = array(1, 2)`` after CREATE CONSTANT or DECLARE."""
        name = self.name("the name of the constant")
        if not self._match(TokenType.EQ):
            self.refuse("expected = after the name of the constant")
        listed = self.word_is("ARRAY", "(")
        value = self._parse_unary() if listed else self._value("a literal")
        return self.expression(
            nodes.CreateConstant(this=name, replace=replace or None, expression=value)
        )

    def declare(self) -> exp.Expr:
        return self._constant(False)

    def _create_stream(self, args: dict[str, Any]) -> exp.Expr:
        if self._curr.token_type == TokenType.L_PAREN:
            args["expressions"] = self._columns()
        while self._curr and self._curr.token_type != TokenType.ALIAS:
            self._stream_part(args)
        args["query"] = self._query_after_as()
        self._refuse_misplaced("STREAM", args)
        return self.expression(nodes.CreateStream(**args))

    def _stream_part(self, args: dict[str, Any]) -> None:
        token = self._curr
        if token.token_type == TokenType.FROM:
            self._one_source(args, token)
            self._advance()
            self.require("TABLE", after="FROM", whole="FROM TABLE name")
            args["from_table"] = self.object_name("the name of a table")
            if self.accept("OPTIONS"):
                args["options"] = self._options(equals=False)
        elif token.token_type in (TokenType.USING, TokenType.WITH):
            self._one_source(args, token)
            self._read_source(args)
        else:
            key, parse = self.CLAUSES.get(token.text.upper(), ("", None))
            if parse is None or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
                clause = f"{self._prev.text} {token.text}".upper()
                if clause in _STREAM_CLAUSES:  # the parser has read its first word as a name
                    self.refuse(f"a name is missing before {clause}", self._prev)
                hint = did_you_mean(token.text, _STREAM_CLAUSES)
                self.refuse(
                    f"{token.text!r} starts no clause of CREATE STREAM",
                    hint=hint or f"one of: {', '.join(_STREAM_CLAUSES)}, AS SELECT …",
                )
            if key in args and key not in _LISTS:
                self.refuse(f"this stream has two {key.replace('_', ' ').upper()} clauses", token)
            made = self.placed(parse(self), token)
            if key in _LISTS:
                args.setdefault(key, []).append(made)
            else:
                args[key] = made

    def _one_source(self, args: dict[str, Any], token: Token) -> None:
        if any(key in args for key in ("from_table", "format", "with_options")):
            self.refuse("a stream has one source", token, hint="FROM TABLE, USING or WITH")

    def _read_source(self, args: dict[str, Any]) -> None:
        """``USING csv OPTIONS (path '/x')`` or ``WITH ('path' = '/x')``."""
        if self._match(TokenType.WITH):
            args["with_options"] = self._options(equals=True)
            return
        self._advance()
        args["format"] = self.name("the name of a format")
        while self._match(TokenType.DOT):
            self.refuse("a format is one word", self._prev)
        if self.accept("OPTIONS"):
            args["options"] = self._options(equals=False)

    def _options(self, *, equals: bool) -> list[exp.Expr]:
        if not self._match(TokenType.L_PAREN):
            self.refuse("expected ( before the options", hint="(key 'value', …)")
        options: list[exp.Expr] = []
        seen: set[str] = set()
        while True:
            token = self._curr
            key = self._option_key()
            if key.name.lower() in seen:
                self.refuse(f"option {key.name!r} stands here twice", token)
            seen.add(key.name.lower())
            if not self._match(TokenType.EQ) and equals:
                self.refuse(f"expected = after {key.name!r}", hint="WITH ('key' = 'value')")
            value = self._value("a value for the option")
            options.append(self.placed(nodes.Option(this=key, expression=value), token))
            if not self._match(TokenType.COMMA):
                break
        self.close_paren()
        return options

    def _option_key(self) -> exp.Literal:
        token = self._curr
        if token.token_type == TokenType.STRING:
            self._advance()
            return self.placed(exp.Literal.string(token.text), token)
        return self.placed(exp.Literal.string(self._dotted("the name of an option")), token)

    def _dotted(self, what: str) -> str:
        """``spark.sql.shuffle.partitions``: any words and dots."""
        parts = []
        while True:
            token = self._curr
            word = token and token.token_type != TokenType.STRING and token.text.isidentifier()
            if not word:
                self.refuse(f"expected {what}")
            self._advance()
            parts.append(token.text)
            if not self._match(TokenType.DOT):
                return ".".join(parts)

    def _create_table(self, args: dict[str, Any]) -> exp.Expr:
        if self._curr.token_type == TokenType.L_PAREN:
            args["expressions"] = self._columns()
        if self._curr.token_type in (TokenType.USING, TokenType.WITH):
            self._read_source(args)
        while True:
            if self.word_is("LOCATION"):
                self._location(args)
            elif self.word_is("PARTITIONED", "BY"):
                self._partitioned_by(args)
            else:
                break
        self.refuse_unsupported(unsupported.OF_TABLE)
        args["query"] = self._query_after_as()
        self._refuse_misplaced("TABLE", args)
        files = args.get("options") or args.get("with_options")
        if args["query"] is None and "expressions" not in args and not files:
            self.refuse_unexpected("expected a list of columns, or AS and a query")
        return self.expression(nodes.CreateTable(**args))

    def _location(self, args: dict[str, Any]) -> None:
        """``LOCATION '/x'``: another spelling of the option path."""
        token = self._curr
        self._advance()
        options = args.setdefault("with_options" if "with_options" in args else "options", [])
        if any(option.key_name.lower() == "path" for option in options):
            self.refuse("this table has a path already", token, hint="leave one of them out")
        if self._curr is None or self._curr.token_type != TokenType.STRING:
            self.refuse("expected a path after LOCATION", hint="LOCATION 'folder'")
        value = self._value("a path")
        key = self.placed(exp.Literal.string("path"), token)
        options.append(self.placed(nodes.Option(this=key, expression=value), token))

    def _partitioned_by(self, args: dict[str, Any]) -> None:
        if "partitioned_by" in args:
            self.refuse("this table has two PARTITIONED BY clauses", self._curr)
        self._advance(2)
        if self._curr is None or self._curr.token_type != TokenType.L_PAREN:
            self.refuse("expected ( after PARTITIONED BY", hint="PARTITIONED BY (column, …)")
        args["partitioned_by"] = self.names("a column")

    def _refuse_misplaced(self, kind: str, args: dict[str, Any]) -> None:
        found = sources.misplaced(kind, args)
        if found is not None:
            start, end = found.node.meta["start"], found.node.meta["end"]
            token = Token(TokenType.VAR, "", start=start, end=end)
            self.refuse(found.message, token, found.hint)

    def _columns(self) -> list[exp.Expr]:
        self._advance()
        columns: list[exp.Expr] = []
        seen: set[str] = set()
        while True:
            token = self._curr
            if self.word_is("WATERMARK", "FOR"):
                columns.append(self.placed(self._watermark(), token))
            elif self.word_is("PRIMARY", "KEY"):
                self._advance(2)
                columns.append(
                    self.placed(nodes.PrimaryKey(expressions=self.names("a column")), token)
                )
                self.accept("NOT", "ENFORCED")  # Flink's spelling; the engine enforces no key
            else:
                named = self.word_is("CONSTRAINT")  # CONSTRAINT c CHECK (…)
                self.refuse_unsupported(unsupported.OF_COLUMNS, ahead=2 if named else 0)
                column = self._column()
                if column.name.lower() in seen:
                    self.refuse(f"column {column.name!r} stands here twice", token)
                seen.add(column.name.lower())
                columns.append(column)
            if not self._match(TokenType.COMMA):
                break
        self.close_paren()
        return columns

    def _column(self) -> exp.Expr:
        """``price DOUBLE NOT NULL COMMENT 'x'``."""
        token = self._curr
        name = self.name("the name of a column")
        if self._match(TokenType.ALIAS):
            expression = self._parse_disjunction()
            if expression is None:
                self.refuse_unexpected(f"an expression is missing after {name.name} AS")
            return self.placed(sources.computed_column(name, expression), token)
        kind = self.data_type(f"column {name.name!r}")
        constraints: list[exp.Expr] = []
        while True:
            start = self._curr
            constraint: exp.Expr
            if self.accept("NOT", "NULL"):
                constraint = exp.NotNullColumnConstraint()
            elif self.accept("NULL"):
                constraint = exp.NotNullColumnConstraint(allow_null=True)
            elif self.accept("PRIMARY", "KEY"):
                constraint = exp.PrimaryKeyColumnConstraint()
            elif self.accept("COMMENT"):
                if not self._match(TokenType.STRING):
                    self.refuse("expected a string after COMMENT", hint="COMMENT 'text'")
                text = self.placed(exp.Literal.string(self._prev.text), self._prev)
                constraint = exp.CommentColumnConstraint(this=text)
            else:
                self.refuse_unsupported(unsupported.OF_COLUMN)
                break
            constraints.append(self.placed(exp.ColumnConstraint(kind=constraint), start))
        return self.placed(exp.ColumnDef(this=name, kind=kind, constraints=constraints), token)

    # ----------------------------------------------------------------- clauses of a stream

    def _ordered_by(self) -> exp.Expr:
        whole = "ORDERED BY column [WITHIN 5 SECONDS]"
        self.require("ORDERED", "BY", after="the name of the stream", whole=whole)
        column = self.name("a column")
        unit = None
        if self._match(TokenType.IN):
            token = self._curr
            unit = duration.UNITS.get(token.text.upper())
            if unit not in duration.CLOCK_UNITS or unit == "WEEK":
                units = [f"{u}S" for u in duration.CLOCK_UNITS if u != "WEEK"]
                hint = did_you_mean(token.text, units)
                self.refuse(
                    f"{token.text!r} is no unit of a time column" if token else "expected a unit",
                    hint=hint or f"one of: {', '.join(units)}",
                )
            self._advance()
        within = self.parse_duration("WITHIN") if self.accept("WITHIN") else None
        return nodes.OrderedBy(this=column, unit=unit, within=within)

    def _watermark(self) -> exp.Expr:
        self._advance()
        if not self.accept("FOR"):
            column = self.name("a column")
            whole = "WATERMARK column DELAY OF INTERVAL 5 SECONDS"
            self.require("DELAY", after="WATERMARK <column>", whole=whole)
            self.accept("OF")
            return nodes.Watermark(this=column, delay=self.parse_duration("DELAY"))
        column = self.name("a column")
        whole = "WATERMARK FOR column AS column - INTERVAL '5' SECOND"
        self.require("AS", after="WATERMARK FOR <column>", whole=whole)
        expression = self._parse_disjunction()
        if expression is None:
            self.refuse_unexpected("an expression is missing after AS")
        return self._as_delay(column, expression)

    def _as_delay(self, column: exp.Identifier, expression: exp.Expr) -> exp.Expr:
        def is_column(node: exp.Expr) -> bool:
            return isinstance(node, exp.Column) and len(node.parts) == 1 and node.this == column

        if is_column(expression):
            return nodes.Watermark(this=column, delay=exp.Literal.number(0))
        if isinstance(expression, exp.Sub) and is_column(expression.this):
            amount = expression.expression
            if isinstance(amount, exp.Interval):
                length = duration.to_duration(amount)
                if length is not None:
                    length.meta.update(amount.meta)
                    return nodes.Watermark(this=column, delay=length)
            if isinstance(amount, exp.Literal) and amount.is_int:
                return nodes.Watermark(this=column, delay=amount.copy())
        return nodes.Watermark(this=column, expression=expression)

    def _update_key(self) -> exp.Expr:
        whole = "UPDATE KEY (column, …)"
        self.require("UPDATE", "KEY", after="the name of the stream", whole=whole)
        if self._curr.token_type == TokenType.L_PAREN:
            return nodes.UpdateKey(expressions=self.names("a column"))
        if self.at_name() and self._curr.text.upper() not in self.CLAUSES:
            return nodes.UpdateKey(expressions=[self.name()])
        return nodes.UpdateKey(expressions=[])

    def _changelog(self) -> exp.Expr:
        self._advance()
        if self.accept("BY"):
            return nodes.Changelog(this=self.name("the column with the operation codes"))
        self.one_of(("DEBEZIUM", "BY column"), "CHANGELOG")
        return nodes.Changelog()

    def _queue(self) -> exp.Expr:
        self._advance()
        if self.accept("IN", "-", "PLACE") or self.accept("INPLACE") or self.accept("IN_PLACE"):
            return nodes.Queue(this="IN-PLACE")
        kind = self.one_of(("APPEND", "FIFO", "LINECUTTING", "IN-PLACE", "ADAPTIVE"), "QUEUE")
        shed = None
        if self.word_is("SHED"):
            if kind != "APPEND":
                self.refuse("only QUEUE APPEND sheds load", hint="QUEUE APPEND SHED RANDOM")
            self._advance()
            shed = self.one_of(("RANDOM",), "SHED")
        return nodes.Queue(this=kind, shed=shed)

    def _windows_mode(self) -> exp.Expr:
        self._advance()
        return nodes.WindowsMode(this=self.one_of(("LAZY", "EAGER"), "WINDOWS"))

    def _staleness(self) -> exp.Expr:
        whole = "STALENESS UNDER 200 ms"
        self.require("STALENESS", "UNDER", after="the name of the stream", whole=whole)
        return nodes.StalenessGoal(this=self.parse_duration("STALENESS UNDER"))

    def _refresh(self) -> exp.Expr:
        """``REFRESH k = 1 EVERY 1 MINUTE, EVERY 5 SECONDS``: the last item may stand for all other
        keys."""
        self._advance()
        items: list[exp.Expr] = []
        while True:
            token = self._curr
            condition = None
            if not self.word_is("EVERY"):
                condition = self._parse_disjunction()
                if condition is None:
                    self.refuse_unexpected("expected a condition or EVERY in REFRESH")
            self.require("EVERY", after="the condition of REFRESH", whole="k = 1 EVERY 1 MINUTE")
            item = nodes.RefreshItem(this=condition, every=self.parse_duration("EVERY"))
            items.append(self.placed(item, token))
            if not self._match(TokenType.COMMA):
                return nodes.Refresh(expressions=items)
            if condition is None:
                hint = "EVERY without a condition is for all other keys: put it last"
                self.refuse("an item of REFRESH stands behind the one for all keys", hint=hint)

    def _rate(self) -> exp.Expr:
        self._advance()
        token = self._curr
        if not self._match(TokenType.NUMBER) or not duration.is_duration_number(token.text):
            self.refuse("expected a number after RATE", token, hint="for example RATE 48 KHZ")
        number = self.placed(exp.Literal.number(token.text), token)
        unit = self.one_of(("HZ", "KHZ", "MHZ"), "RATE …")
        tolerance = self.parse_duration("TOLERANCE") if self.accept("TOLERANCE") else None
        return nodes.Rate(this=number, unit=unit, tolerance=tolerance)

    def _idle_after(self) -> exp.Expr:
        whole = "IDLE AFTER 5 SECONDS"
        self.require("IDLE", "AFTER", after="the name of the stream", whole=whole)
        return nodes.IdleAfter(this=self.parse_duration("IDLE AFTER"))

    def _heartbeat(self) -> exp.Expr:
        whole = "HEARTBEAT EVERY 1 SECOND SLACK 2 SECONDS"
        self.require("HEARTBEAT", "EVERY", after="the name of the stream", whole=whole)
        every = self.parse_duration("EVERY")
        self.require("SLACK", after="HEARTBEAT EVERY …", whole=whole)
        return nodes.Heartbeat(every=every, slack=self.parse_duration("SLACK"))

    def _max_advance(self) -> exp.Expr:
        whole = "MAX ADVANCE 1 HOUR"
        self.require("MAX", "ADVANCE", after="the name of the stream", whole=whole)
        return nodes.MaxAdvance(this=self.parse_duration("MAX ADVANCE"))

    def _punctuate(self) -> exp.Expr:
        self._advance()
        if self.accept("BY"):
            made = nodes.Punctuate(this=self.name("a column"), by=True)
            if self.accept("WITHIN"):
                made.set("within", self.parse_duration("WITHIN"))
            return made
        self.require("ON", after="PUNCTUATE", whole="PUNCTUATE ON column")
        made = nodes.Punctuate(this=self.name("a column"))
        if self.accept("WHEN"):
            made.set("when", self.name("a column"))
        if self.accept("EVERY"):
            made.set("every", self.parse_duration("EVERY"))
        return made

    def _query_after_as(self) -> exp.Expr | None:
        return self.query_or_names() if self._match(TokenType.ALIAS) else None

    def _value(self, what: str) -> exp.Expr:
        """A literal, a duration, or a bare word."""
        token = self._curr
        number = self._next if token.token_type == TokenType.DASH else token
        if token.token_type == TokenType.INTERVAL:
            return self.parse_duration("INTERVAL", signed=True)
        if number.token_type == TokenType.NUMBER:
            behind = self._tokens[self._index + 1 + (number is not token) :][:1]
            if behind and behind[0].text.upper() in duration.UNITS:
                return self.parse_duration("this value", signed=True)
            self._advance(2 if number is not token else 1)
            literal = self._number(number)
            return literal if number is token else self.placed(exp.Neg(this=literal), token)
        if self._match(TokenType.STRING):
            return self.placed(exp.Literal.string(token.text), token)
        if self._match_set((TokenType.TRUE, TokenType.FALSE)):
            return self.placed(exp.Boolean(this=token.token_type == TokenType.TRUE), token)
        if self._match(TokenType.NULL):
            return self.placed(exp.Null(), token)
        dated = token.token_type in (TokenType.DATE, TokenType.TIMESTAMP)
        if (dated and self._next.token_type == TokenType.STRING) or self.word_is("CAST", "("):
            cast = self._parse_unary()
            if not isinstance(cast, exp.Cast) or not isinstance(cast.this, exp.Literal):
                self.refuse(f"expected {what}", token)
            return cast
        if token and token.token_type != TokenType.IDENTIFIER and token.text.isidentifier():
            self._advance()
            return self.placed(exp.Var(this=token.text), token)
        raise self.refusal(f"expected {what}" + (f", not {token.text!r}" if token else ""))
