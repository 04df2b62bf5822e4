"""The shell's command that draws a SELECT into a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from cql.errors import CqlError, NotSupportedError, ParseError, Position

if TYPE_CHECKING:
    from cql.session.session import Session
    from cql.show.plots.picture import Drawn

FORMATS = (".png", ".svg")
USAGE = "\\plot words.png SELECT ch0 FROM voice; SELECT start, stop FROM words"
#: The command, a file (in quotes if it has blanks), and statements.
_PARTS = re.compile(
    r"\\plot[ \t]+(?P<file>'(?:[^']|'')*'|[^\s']\S*)(?:\s+(?P<select>.*))?", re.S | re.I
)


def plot(session: Session, text: str) -> str:
    """Runs the command ``text`` and says what it has written. Its statements are a SELECT to draw,
    and maybe one that gives the marks. Positions of errors are those in ``text``."""
    from cql.query.query import import_extra

    parts = _PARTS.fullmatch(text)
    if parts is None or not (parts["select"] or "").strip():
        raise CqlError("\\plot needs a file and a SELECT", hint=USAGE)
    place = Position(1, parts.start("file") + 1, len(parts["file"]))
    path = _file(parts["file"], place)
    import_extra("matplotlib", "plots")
    # The statements stand at their places in a copy of the text without the command.
    begin = parts.start("select")
    statements = re.sub(r"[^\n]", " ", text[:begin]) + text[begin:]
    try:
        drawn = _drawn(session, statements)
    except CqlError as error:
        if error.text in (None, statements):
            error.text = text
        raise
    try:
        drawn.figure.savefig(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CqlError(f"cannot write {path}: {reason}", position=place) from None
    return f"{path} written: {drawn.about}"


def _drawn(session: Session, statements: str) -> Drawn:
    from cql.dialect import nodes, parse, position_of
    from cql.query.query import Query
    from cql.show.plots.picture import draw

    for number, tree in enumerate(parse(statements)):
        if number > 1 or not isinstance(tree, nodes.MEMBERS) or isinstance(tree, nodes.InsertInto):
            raise NotSupportedError(
                "\\plot takes a SELECT, and maybe one more for the marks",
                position=position_of(tree),
                hint=USAGE,
            )
    made = [q for q in session._statements(statements) if isinstance(q, Query)]
    if not made:
        raise ParseError("\\plot needs a SELECT behind the file", hint=USAGE)
    return draw(made[0], marks=made[1] if len(made) > 1 else None)


def _file(word: str, place: Position) -> Path:
    name = word[1:-1].replace("''", "'") if word.startswith("'") else word
    path = Path(name).expanduser()
    if path.suffix.lower() not in FORMATS:
        raise NotSupportedError(
            f"\\plot writes no file {name}", position=place, hint=f"formats: {', '.join(FORMATS)}"
        )
    if not path.parent.is_dir():
        raise CqlError(f"there is no folder {path.parent}", position=place)
    return path
