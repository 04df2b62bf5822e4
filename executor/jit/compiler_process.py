"""A child process compiles large kernels into the disk cache.

Ctrl-C or a stopped query can end the child at any moment. numba compiles one function per process
at a time, and loads nothing from its cache meanwhile; with a child, other queries need not wait.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cql.errors import RunError

#: Kernels with at least this many lines compile for seconds; starting the child takes one second.
LARGE = 1_200
#: Seconds between two checks whether the query still wants the kernel.
_TICK = 0.05
_PROGRAM = "import sys; from cql.executor.jit.compiler_child import serve; serve(sys.argv[1])"


class StoppedError(Exception):
    """The query was stopped while it waited for a kernel."""


def compile_separately(path: Path, stop: Callable[[], bool]) -> None:
    """Compiles the module at ``path`` into numba's cache beside it.

    A compiler error is left to the importer of the module, which finds no cache entry. Raises
    StoppedError as soon as ``stop`` returns True; StoppedError and KeyboardInterrupt end the child.
    Raises RunError if a signal from elsewhere ended the child."""
    # The child's standard input closes when this process ends, however it ends.
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C in the terminal reaches only the waiting process
        )
    except OSError:  # no child can be started: the caller compiles
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
