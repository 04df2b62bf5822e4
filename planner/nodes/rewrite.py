"""Rewriting trees of plans and expressions: a pass rebuilds changed nodes and shares the rest."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(node: T, /, **parts: Any) -> T:
        """``dataclasses.replace``, which returns ``node`` itself if no part changes."""
        for name, part in parts.items():
            if not _same(getattr(node, name), part):
                break
        else:
            return node
        kind = type(node)
        return kind(*[parts[n] if n in parts else getattr(node, n) for n in arguments(kind)])


def _same(held: object, part: object) -> bool:
    if held is part:
        return True
    if not (type(held) is tuple and type(part) is tuple and len(held) == len(part)):
        return False
    return all(map(_same, held, part))


@cache
def arguments(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass that its constructor takes."""
    return tuple(f.name for f in fields(kind) if f.init)
