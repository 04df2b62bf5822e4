"""Plans as files, reviewed like code: ``pytest tests/plans tests/house/test_docs.py --rewrite``
writes them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cql.query.query import Query
from cql.session.session import Session
from tests.support.paths import TESTS

FOLDER = TESTS / "plans"
#: The plans do not depend on the machine.
CORES = frozenset((0, 1))


def record(patch: pytest.MonkeyPatch, plans: list[str]) -> None:
    """Appends to ``plans``, from now on, each query that any session plans: its text and its
    physical plan with the reasons, as on a machine of two cores."""
    patch.setattr("os.sched_getaffinity", lambda _: CORES)
    execute = Session._execute

    def execute_and_record(session: Session, bound: Any, origin: Any) -> Any:
        made = execute(session, bound, origin)
        if isinstance(made, Query):
            plans.append(f"{origin.text}\n\n{made.explain()}\n")
        return made

    patch.setattr(Session, "_execute", execute_and_record)


def agree(path: Path | str, text: str, *, rewrite: bool) -> None:
    """``text`` is what the golden file holds (there is none of an empty text); with ``rewrite`` the
    file is written.

    Raises AssertionError: they differ, or there is no such file."""
    path = FOLDER / path
    if rewrite and text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    elif rewrite:
        path.unlink(missing_ok=True)
    held = path.read_text("utf-8") if path.exists() else ""
    assert text == held, f"the plan in {path.name} has changed; --rewrite writes it, read the diff"
