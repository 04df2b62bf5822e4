"""The base of the abstract classes of nodes."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801
        """A property that is computed at its first use: a node is immutable, so that its schema and
        its watermarks never change. (``functools.cached_property`` takes a lock in Python 3.11.)"""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, node: Any, owner: type) -> Any:
            if node is None:
                return self
            found = node.__dict__[self._name] = self._compute(node)
            return found


class AbstractMeta(ABCMeta):
    """``ABCMeta`` without virtual subclasses (``register``): ``isinstance`` and class patterns look
    at the bases only, as for any other class. This takes half of the time, and planning asks some
    hundred times."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


class Abstract(metaclass=AbstractMeta):
    """A base class that may have abstract members. An instance's dictionary has the values of its
    cached properties, and nothing else: copies and pickles are made without it."""

    __slots__ = ("__dict__",)
