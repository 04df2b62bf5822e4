"""What messages say of objects of users, whose methods may raise or return anything.

Nothing here calls a method of such an object outside of a ``try``: an exception whose ``__str__``
raises, a ``repr`` that gives a subclass of str, a class whose name is no text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Characters of a message that an exception or an object takes at most.
_LONGEST = 200
#: Where our errors are defined: each has a message and perhaps a hint.
_OURS = "cql.errors"
_NAME = type.__dict__["__name__"]


def type_name(value: object) -> str:
    """The name of its type, whatever its metaclass says."""
    return str(_NAME.__get__(type(value)))


def object_text(value: object, longest: int = 60) -> str:
    """``repr(value)``, of at most ``longest`` characters; ``<Type>`` where that raises."""
    text = _text(repr, value)
    text = f"<{type_name(value)}>" if text is None else text
    return text if len(text) <= longest else text[: longest - 3] + "..."


def error_text(error: BaseException) -> str:
    """An exception in one line: its type, and its own text if it has one. A hint of ours is kept
    whole."""
    ours = type(error).__module__ == _OURS
    text = " ".join((_text(_message if ours else str, error) or "").split())
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    hint = _text(_hint, error) if ours else None
    text = f"{text} ({hint})" if hint else text
    return f"{type_name(error)}: {text}" if text else type_name(error)


def _message(error: Any) -> str:
    return str(error.message)


def _hint(error: Any) -> str:
    return str(error.hint or "")


def _text(make: Callable[[object], str], value: object) -> str | None:
    """A plain str without halves of characters, None where ``make`` raises."""
    try:
        return str.encode(make(value), "utf-8", "backslashreplace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # whatever a user's class raises
        return None
