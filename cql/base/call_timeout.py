"""A time limit for calls of users' functions (``SET function_timeout``).

A watch thread raises an exception in the thread whose call runs for longer. Python looks for one
between two of its own steps: a call that is inside C code (``time.sleep``, a large ``numpy``
operation) comes to its end first, and is told of in the log meanwhile.

Nothing of this may reach what runs after the call. The thread says ``over`` before it goes on and
then waits while the watch is ``striking``; the watch says ``striking`` before it looks at ``over``.
So either the watch sees that the call is over, or the thread sees the exception come and takes it
back.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cql.errors import RunError

SETTING = "function_timeout"
#: Seconds between two looks of the watch at the most, after which it strikes again (a function may
#: have caught what was raised in it), and for which it stays when there is nothing to watch.
_LOOK, _AGAIN, _STAY = 0.05, 0.2, 0.2
#: A call that goes on for so long after its limit is told of, once.
_TOLD = 1.0

_log = logging.getLogger("cql")
#: With None instead of an address it takes back an exception that has not been raised yet.
_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


@dataclass(frozen=True, slots=True)
class Limit:
    """So many ``microseconds`` for one call; ``text`` is what the setting says."""

    microseconds: int
    text: str


class TimeLimitError(RunError):
    """A call of a function took longer than its limit."""

    def __init__(self, function: str, limit: Limit) -> None:
        super().__init__(
            f"{function} ran longer than {SETTING} = '{limit.text}'",
            hint=f"SET {SETTING} = '<longer>', or 'off'",
        )


class Strike(BaseException):
    """What is raised in the function: no Exception, which it may well catch."""


class _Call:
    __slots__ = ("again", "name", "over", "striking", "struck", "thread", "told", "until")

    def __init__(self, name: str, seconds: float) -> None:
        self.name = name
        self.thread = threading.get_ident()
        self.until = self.again = time.monotonic() + seconds
        self.over = self.struck = self.striking = self.told = False


def within(limit: Limit, name: str, function: Callable[..., Any], *args: object) -> Any:
    """``function(*args)``, whose ``name`` is for the error.

    Raises TimeLimitError if it takes longer; then the call has been ended."""
    call = _Call(name, limit.microseconds / 1e6)
    try:
        try:
            _watch.begin(call)
            made = function(*args)
        finally:
            call.over = True  # nothing is raised between the end of the call and this
            _settle(call)
    except Strike:
        call.over = True
        try:
            _settle(call)
        except Strike:  # one more was on its way: now none is
            _settle(call)
        if not call.struck:  # it is meant for a call around this one
            raise
    if call.struck:
        raise TimeLimitError(name, limit) from None
    return made


def _settle(call: _Call) -> None:
    """Returns when nothing will be raised for a call that is over."""
    while call.striking:
        time.sleep(0)
    if call.struck:
        _raise_in(call.thread, None)
    _watch.calls.discard(call)


class _Watch:
    """One thread for all calls of the process that have a limit, while there are any."""

    def __init__(self) -> None:
        self.calls: set[_Call] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, call: _Call) -> None:
        self.calls.add(call)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="cql-watch", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        idle = time.monotonic()
        while True:
            now = time.monotonic()
            wait = _LOOK
            for call in list(self.calls):
                idle = now
                if call.again <= now:
                    self._strike(call, now)
                wait = min(wait, max(call.again - now, 0.001))
            if now - idle > _STAY and self._leave():
                return
            time.sleep(wait)

    def _strike(self, call: _Call, now: float) -> None:
        call.striking = True
        try:
            if call.over:
                self.calls.discard(call)
                return
            call.struck = True
            _raise_in(call.thread, id(Strike))
        finally:
            call.striking = False
        call.again = now + _AGAIN
        if now - call.until > _TOLD and not call.told:
            call.told = True
            _log.warning(
                "%s does not end although it runs longer than %s: it is inside code that Python "
                "cannot interrupt, or catches every exception; the query fails when it returns",
                call.name,
                SETTING,
            )

    def _leave(self) -> bool:
        """Whether the thread may end: no call has come meanwhile."""
        me, self._thread = self._thread, None
        if not self.calls:
            return True
        with self._lock:
            if self._thread is not None:  # who came has started another one
                return True
            self._thread = me
        return False


_watch = _Watch()


def _in_a_child() -> None:
    """A forked process has none of its parent's threads."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_in_a_child)
