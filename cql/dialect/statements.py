"""Parses scripts, and the short statements: INSERT, SET, SHOW, EXPLAIN, DROP, …"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cql.dialect import nodes, unsupported
from cql.dialect.create import KINDS, CreateParser
from cql.dialect.lexical import HintText, words
from cql.errors import did_you_mean

EXPLAIN_MODES = ("LOGICAL", "PHYSICAL", "ANALYZE", "MERMAID", "KERNEL")
#: The names of a session's queries.
QUERY_NAME = re.compile(r"[qQ]\d+")
SHOWN = (
    "STREAMS",
    "QUERIES",
    "TABLES",
    "DATABASES",
    "SCHEMAS",
    "VIEWS",
    "MATERIALIZED VIEWS",
    "FUNCTIONS",
    "CONSTANTS",
    "SETTINGS",
    "LATE",
    "BAD ROWS",
    "STALENESS",
)
#: Those that are about a query.
_OF_QUERY = ("LATE", "BAD ROWS", "STALENESS")
STATEMENTS = (
    "SELECT",
    "WITH",
    "VALUES",
    "CREATE",
    "INSERT",
    "DROP",
    "SET",
    "RESET",
    "SHOW",
    "DESCRIBE",
    "EXPLAIN",
    "DECLARE",
    "EXECUTE",
    "STOP",
    "REFRESH",
    "USE",
    "ISTREAM",
    "DSTREAM",
    "RSTREAM",
)
_FOREIGN = frozenset(
    words(
        "ADD ALTER ANALYZE ATTACH BEGIN CACHE CALL CLEAR COMMENT COMMIT COPY DELETE DETACH "
        "EXPORT GRANT IMPORT INSTALL KILL LIST LOAD LOCK MERGE MSCK OPTIMIZE PRAGMA PREPARE "
        "RENAME REPAIR REPLACE REVOKE ROLLBACK TRANSFORM TRUNCATE UNCACHE UNLOCK UPDATE VACUUM"
    )
)
"""First words of statements elsewhere: no misspelling of one of ours."""


class CqlParser(CreateParser):
    """The whole parser: :meth:`script` reads a text, statement by statement."""

    def script(
        self, toks: Sequence[Token], blanked: str, original: str, hints: tuple[HintText, ...]
    ) -> list[exp.Expr]:
        """The statements between the semicolons.

        The meta of a statement holds its offsets in the text, ``text_start`` and ``text_end``.
        """
        self.reset()
        self.sql = blanked
        self.original = original
        self._hints = hints
        ends = [*(i for i, t in enumerate(toks) if t.token_type == TokenType.SEMICOLON), len(toks)]
        begins = (0, *(end + 1 for end in ends))
        chunks = (list(toks[a:b]) for a, b in zip(begins, ends, strict=False))
        statements = []
        for chunk in chunks:
            head = _begins_set(chunk)
            if head:
                statements.append(self._set_of(chunk, head, chunks))
            elif chunk:
                statements.append(self._one(chunk))
        self.check_hints()
        return statements

    def _set_of(self, chunk: list[Token], head: int, following: Iterator[list[Token]]) -> exp.Expr:
        """A statement set; its first statement follows the first ``head`` words of ``chunk``."""
        first, mode = chunk[0], None
        if first.text.upper() == "EXPLAIN" and chunk[1].text.upper() in EXPLAIN_MODES:
            mode = chunk[1].text.upper()
        begin, members = chunk[head - 1], []
        chunk = chunk[head:]
        while [t.text.upper() for t in chunk] != ["END"]:
            if chunk:
                members.append(self._one(chunk))
                if not isinstance(members[-1], nodes.InsertInto):
                    self.refuse("a set of statements takes INSERT INTO", chunk[0])
            found = next(following, None)
            if found is None:
                self.refuse("this set of statements does not end", begin, hint="END; ends it")
            chunk = found
        if not members:
            self.refuse("a set of statements needs one INSERT INTO at least", begin)
        made: exp.Expr = nodes.StatementSet(expressions=members)
        if first.text.upper() == "EXPLAIN":
            made = nodes.Explain(this=made, mode=mode)
        made = self.placed(made, first)
        made.meta["text_start"], made.meta["text_end"] = first.start, chunk[-1].end + 1
        return made

    def _one(self, chunk: list[Token]) -> exp.Expr:
        self._tokens = chunk
        self._tokens_size = len(chunk)
        self._index = -1
        self._advance()
        statement = self.statement()
        if self._index < self._tokens_size:
            self.refuse_unexpected(f"unexpected {self._curr.text!r}")
        statement.meta["text_start"] = chunk[0].start
        statement.meta["text_end"] = chunk[-1].end + 1
        return statement

    # ----------------------------------------------------------------- dispatch

    def statement(self) -> exp.Expr:
        token = self._curr
        if not token:
            self.refuse("a statement is missing")
        if self.at_query() or token.token_type == TokenType.L_PAREN:
            return self.query()
        reader = _READERS.get(token.text.upper())
        plain = token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING)
        if reader is not None and plain and not self._names_a_set():
            self._advance()
            return self.placed(reader(self), token)
        if self.at_name() and self._names_a_set():
            return self.query_or_names()
        word = token.text.upper()
        near = None if word in _FOREIGN else did_you_mean(word, STATEMENTS)
        raise self.refusal(
            f"{token.text!r} is not a statement of this dialect",
            hint=near or f"one of: {', '.join(STATEMENTS)}",
        )

    def _names_a_set(self) -> bool:
        """Whether the statement is STREAM's bare ``A UNION B`` or ``A [ROWS 5] EXCEPT B``."""
        depth = 0
        for i in range(self._index + 1, self._tokens_size):
            token = self._tokens[i]
            if token.text == "[":
                depth += 1
            elif token.text == "]":
                depth -= 1
            elif depth == 0 and token.token_type in self.SET_OPERATIONS:
                return i > self._index
            elif depth == 0 and not (
                token.token_type == TokenType.DOT or self._tokens[i - 1].token_type == TokenType.DOT
            ):
                return False
        return False

    # ----------------------------------------------------------------- each statement

    def insert(self) -> exp.Expr:
        self.refuse_unsupported(unsupported.OF_INSERT)
        self.require("INTO", after="INSERT", whole="INSERT INTO table SELECT …")
        self._match(TokenType.TABLE)
        table = self.object_name("the name of a table")
        self.refuse_unsupported(unsupported.OF_INSERT)
        columns: list[exp.Expr] = []
        if self._curr.token_type == TokenType.L_PAREN and not self._next_starts_query():
            columns = self.names("a column")
        query = self.query_or_names()
        return self.expression(nodes.InsertInto(this=table, expressions=columns, query=query))

    def _next_starts_query(self) -> bool:
        index = self._index
        while self._curr.token_type == TokenType.L_PAREN:
            self._advance()
        found = self.at_query()
        self._retreat(index)
        return found

    def set_(self) -> exp.Expr:
        if not self._curr:
            return nodes.ShowObjects(this="SETTINGS")
        name = self._setting()
        if not self._curr:
            return nodes.SetSetting(this=name)
        if not self._match(TokenType.EQ) and not self.accept("TO"):
            hint = f"SET {name.name} = value"
            self.refuse("expected = after the name of the setting", hint=hint)
        return nodes.SetSetting(this=name, expression=self._value("a value"))

    def reset_(self) -> exp.Expr:
        return nodes.ResetSetting(this=self._setting() if self._curr else None)

    def _setting(self) -> exp.Var:
        self.refuse_unsupported(unsupported.OF_SET)
        first = self._curr
        name = exp.Var(this=self._dotted("the name of a setting"))
        return self.placed(name, Token(TokenType.VAR, "", start=first.start, end=self._prev.end))

    def explain(self) -> exp.Expr:
        mode = None
        for word in EXPLAIN_MODES:
            if self.word_is(word) and not self._names_a_set():
                self._advance()
                mode = word
                break
        if self._curr and not self._next and QUERY_NAME.fullmatch(self._curr.text):
            return nodes.Explain(this=self.name("the name of a query"), mode=mode)
        inner = self.statement()
        if isinstance(inner, nodes.Explain):
            self.refuse("EXPLAIN of EXPLAIN", self._tokens[0])
        return nodes.Explain(this=inner, mode=mode)

    def execute(self) -> exp.Expr:
        """Refuses EXECUTE: ``script`` has already parsed every valid statement set."""
        if [t.text.upper() for t in self._tokens[1:4]] == ["STATEMENT", "SET", "BEGIN"]:
            self.refuse("a set of statements stands in no other", self._tokens[0])
        self.refuse(
            "expected STATEMENT SET BEGIN after EXECUTE",
            hint="EXECUTE STATEMENT SET BEGIN INSERT …; INSERT …; END",
        )

    def show(self) -> exp.Expr:
        if self.word_is("CREATE") or self.word_is("COLUMNS"):
            self.refuse(f"there is no SHOW {self._curr.text.upper()}", hint="DESCRIBE name")
        what = self.one_of(SHOWN, "SHOW")
        place = None
        if what in ("TABLES", "MATERIALIZED VIEWS", "DATABASES", "SCHEMAS") and (
            self._match(TokenType.IN) or self._match(TokenType.FROM)
        ):
            place = self.object_name("the name of a database")
        like = None
        if self._match(TokenType.LIKE):
            if not self._match(TokenType.STRING):
                self.refuse("expected a string after LIKE", hint="LIKE 'prefix%'")
            like = self.placed(exp.Literal.string(self._prev.text), self._prev)
        query = None
        if what in _OF_QUERY and like is None and self._curr:
            query = self.name("the name of a query")
        return nodes.ShowObjects(this=what, like=like, place=place, query=query)

    def use(self) -> exp.Expr:
        for word in ("DATABASE", "SCHEMA", "NAMESPACE", "CATALOG"):
            if self.word_is(word) and self._next and self._next.token_type != TokenType.DOT:
                self._advance()
                break
        return nodes.UseDatabase(this=self.object_name("the name of a database"))

    def describe(self) -> exp.Expr:
        if self.accept("MATERIALIZED", "VIEW"):
            name = self.object_name("the name of the materialized view")
            return nodes.DescribeObject(this=name, materialized=True)
        for word in ("STREAM", "TABLE", "VIEW", "EXTENDED"):
            if self.word_is(word) and self._next:
                if self._next.token_type != TokenType.DOT:
                    self._advance()
                break
        return nodes.DescribeObject(this=self.object_name("a name to describe"))

    def drop(self) -> exp.Expr:
        materialized = self.accept("MATERIALIZED", "VIEW")
        kind = "MATERIALIZED VIEW" if materialized else self.one_of(KINDS, "DROP")
        exists = self._if("IF", "EXISTS")
        name = self.object_name(f"the name of the {kind.lower()}")
        return nodes.DropObject(this=name, kind=kind, exists=exists or None)

    def refresh(self) -> exp.Expr:
        if self.word_is("TABLE") or self.word_is("FUNCTION"):
            self.refuse(
                f"{self._prev.text!r} is not a statement of this dialect",
                self._prev,
                "CREATE MATERIALIZED VIEW makes one; each query looks at the files of tables anew",
            )
        whole = "REFRESH MATERIALIZED VIEW v"
        self.require("MATERIALIZED", "VIEW", after="REFRESH", whole=whole)
        name = self.object_name("the name of the materialized view")
        full = self.accept("FULL") or None
        every = self.parse_duration("EVERY") if self.accept("EVERY") else None
        return nodes.RefreshView(this=name, full=full, every=every)

    def stop(self) -> exp.Expr:
        self.require("QUERY", after="STOP", whole="STOP QUERY q1")
        token = self._curr
        if self._match(TokenType.NUMBER):
            return nodes.StopQuery(this=self.placed(exp.Literal.number(token.text), token))
        if self._match(TokenType.STRING):
            return nodes.StopQuery(this=self.placed(exp.Literal.string(token.text), token))
        return nodes.StopQuery(this=self.name("the name or number of a query"))


