"""Completion of keywords, tables, columns, functions, settings and topics, by the text before the
cursor."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from cql.base.settings import SETTINGS
from cql.repl import words
from cql.repl.text import Piece, Token, significant, tokens
from cql.show import help

COMMANDS = {
    "\\help": "this help, or a topic",
    "\\d": "list, or describe a name",
    "\\set": "settings",
    "\\timing": "time of each statement",
    "\\x": "one column a line, or tables",
    "\\i": "run a file",
    "\\load": "functions of a Python file",
    "\\plot": "draw a SELECT into a PNG or SVG file",
    "\\q": "leave",
}
_BEFORE_TABLE = words.word_set("FROM JOIN INTO TABLE STREAM VIEW DESCRIBE DESC UNION")
_SHOWN = (
    *("STREAMS", "TABLES", "VIEWS", "QUERIES", "FUNCTIONS", "SETTINGS", "CONSTANTS"),
    *("MATERIALIZED VIEWS", "LATE", "BAD ROWS", "STALENESS"),
)
_MODES = ("LOGICAL", "PHYSICAL", "ANALYZE", "MERMAID")
#: A command and its file, behind which statements stand.
_PLOTTED = re.compile(r"\s*\\plot\s+(?:'[^']*'|[^\s']\S*)\s+", re.IGNORECASE)
_STARTS = words.word_set(
    "SELECT INSERT CREATE DROP SET RESET SHOW DESCRIBE EXPLAIN STOP REFRESH WITH DECLARE"
)


class Names(Protocol):
    """The names that completion requests of the session. All methods return at once; none starts a
    JVM."""

    def functions(self) -> Sequence[str]:
        """The names of the user's functions."""
        ...

    def tables(self) -> Sequence[str]: ...
    def columns(self, table: str) -> Sequence[tuple[str, str]]:
        """(name, type) of each column; empty for an unknown table."""
        ...


class CqlCompleter(Completer):
    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.lstrip().startswith("\\"):
            statement = _PLOTTED.match(before)
            if statement is None:
                yield from self._command(before.lstrip())
                return
            # Behind the file, the text is one of statements.
            before = before[statement.end() :]
            document = Document(document.text[statement.end() :], len(before))
        word, rest = _last_word(before)
        if word is None:
            return
        if not complete_event.completion_requested and before.rstrip().endswith(";"):
            return  # the statement is complete, and Enter runs it
        offered = self._offers(rest, document.text, word)
        seen = set()
        for text, meta in offered:
            if text.lower().startswith(word.lower()) and text != word and text not in seen:
                seen.add(text)
                yield Completion(_cased(text, word), -len(word), display_meta=meta)

    def _offers(self, before: str, whole: str, word: str) -> Iterator[tuple[str, str]]:
        """Pairs (word, its kind), the most likely first."""
        typed = significant(before.rpartition(";")[2])
        last = typed[-1].text.upper() if typed else ""
        first = typed[0].text.upper() if typed else ""
        if last == "." and len(typed) > 1:
            yield from self._columns_of(typed[-2].text, whole)
            return
        match first:
            case "":
                yield from ((w, "") for w in sorted(_STARTS))
                return
            case "SET" | "RESET":
                yield from _settings(typed)
                return
            case "SHOW":
                yield from ((w, "") for w in (*_SHOWN, "LIKE"))
                return
            case "EXPLAIN" if last == "EXPLAIN":
                yield from ((w, "") for w in _MODES)
        if last in _BEFORE_TABLE or _in_from_list(typed):
            yield from ((t, "table") for t in self._names.tables())
            if last in _BEFORE_TABLE:
                return
        if first in ("SELECT", "INSERT", "WITH", "EXPLAIN", "CREATE"):
            for table in dict.fromkeys(_tables_in(whole)):
                yield from self._names.columns(table)
        if word:
            yield from ((f, "your function") for f in self._names.functions())
            yield from ((f, "function") for f in sorted(words.functions()))
            yield from ((k, "") for k in sorted(words.keywords()))

    def _columns_of(self, name: str, whole: str) -> Iterator[tuple[str, str]]:
        table = _aliases(whole).get(name.lower(), name)
        yield from self._names.columns(table)
        # ``db.`` of a two-part name
        for known in self._names.tables():
            if known.lower().startswith(name.lower() + "."):
                yield known[len(name) + 1 :], "table"

    def _command(self, text: str) -> Iterator[Completion]:
        command, space, argument = text.partition(" ")
        if not space:
            for name, meta in COMMANDS.items():
                if name.startswith(command):
                    yield Completion(name, -len(command), display_meta=meta)
            return
        offers: Iterable[str]
        match command:
            case "\\help" | "\\h" | "\\?":
                offers = help.topics()
            case "\\d":
                offers = self._names.tables()
            case "\\set":
                offers = SETTINGS
            case "\\i" | "\\load" | "\\plot":
                offers = _paths(argument)
            case _:
                offers = ()
        for offer in offers:
            if offer.lower().startswith(argument.lower()):
                yield Completion(offer, -len(argument))


