"""The base of the abstract classes of nodes."""

from __future__ import annotations

from abc import ABCMeta


class AbstractMeta(ABCMeta):
    """``ABCMeta`` without virtual subclasses (``register``): ``isinstance`` and class patterns look
    at the bases only, as for any other class. This takes half of the time, and planning asks some
    hundred times."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


class Abstract(metaclass=AbstractMeta):
    """A base class that may have abstract members."""

    __slots__ = ()
