"""The errors of the engine: each states the fault, its place in the query, and the remedy.

``CqlError`` is the root. ``line`` and ``column`` are 1-based and point into the query text when the
error belongs to a place there; ``hint`` is the remedy.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType, TracebackType
from typing import NoReturn

from cql.base.foreign import error_text

_LONGEST = 2000
#: Maximal length, in characters, of a name in a hint, so that a hint can show three whole names.
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Position:
    """A 1-based place in a query text; ``length`` is how many characters the caret underlines."""

    line: int
    column: int
    length: int = 1


def _cut(text: str) -> str:
    """Shortens a name for a message: a name can have a million characters."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 200]} … {text[-200:]}"


class CqlError(Exception):
    """Root of all errors of this engine.

    ``message`` is one sentence. With ``position`` and ``text`` (the query), ``str(error)`` shows
    the offending line with a caret below it, and the hint on a line of its own.
    """

    def __init__(
        self,
        message: str,
        *,
        position: Position | None = None,
        hint: str | None = None,
        text: str | None = None,
    ) -> None:
        self.message = _cut(message)
        self.position = position
        self.hint = None if hint is None else _cut(hint)
        self.text = text
        super().__init__(self.message)

    @property
    def line(self) -> int | None:
        return self.position.line if self.position else None

    @property
    def column(self) -> int | None:
        return self.position.column if self.position else None

    def with_text(self, text: str) -> CqlError:
        """This error, with ``text`` as its query text unless the error already has one."""
        if self.text is None:
            self.text = text
        return self

    def __str__(self) -> str:
        parts = [self.message]
        if self.position is not None:
            parts[0] += f" (line {self.position.line}, column {self.position.column})"
            lines = (self.text or "").split("\n")
            if self.text is not None and self.position.line <= len(lines):
                source = lines[self.position.line - 1]
                start = max(0, self.position.column - 61)
                shown = source[start : start + 120].replace("\t", " ")
                caret = self.position.column - 1 - start
                width = max(1, min(self.position.length, len(shown) - caret))
                parts += [f"  {shown}", f"  {' ' * caret}{'^' * width}"]
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """The traceback that IPython and notebooks show (``short_traceback``).

        With ``CQL_TRACEBACK=full`` in the environment the attribute does not exist, so that they
        show every frame."""
        if os.environ.get("CQL_TRACEBACK") == "full":
            raise AttributeError("CQL_TRACEBACK=full")
        return partial(short_traceback, self)


def short_traceback(error: BaseException) -> list[str]:
    """The lines of a traceback that shows only frames of the user's code, and the message.

    The frames are the user's calls of the engine and the user's functions and generators that the
    engine called. Frames of this package, of libraries below it and of IPython are left out;
    ``__traceback__`` keeps them."""
    import traceback

    lines: list[str] = []
    cause = error.__cause__
    if cause is not None and list(_frames_of_user(cause.__traceback__)):
        lines += [*short_traceback(cause), "", "which led to", ""]
    frames = list(_frames_of_user(error.__traceback__))
    if frames:
        lines.append("Traceback (of your code):")
        for entry in traceback.StackSummary.extract(iter(frames)).format():
            lines += entry.rstrip("\n").split("\n")
    message = (
        f"{type(error).__name__}: {error}" if isinstance(error, CqlError) else error_text(error)
    )
    return [*lines, *message.split("\n")]


def _frames_of_user(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Frames of the user's code. Before the first frame of this package, these are all frames
    except IPython's; after it, the frames that are in no library."""
    import sysconfig
    import traceback

    libraries = tuple(sysconfig.get_path(p) + os.sep for p in ("stdlib", "purelib", "platlib"))
    inside = False
    for frame, line in traceback.walk_tb(trace):
        name, file = str(frame.f_globals.get("__name__")), frame.f_code.co_filename
        if name.partition(".")[0] == "cql":
            inside = True
        elif inside:
            if os.path.isabs(file) and not file.startswith(libraries):
                yield frame, line
        elif name.partition(".")[0] not in ("IPython", "ipykernel"):
            yield frame, line


class ParseError(CqlError):
    """The text is not a statement of the dialect."""


class BindError(CqlError):
    """A name or a type does not fit the catalog."""


class PlanError(CqlError):
    """The statement is understood but cannot be planned."""


class NotSupportedError(PlanError):
    """The clause parses, and this version cannot run it."""


class CatalogError(CqlError):
    """A table, file or session that the query needs is missing, damaged or has changed."""


class RunError(CqlError):
    """A running query failed; nothing committed is lost."""


class SettingError(CqlError):
    """An unknown setting, or a value that it does not take."""


def did_you_mean(
    word: str, candidates: Iterable[str], *, what: str = "one of", few: int = 12
) -> str | None:
    """A hint that names the candidates closest to ``word``.

    Without a close candidate, the hint lists all candidates if there are at most ``few``; otherwise
    the result is None. The hint never names ``word`` itself, in upper or lower case: that is the
    refused word.
    """
    folded = word.lower()
    known = sorted(name for name in set(candidates) if name.lower() != folded)
    near = {k.lower() for k in known if len(k) <= _LONGEST_NAME and _alike(folded, k.lower())}
    close = difflib.get_close_matches(folded, sorted(near), n=3, cutoff=0.6)
    named = [k for c in close for k in known if k.lower() == c]
    if named:
        return "did you mean " + " or ".join(dict.fromkeys(named)) + "?"
    if known and len(known) <= few:
        return f"{what}: " + ", ".join(known)
    return None


def _alike(word: str, name: str) -> bool:
    """Whether one word starts with the other (at least 3 letters), or their edit distance is at
    most a third of the longer word's length, rounded up."""
    short, long = sorted((word, name), key=len)
    most = (len(long) + 2) // 3
    if len(short) >= 3 and long.startswith(short):
        return True
    return len(long) - len(short) <= most and _edits(short, long) <= most


def _edits(a: str, b: str) -> int:
    """The edit distance of two words: letters added, left out, changed, or swapped with the next
    (optimal string alignment)."""
    rows = [list(range(len(b) + 1))]
    for i, letter in enumerate(a, 1):
        above, row = rows[-1], [i]
        for j, other in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (letter != other)))
            if i > 1 and j > 1 and letter == b[j - 2] and other == a[i - 2]:
                row[-1] = min(row[-1], rows[-2][j - 2] + 1)
        rows.append(row)
    return rows[-1][-1]


def unreachable(value: NoReturn) -> NoReturn:
    """Marks the end of a ``match`` over a closed union (mypy checks that it is one)."""
    raise AssertionError(f"unhandled {value!r}")
