"""A query that stops at any morsel and continues from the checkpoint, with new operators and a
dictionary that numbers texts otherwise, gives the output and the counts of one that never
stopped."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cql.errors import RunError
from cql.executor.state.checkpoint import from_ipc, to_ipc
from cql.executor.state.store import Snapshot
from tests.support.checkpoints import CASES, Part, ledgers, plan_of_case, rows_of, stop_and_continue
from tests.support.paths import ROOT


@pytest.mark.sampled
@pytest.mark.parametrize("morsel_rows", [16, 64])
@pytest.mark.parametrize("case", CASES)
def test_a_query_continues_from_a_checkpoint(case: str, morsel_rows: int) -> None:
    root, choice = plan_of_case(case), random.Random(f"{case}{morsel_rows}")
    for _ in range(3):
        stop_and_continue(root, morsel_rows, choice)


@pytest.mark.sampled
@pytest.mark.parametrize("case", ["growing keys", "join", "names of a relation"])
def test_in_a_new_process(case: str, tmp_path: Path) -> None:
    root = plan_of_case(case)
    whole, before = Part(root, 16), Part(root, 16)
    expected, at = whole.run(0), len(whole.morsels.morsels) // 2
    given = before.run(0, at)
    (tmp_path / "state.arrow").write_bytes(to_ipc(before.checkpoint()))
    subprocess.run(
        [sys.executable, "-m", "tests.support.checkpoints", case, "16", str(at), str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        check=True,
    )
    rest, counts = ast.literal_eval((tmp_path / "rest").read_text("utf-8"))
    assert [*rows_of(given), *rest] == rows_of(expected)
    assert counts == ledgers(whole.graph)


@pytest.mark.parametrize("case", [case for case in CASES if case != "join, adaptive"])
def test_a_checkpoint_holds_no_address(case: str) -> None:
    """Operators of one plan that have read the same rows save equal words, wherever their arrays
    are. (The adaptive join measures times.)"""
    root, keep = plan_of_case(case), []
    made = []
    for size in (1, 1 << 18):
        keep.append(np.ones(size))  # moves what is allocated next
        part = Part(root, 64)
        part.run(0, len(part.morsels.morsels) // 2)
        keep.append(part)
        made.append([words_of(saved) for saved in part.checkpoint().operators.values()])
    assert made[0] == made[1]


def words_of(saved: Snapshot) -> list[object]:
    return [saved.words.tolist(), *map(words_of, saved.parts.values())]


def test_what_is_refused() -> None:
    first, other = (Part(plan_of_case(case), 64) for case in ("join", "two keys"))
    first.run(0, 5)
    with pytest.raises(RunError, match=r"the checkpoint is of a plan with .*join.*, and this plan"):
        other.restore(first.checkpoint())
    table = pa.table({"ts": [1], "k": [1], "v": [2]})
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        with pytest.raises(RunError, match="this is no checkpoint of version 1"):
            from_ipc(sink.getvalue())
