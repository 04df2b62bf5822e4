"""Work that an interrupt must not break off.

Python raises KeyboardInterrupt between any two bytecodes of the main thread. Inside numba's
compiler, an exception ends the generators that read numba's registries; afterwards no function of
the process compiles. So the main thread hands each compilation to another thread and waits. An
interrupt ends only the wait, at once; the kernel completes and serves the next query.
"""

from __future__ import annotations

import _thread
import atexit
import importlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from cql.base.reentrancy import inherited
from cql.base.waiting import acquire

T = TypeVar("T")

#: Held while a thread does uninterruptible work. The exit of the process waits for the lock: Python
#: would end a thread at LLVM's next callback, in the middle of the compiler.
_at_work = threading.Lock()


@atexit.register
def _wait() -> None:
    _at_work.acquire()


def _in_a_child() -> None:
    """A forked process has none of its parent's threads, so none of them is at work."""
    global _at_work
    _at_work = threading.Lock()


os.register_at_fork(after_in_child=_in_a_child)


def uninterruptible(work: Callable[[], T]) -> T:
    """Returns ``work()``, which no interrupt reaches; passes its exceptions on.

    An interrupt ends the caller's wait: ``work`` completes, and its result is dropped."""
    if threading.current_thread() is not threading.main_thread():
        return work()  # Python interrupts only the main thread
    made: list[T] = []
    raised: list[BaseException] = []
    # Not threading.Thread: an interrupt during its start leaves its locks broken.
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            with _at_work:
                made.append(work())
        except BaseException as error:
            raised.append(error)
        finally:
            done.release()

    _thread.start_new_thread(inherited(run), ())
    acquire(done)
    if raised:
        raise raised.pop()
    return made.pop()


def load_module(name: str) -> Any:
    """Imports the module ``name``, whose kernels compile at import, without interruption.

    Callers load the module at its first use. Afterwards they may import the module by its name, so
    that type checkers know its types."""
    found = sys.modules.get(name)
    if found is None or getattr(found.__spec__, "_initializing", False):
        found = uninterruptible(lambda: importlib.import_module(name))
    return found
