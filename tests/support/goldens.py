"""Golden files of plans. ``pytest tests/plans tests/house/test_docs.py --rewrite`` rewrites
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cql.query.query import Query
from cql.session.session import Session
from tests.support.paths import TESTS

FOLDER = TESTS / "plans"
#: The cores that the planner sees, so that plans do not depend on the machine.
CORES = frozenset((0, 1))


def record(patch: pytest.MonkeyPatch, plans: list[str]) -> None:
    """From now on, appends the text and the explained plan of each query of any session to
    ``plans``. The planner sees a machine with two cores."""
    patch.setattr("os.sched_getaffinity", lambda _: CORES)
    execute = Session._execute

    def execute_and_record(session: Session, bound: Any, origin: Any) -> Any:
        made = execute(session, bound, origin)
        if isinstance(made, Query):
            plans.append(f"{origin.text}\n\n{made.explain()}\n")
        return made

    patch.setattr(Session, "_execute", execute_and_record)


def agree(path: Path | str, text: str, *, rewrite: bool) -> None:
    """Compares ``text`` with the golden file; an empty text has no file. With ``rewrite``, writes
    the file first.

    Raises AssertionError if they differ."""
    path = FOLDER / path
    if rewrite and text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    elif rewrite:
        path.unlink(missing_ok=True)
    held = path.read_text("utf-8") if path.exists() else ""
    assert text == held, f"the plan in {path.name} has changed; --rewrite writes it, read the diff"
