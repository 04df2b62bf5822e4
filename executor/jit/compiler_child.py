"""What the process does that compiles a large kernel (``jit.compiler_process`` starts it)."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from cql.executor.codegen.module import compile_file


def serve(path: str) -> None:
    """Compiles the module at ``path`` into the cache on disk, and ends the process. It also ends
    when its input does, as it does when the process that waits for it has ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compile_file(Path(path))
    os._exit(0)  # what is cached is on disk


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)
