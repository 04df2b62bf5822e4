"""Large kernels are compiled by a process of their own, into the cache on disk.

It can be ended at any moment, by Ctrl-C or when the query is stopped, and numba, which compiles one
function of a process at a time and loads none from its cache meanwhile, stays free for other
queries.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cql.errors import RunError

#: Lines of a kernel that is compiled in some seconds; the process needs one to begin.
LARGE = 1_200
#: Seconds between two looks at whether the kernel is still wanted.
_TICK = 0.05
_PROGRAM = "import sys; from cql.executor.jit.compiler_child import serve; serve(sys.argv[1])"


class StoppedError(Exception):
    """The query that waited for a kernel was asked to end."""


def compile_apart(path: Path, stop: Callable[[], bool]) -> None:
    """Compiles the module at ``path`` into numba's cache beside it.

    An error of the compiler is left for who imports the module: it finds no entry. StoppedError as
    soon as ``stop`` says so; it and KeyboardInterrupt end the process. RunError if something else
    ended it."""
    # Its input ends when this process does, however that happens.
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C of a terminal is for the one who waits
        )
    except OSError:  # no process can be started: the caller compiles
        return
    with child:
        try:
            while True:
                if stop():
                    raise StoppedError
                try:
                    child.wait(_TICK)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if child.poll() is None:
                child.kill()
    if child.returncode < 0:
        raise RunError(
            f"the compiler of this query was ended by signal {-child.returncode}",
            hint="if memory ran out: write it as several queries, or with fewer columns",
        )