def _begins_set(chunk: Sequence[Token]) -> int:
    """The number of words in front of a statement set's first statement; 0 for other statements.

    The words are EXECUTE STATEMENT SET BEGIN; after EXPLAIN, the word EXECUTE may be missing."""
    texts = [token.text.upper() for token in chunk[:6]]
    at = 1 if texts[:1] == ["EXPLAIN"] else 0
    at += at and texts[at : at + 1] != [] and texts[at] in EXPLAIN_MODES
    if texts[at : at + 1] == ["EXECUTE"]:
        at += 1
    elif at == 0:
        return 0
    return at + 3 if texts[at : at + 3] == ["STATEMENT", "SET", "BEGIN"] else 0


_READERS: dict[str, Callable[[CqlParser], exp.Expr]] = {
    "CREATE": CqlParser.create,
    "INSERT": CqlParser.insert,
    "DROP": CqlParser.drop,
    "SET": CqlParser.set_,
    "RESET": CqlParser.reset_,
    "SHOW": CqlParser.show,
    "DESCRIBE": CqlParser.describe,
    "DESC": CqlParser.describe,
    "EXPLAIN": CqlParser.explain,
    "DECLARE": CqlParser.declare,
    "EXECUTE": CqlParser.execute,
    "STOP": CqlParser.stop,
    "REFRESH": CqlParser.refresh,
    "USE": CqlParser.use,
}
