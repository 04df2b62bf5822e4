"""What an interrupt must not break off.

Python raises KeyboardInterrupt between any two steps of the main thread. In the middle of numba's
compiler that is for good: its registries are read by generators, which an exception ends, and from
then on no function of the process compiles. So the main thread compiles on another one and waits;
the wait is what an interrupt ends, at once, and the kernel is there for the next query.
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

T = TypeVar("T")

#: Held while something is done apart. The process ends after that: LLVM calls back into Python,
#: which ends threads where they stand.
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
    """``work()``, which an interrupt does not reach: the caller is interrupted, and nobody learns
    what came of it. What it raises is raised here."""
    if threading.current_thread() is not threading.main_thread():
        return work()  # only the main thread is interrupted
    made: list[T] = []
    raised: list[BaseException] = []
    # Not a Thread: an interrupt while that starts leaves its locks broken.
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
    done.acquire()
    if raised:
        raise raised.pop()
    return made.pop()


def load_module(name: str) -> Any:
    """The module of that name, whose kernels compile when it is imported: only when they are used,
    and apart. Others import it by its name behind this, for its types."""
    found = sys.modules.get(name)
    if found is None or getattr(found.__spec__, "_initializing", False):
        found = uninterruptible(lambda: importlib.import_module(name))
    return found
