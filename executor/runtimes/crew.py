"""The threads of a runtime, except for the thread that drives it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from cql.base.reentrancy import inherited


class Crew:
    """Threads that each run ``work(w)`` once, for w = 1, 2, … up to ``workers`` - 1.

    An interrupt (Ctrl-C) can hit the starting thread between any two steps. The class therefore
    does not rely on what the starting thread knows of the threads: a thread that begins after
    ``join`` leaves at once. A forked process has none of these threads."""

    def __init__(self, work: Callable[[int], None], workers: int) -> None:
        self._process = os.getpid()
        self._work = work
        self._changed = threading.Condition()
        self._inside = 0
        self._over = False
        run = inherited(self._run)
        self._threads = [
            threading.Thread(target=run, args=(w,), name=f"cql-worker-{w}", daemon=True)
            for w in range(1, workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _run(self, w: int) -> None:
        with self._changed:
            if self._over:
                return
            self._inside += 1
        try:
            self._work(w)
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def join(self) -> None:
        """Waits until no thread runs ``work`` or will run it. The caller must have made ``work``
        return before."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._over = True
            while self._inside > 0:
                self._changed.wait()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
