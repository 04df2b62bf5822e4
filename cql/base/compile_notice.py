"""A notice, once per process, that kernels are compiling and the query waits for them.

The disk cache (``cql.executor.jit.disk_cache``) reports each miss and each end of a compilation.
The session that worked last receives the notice.
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
#: Seconds of compilation before the notice.
PATIENCE = 1.0


class CompileWatch:
    """Sums the compile time of the kernels that no cache held; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.notify: Callable[[str], None] = lambda message: None
        self._clock = clock
        self._spent = 0.0
        self._since: float | None = None
        self._notified = False

    @property
    def quiet(self) -> bool:
        """Whether the environment switches the notice off."""
        return os.environ.get("CQL_COMPILE_NOTICE") == "off"

    def report_to(self, notify: Callable[[str], None]) -> None:
        """``notify``, a bound method, receives the notice from now on, while its object lives."""
        method = weakref.WeakMethod(notify)

        def notify_if_alive(message: str) -> None:
            alive = method()
            if alive is not None:
                alive(message)

        self.notify = notify_if_alive
        self._since = None  # a compilation that has not ended by now has failed

    def begins(self) -> None:
        """The compilation of a kernel begins; its callees begin and end inside."""
        now = self._clock()
        if self._since is not None:
            self._spent += now - self._since
        self._since = now
        if self._spent >= PATIENCE and not (self._notified or self.quiet):
            self._notified = True
            with contextlib.suppress(Exception):  # a failed notice must not stop the compilation
                self.notify(NOTICE)

    def ends(self) -> None:
        """The compilation of a kernel ends."""
        if self._since is not None:
            self._spent += self._clock() - self._since
            self._since = None


WATCH = CompileWatch()
