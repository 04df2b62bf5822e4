"""The console script ``cql``; Ctrl-C ends the process even during the import of its modules."""

from __future__ import annotations

import os
import signal
from typing import Any

INTERRUPTED = 130


def main() -> None:
    """Runs the commands ``cql`` and ``python -m cql``.

    During the import of the modules, an interrupt ends the process at once: there is nothing to
    clean up, and a module may turn a KeyboardInterrupt into another exception."""
    usual = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # shells ignore it behind &
    if usual:
        signal.signal(signal.SIGINT, _leave)
    from cql.repl import cli

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


def _leave(number: int, frame: Any) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
