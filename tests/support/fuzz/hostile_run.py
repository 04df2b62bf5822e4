"""Runs the hostile texts in a process of its own under an audit hook; prints a report as JSON.

    python hostile_run.py FOLDER

The hook records each start of a process or connection, and each audit event (exec, compile, open,
import, …) whose arguments contain a hostile text. The engine's imports and kernels also cause
events, but their arguments must not contain a hostile text.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import cql
from tests.support.fuzz.hostile_texts import (
    BOMBS,
    COMPILED,
    MARK,
    PYTHON,
    REFUSED,
    RUN,
    SQL,
    filled,
)

#: Prefixes of the events of processes and connections, which no text may cause.
NEVER = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
         "os.forkpty", "pty.spawn", "socket.connect", "socket.getaddrinfo")  # fmt: skip
#: Seconds until a text counts as hanging.
HANGS = 60

found: dict[str, list[Any]] = {
    "control": [],
    "events": [],
    "processes": [],
    "outcomes": [],
    "kernels": [],
}
watching = False
at_work = False  # the hook is running, and ignores its own events
shown: tuple[str, ...] = ()


def hook(event: str, args: tuple[Any, ...]) -> None:
    global at_work
    if not watching or at_work:
        return
    at_work = True
    try:
        if event.startswith(NEVER):
            found["processes"].append([event, repr(args)[:300]])
        if event.startswith(("object.", "sys._getframe", "builtins.id", "marshal.")):
            return
        for text in said(args):
            if any(s in text for s in shown):
                found["events"].append([event, text[:300]])
    finally:
        at_work = False


def said(value: Any) -> Iterator[str]:
    """Every text in the arguments of an event, including the texts in code objects."""
    match value:
        case str():
            yield value
        case bytes():
            yield value.decode("utf-8", "replace")
        case types.CodeType():
            yield value.co_filename
            for inner in (*value.co_consts, *value.co_names, *value.co_varnames):
                yield from said(inner)
        case tuple() | list():
            for inner in value:
                yield from said(inner)
        case os.PathLike():
            yield os.fsdecode(value)


class HangError(BaseException):
    """A text takes longer than HANGS. A BaseException, so that no handler of the engine catches
    it."""


def alarm(*_: object) -> None:
    raise HangError


def attempt(session: cql.Session, text: str, **parameters: Any) -> str:
    """Runs a text and records its outcome: ``ok``, the name and place of a CqlError, or a
    failure. Returns the outcome."""
    signal.alarm(HANGS)
    try:
        item = session.sql(text, **parameters)
        said = str(item.to_arrow().to_pydict())
        outcome = "ok"
        if isinstance(item, cql.Query) and not item.is_insert:
            found["kernels"].append(str(item.explain("kernel")))
    except cql.CqlError as error:
        said = f"{error} {error.hint}"
        outcome = f"refused {type(error).__name__} {error.line}:{error.column}"
        if len(said) > 4000:
            outcome = f"an error of {len(said)} characters"
    except HangError:
        said, outcome = "", "hangs"
    except BaseException as error:  # recorded; the run goes on with the next text
        said, outcome = str(error), f"raises {error!r}"[:300]
    finally:
        signal.alarm(0)
    found["outcomes"].append([text[:200], outcome, said[:2000]])
    return outcome


def session_with_table(column: str) -> cql.Session:
    session = cql.connect(False)
    table = pa.table(
        {
            "ts": pa.array([0, 1_000_000], pa.timestamp("us", "UTC")),
            "n": [1, 2],
            "s": ["a", "b"],
            column: ["x", "y"],
        }
    )
    session.create_stream("t", table, ordered_by="ts")
    return session


def quoted(name: str) -> str:
    return name.replace('"', '""')


def main(folder: Path) -> None:
    global watching, shown
    words = {"dir": str(folder), "touch": f"touch {folder}/pwned {MARK}", "mark": MARK}
    python = [filled(p, **words) + MARK for p in PYTHON]
    sql = [filled(s, **words) + MARK for s in SQL]
    # The first queries load modules of the engine before the hook watches.
    for text in ("SELECT n + 1 AS m FROM t", "SELECT upper(s) AS u FROM t WHERE s RLIKE 'x'"):
        session_with_table("c").sql(text).to_arrow()
    signal.signal(signal.SIGALRM, alarm)
    # The hook searches for these texts. The folder alone is not among them: it also holds kernels.
    shown = (MARK, f"{folder}/secret", f"{folder}/pwned")
    sys.addaudithook(hook)
    watching = True
    exec(compile(f"text = '{MARK}'", "control", "exec"), {})  # the hook must record this
    watching, found["control"], found["events"] = False, found["events"], []
    watching = True
    for text in REFUSED:
        attempt(session_with_table("c"), filled(text, **words))
    for name in (*python, *sql):
        session = session_with_table("c")
        for text in RUN:
            literal = name.replace("'", "''")
            attempt(session, filled(text, name=quoted(name), text=literal, mark=MARK))
    for k, text in enumerate(COMPILED):
        for name in (python[k], sql[k + 3]):
            session = session_with_table(name)
            literal = name.replace("'", "''")
            attempt(session, filled(text, column=quoted(name), literal=literal), p=name)
    session = session_with_table("c")
    attempt(session, f"CREATE TABLE {'a' * 60} (n BIGINT)")
    for text in BOMBS:
        attempt(session, text)
    watching = False
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
