"""The console script ``cql``: Ctrl-C also ends it while its modules are imported."""

from __future__ import annotations

import os
import signal
from typing import Any

INTERRUPTED = 130


def main() -> None:
    """What ``cql`` and ``python -m cql`` run. Nothing is to be cleaned up while modules are
    imported, and an exception within one of them may come out as another: an interrupt ends the
    process at once."""
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
