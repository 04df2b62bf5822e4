"""The threads of a runtime, but for the one that drives it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from cql.base.reentrancy import inherited


class Crew:
    """Threads that run ``work(w)`` for w = 1, 2, … until each returns; for one time only.

    An interrupt (Ctrl-C) may come between any two steps of the thread that starts them, so nothing
    here depends on what it knows of them: who comes after the end leaves at once. A forked process
    has none of these threads."""

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
        """Returns when nobody is at work, nor will be. They have been told to leave."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._over = True
            while self._inside > 0:
                self._changed.wait()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
