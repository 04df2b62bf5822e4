"""Texts of users' objects for messages.

The methods of a user's object may raise or return anything: an exception whose ``__str__`` raises,
a ``repr`` that returns a subclass of str, a class whose name is no text. This module therefore
calls these methods only inside a ``try``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Maximal length, in characters, of an exception's own text in a message.
_LONGEST = 200
#: The module of the engine's errors, each of which has a message and perhaps a hint.
_OURS = "cql.errors"
_NAME = type.__dict__["__name__"]


def type_name(value: object) -> str:
    """The name of the object's type; no metaclass can override it."""
    return str(_NAME.__get__(type(value)))


def object_text(value: object, longest: int = 60) -> str:
    """``repr(value)``, cut to ``longest`` characters; ``<Type>`` where ``repr`` raises."""
    text = _text(repr, value)
    text = f"<{type_name(value)}>" if text is None else text
    return text if len(text) <= longest else text[: longest - 3] + "..."


def error_text(error: BaseException) -> str:
    """An exception in one line: its type and, if there is one, its text, cut to 200 characters.
    The hint of an engine error stays whole."""
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
    """``make(value)`` as a plain str without lone surrogates; None where ``make`` raises."""
    try:
        return str.encode(make(value), "utf-8", "backslashreplace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # a user's class may raise anything
        return None
