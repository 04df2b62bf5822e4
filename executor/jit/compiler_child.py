"""The child process that compiles a large kernel (started by ``jit.compiler_process``)."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from cql.executor.codegen.module import compile_file


def serve(path: str) -> None:
    """Compiles the module at ``path`` into the disk cache and ends the process. The process also
    ends when its standard input closes, which happens when the waiting parent has ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compile_file(Path(path))
    os._exit(0)  # the result is on disk


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)
