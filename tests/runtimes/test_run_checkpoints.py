"""A run that stops between two morsels and continues from its checkpoint, in a new run whose
dictionary numbers texts otherwise, gives the results and the ledgers of a run that never
stopped."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import cql
from cql.executor.state.checkpoint import to_ipc
from tests.support.catalog_tools import blocks_of_eight
from tests.support.checkpoints import CASES
from tests.support.paths import ROOT
from tests.support.query_files import RUNNING, planned
from tests.support.run_checkpoints import (
    plan_of,
    query_of_case,
    run,
    session_of_case,
    stop_and_continue,
)


@pytest.mark.parametrize("case", CASES)
def test_a_run_continues(case: str, seed: int, full: bool) -> None:
    choice = random.Random(f"{case} {seed}")
    for small in (False, True) if full else (choice.random() < 0.5,):
        with (
            blocks_of_eight() if small else nullcontext(),
            session_of_case(case, morsel_rows=choice.choice((7, 64))) as session,
        ):
            plan = plan_of(session, query_of_case(case))
            for _ in range(5 if full else 1):
                stop_and_continue(plan, session.settings, choice, stops=2)


@pytest.mark.slow
@pytest.mark.parametrize("path", RUNNING, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_query_files_continue(path: Path, seed: int, full: bool) -> None:
    if not full and (RUNNING.index(path) + seed) % 6:
        pytest.skip("with --full")
    choice = random.Random(f"{path.stem} {seed}")
    with cql.connect(spark=False, morsel_rows=7) as session:
        plan = planned(session, path)._plan
        for _ in range(5 if full else 1):
            stop_and_continue(plan, session.settings, choice)


@pytest.mark.parametrize("case", ["growing keys", "outer join", "names of a relation"])
def test_in_a_new_process(case: str, tmp_path: Path) -> None:
    with session_of_case(case, morsel_rows=16) as session:
        plan = plan_of(session, query_of_case(case))
        whole = run(plan, session.settings)
        before = run(plan, session.settings, stop=whole.morsels // 2)
    assert before.saved is not None
    (tmp_path / "run.arrow").write_bytes(to_ipc(before.saved))
    subprocess.run(
        [sys.executable, "-m", "tests.support.run_checkpoints", case, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        check=True,
    )
    rows, ledgers = ast.literal_eval((tmp_path / "rest").read_text("utf-8"))
    assert [[*a, *b] for a, b in zip(before.rows, rows, strict=True)] == whole.rows
    assert ledgers == whole.ledgers
