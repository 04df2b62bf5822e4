"""Says that kernels are being compiled, where that takes time: once in a process.

Whether a kernel has to be compiled is known where the cache on disk is asked for it
(``cql.executor.jit.disk_cache``); who is told is the session that worked last.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable

NOTICE = (
    "compiling kernels, once on this machine … (cql warm compiles those of the library beforehand)"
)
#: Seconds of compiling that nobody is told of.
PATIENCE = 1.0


class CompileWatch:
    """Adds up how long kernels compiled that were in no cache; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.tell: Callable[[str], None] = lambda message: None
        self.quiet = os.environ.get("CQL_COMPILE_NOTICE") == "off"
        self._clock = clock
        self._spent = 0.0
        self._since: float | None = None
        self._told = False

    def asked_by(self, tell: Callable[[str], None]) -> None:
        """``tell``, a method, hears of what compiles from now on, as long as its object lives."""
        method = weakref.WeakMethod(tell)

        def tell_if_alive(message: str) -> None:
            alive = method()
            if alive is not None:
                alive(message)

        self.tell = tell_if_alive
        self._since = None  # what has not ended has failed

    def begins(self) -> None:
        """A kernel is in no cache; what it calls begins and ends inside of it."""
        now = self._clock()
        if self._since is not None:
            self._spent += now - self._since
        self._since = now
        if self._spent >= PATIENCE and not (self._told or self.quiet):
            self._told = True
            with contextlib.suppress(Exception):  # no notice is worth a kernel
                self.tell(NOTICE)

    def ends(self) -> None:
        """A kernel is compiled."""
        if self._since is not None:
            self._spent += self._clock() - self._since
            self._since = None


WATCH = CompileWatch()
