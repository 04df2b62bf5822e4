"""A time limit for calls of users' functions (``SET function_timeout``).

A watch thread raises an exception in the thread whose call exceeds its limit. CPython raises an
asynchronous exception only between two bytecodes. A call inside C code (``time.sleep``, a large
``numpy`` operation) therefore ends first; the watch thread logs a warning meanwhile.

The exception must not reach the code after the call. The calling thread sets ``over`` first and
then waits while ``striking`` is set. The watch thread sets ``striking`` first and then reads
``over``. So either the watch thread sees that the call is over, or the calling thread sees the
exception and takes it back.
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
#: In seconds: the longest pause between two looks of the watch thread; the pause before it raises
#: again (the function may have caught the first exception); and the time without any call after
#: which the thread ends.
_LOOK, _AGAIN, _STAY = 0.05, 0.2, 0.2
#: Seconds beyond the limit after which the log reports a call, once.
_REPORT_AFTER = 1.0

_log = logging.getLogger("cql")
_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of one call, in ``microseconds``; ``text`` is the value of the setting."""

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
    """The exception that the watch thread raises in the function.

    A BaseException, because many functions catch Exception."""


class _Call:
    __slots__ = ("again", "name", "over", "reported", "striking", "struck", "thread", "until")

    def __init__(self, name: str, seconds: float) -> None:
        self.name = name
        self.thread = threading.get_ident()
        self.until = self.again = time.monotonic() + seconds
        self.over = self.struck = self.striking = self.reported = False


def within(limit: Limit, name: str, function: Callable[..., Any], *args: object) -> Any:
    """Returns ``function(*args)``; the error shows ``name``.

    Ends a call that exceeds the limit, and raises TimeLimitError."""
    call = _Call(name, limit.microseconds / 1e6)
    try:
        try:
            _watch.begin(call)
            made = function(*args)
        finally:
            call.over = True  # CPython raises nothing between the end of the call and this line
            _quiesce(call)
    except Strike:
        call.over = True
        try:
            _quiesce(call)
        except Strike:  # a second exception was pending; no third one can be
            _quiesce(call)
        if not call.struck:  # the exception belongs to an enclosing call
            raise
    if call.struck:
        raise TimeLimitError(name, limit) from None
    return made


def _quiesce(call: _Call) -> None:
    """Returns when the watch thread can no longer raise for ``call``, whose ``over`` is set."""
    while call.striking:
        time.sleep(0)
    if call.struck:
        _receive()
    _watch.calls.discard(call)


def _receive() -> None:
    """Raises the exception in this thread and catches it, with one that was not raised yet.

    CPython 3.11 and 3.12 have one flag for "some thread shall raise an exception"; it stays set
    until any thread raises one. Meanwhile a thread of 3.11 that a debugger or a profiler watches
    stays at the entry of a function. An interrupt (Ctrl-C) waits for it."""
    thread, interrupt = threading.get_ident(), None
    while True:
        try:
            _raise_in(thread, id(Strike))
            while True:
                time.sleep(0)
        except Strike:
            break
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


class _Watch:
    """One thread watches all calls of the process that have a limit; it ends when none is left."""

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
            _receive()  # the call may be in C code for long; its thread still raises its own
        finally:
            call.striking = False
        call.again = now + _AGAIN
        if now - call.until > _REPORT_AFTER and not call.reported:
            call.reported = True
            _log.warning(
                "%s does not end although it runs longer than %s: it is inside code that Python "
                "cannot interrupt, or catches every exception; the query fails when it returns",
                call.name,
                SETTING,
            )

    def _leave(self) -> bool:
        """Whether the thread may end: no call is left, or another watch thread has started."""
        me, self._thread = self._thread, None
        if not self.calls:
            return True
        with self._lock:
            if self._thread is not None:  # a new call has started another thread
                return True
            self._thread = me
        return False


_watch = _Watch()


def _in_a_child() -> None:
    """A forked process has none of its parent's threads."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_in_a_child)