def _settings(typed: list[Token]) -> Iterator[tuple[str, str]]:
    if len(typed) == 1:
        for s in SETTINGS.values():  # the settings for experiments come last
            yield s.name, f"{s.category}: {s.takes()}" if s.experiment else s.takes()
    elif typed[0].text.upper() == "SET" and typed[-1].text == "=":
        setting = SETTINGS.get(typed[1].text.lower())
        if setting is not None:
            takes = setting.choices or tuple(setting.takes().split(", "))
            yield from ((c, "default" if c == setting.default else "") for c in takes)


def _last_word(before: str) -> tuple[str | None, str]:
    """The word at the cursor (maybe empty) and the text before it; None for the word inside
    strings, comments, quoted names, hints, parameters and numbers."""
    last = None
    for token in tokens(before):
        last = token
    if last is None:
        return "", ""
    match last.kind:
        case Piece.WORD:
            return last.text, before[: last.start]
        case Piece.SPACE | Piece.SIGN:
            return "", before
        case _:
            return None, before


def _cased(text: str, word: str) -> str:
    """``text`` in lower case if it is a keyword and the user types lower case."""
    return text.lower() if text.isupper() and word.islower() else text


def _in_from_list(typed: list[Token]) -> bool:
    """Whether the cursor follows a comma of a FROM clause."""
    if not typed or typed[-1].text != ",":
        return False
    depth = 0
    for token in reversed(typed):
        depth += (token.text in ")]") - (token.text in "([")
        if depth < 0:
            return False
        word = token.text.upper()
        if depth == 0 and word in ("FROM", "SELECT", "WHERE", "GROUP", "ORDER", "HAVING"):
            return word == "FROM"
    return False


def _names_in(whole: str) -> Iterator[tuple[str, str | None]]:
    """Pairs (table, alias) of the FROM items of a text, which need not parse."""
    typed = significant(whole)
    at = 0
    while at < len(typed):
        if typed[at].text.upper() not in ("FROM", "JOIN", "INTO", "UNION", ","):
            at += 1
            continue
        at += 1
        parts: list[str] = []
        while at < len(typed) and typed[at].kind in (Piece.WORD, Piece.NAME):
            parts.append(typed[at].text.strip('"`'))
            at += 1
            if at < len(typed) and typed[at].text == ".":
                at += 1
            else:
                break
        if not parts:
            continue
        if at < len(typed) and typed[at].text == "[":
            at = _behind_bracket(typed, at)
        if at < len(typed) and typed[at].text.upper() == "AS":
            at += 1
        alias = typed[at].text if at < len(typed) and typed[at].kind is Piece.WORD else None
        yield ".".join(parts), alias


def _behind_bracket(typed: list[Token], at: int) -> int:
    while at < len(typed) and typed[at].text != "]":
        at += 1
    return at + 1


def _tables_in(whole: str) -> Iterator[str]:
    return (table for table, _ in _names_in(whole))


def _aliases(whole: str) -> dict[str, str]:
    return {alias.lower(): table for table, alias in _names_in(whole) if alias}


def _paths(start: str) -> Iterator[str]:
    folder, _, _ = start.rpartition("/")
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda e: e.name)
    except OSError:
        return  # the folder does not exist or is not readable
    for entry in entries:
        if entry.name.startswith("."):
            continue
        yield (f"{folder}/" if folder else "") + entry.name + ("/" if entry.is_dir() else "")
