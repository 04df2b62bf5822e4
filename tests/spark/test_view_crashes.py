"""Crashes while a materialized view is refreshed: no row is lost, none is doubled."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import cql
from cql.catalog.spark.tables import staging
from cql.session.session import Session
from tests.support.paths import ROOT
from tests.support.view_tables import TUMBLING, Base, check, create, refreshed


class Crash(BaseException):
    """A process that ends here."""


class Steps:
    """``os`` for the module that commits; the call number ``fatal`` of those that change files
    raises Crash: before it, behind it, or (``dead``) with all calls that follow."""

    def __init__(self, fatal: int, how: str) -> None:
        self.count, self.name = 0, ""
        self._fatal, self._how = fatal, how

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync"):
            return real

        def step(*args: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self._fatal:
                self.name = name
            if self.count == self._fatal and self._how != "behind":
                raise Crash
            if self.count > self._fatal and self._how == "dead":
                raise Crash
            made = real(*args, **named)
            if self.count == self._fatal:
                raise Crash
            return made

        return step


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["before", "behind", "dead"])
@pytest.mark.parametrize("name", ["part", "early"])
def test_a_crash_at_each_step(
    spark: Any,
    session: Session,
    base: Callable[..., Base],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    name: str,
) -> None:
    """A file ``part-…`` gives new rows; all rows are computed anew after a file ``early-…``."""
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    names = set()
    with cql.connect(spark) as other:
        other.on_notice = lambda message: None
        for fatal in itertools.count(1):
            one.add(one.rows(150), name=name)
            steps = Steps(fatal, how)
            with monkeypatch.context() as patch, contextlib.suppress(Crash):
                patch.setattr(staging, "os", steps)
                if how == "dead":
                    patch.setattr(staging.shutil, "rmtree", lambda *args, **named: None)
                refreshed(session)
            if steps.count < fatal:
                break
            names.add(steps.name)
            if fatal % 2:  # others append before the next refresh
                one.add(one.rows(30), name=name)
            refreshed(other)
            check(other, text)
            if one.files > 8:  # few files, so that each refresh takes the same steps
                one.clear()
                one.add(one.rows(300))
                refreshed(other)
    assert names >= {"mkdir", "fsync", "replace", "rename", "unlink"}


def test_a_select_finishes_what_a_crash_has_left(
    spark: Any, session: Session, base: Callable[..., Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    one.add(one.rows(150))

    def crash(*args: Any, **named: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(staging.os, "rename", crash)
        with pytest.raises(Crash):
            refreshed(session)
    with cql.connect(spark) as other:
        check(other, text)
        assert "up to date" in refreshed(other)


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from cql.catalog.spark.tables.staging import Staging, last_epoch

    folder, new, when = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    last = last_epoch(folder, "t")
    staging = Staging("t", folder)
    staged = staging.path / "000000"
    staged.mkdir()
    os.link(new, staged / "part-00000.parquet")
    def kill(*args, **named):
        os.kill(os.getpid(), signal.SIGKILL)
    if when == "committed":
        os.rename = kill
    elif when == "renamed":
        os.unlink = kill
    elif when == "removed":
        os.rmdir = kill
    name = "epoch-9999999999-new"
    notes = {**last.notes, "open": [f"{name}/part-00000.parquet"]}
    removed = [folder / file for file in last.notes["open"]]
    moves = [(staged, folder / name)]
    if when == "staged":
        kill()
    staging.commit(last.number + 1, moves, (), removed, notes)
"""


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["staged", "committed", "renamed", "removed"])
def test_a_killed_process(
    spark: Any, session: Session, base: Callable[..., Base], tmp_path: Path, when: str
) -> None:
    """The process replaces the rows that are open by themselves."""
    one = base()
    one.add(one.rows(300))
    text = one.text(TUMBLING)
    create(session, text)
    location = spark.sql("DESCRIBE TABLE EXTENDED default.v").collect()
    folder = Path(next(r.data_type for r in location if r.col_name == "Location")[5:])
    notes = staging.last_epoch(folder, "t").notes
    assert notes is not None
    (opened,) = notes["open"]
    new = tmp_path / "new.parquet"
    pq.write_table(pq.read_table(folder / opened), new)
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(folder), str(new), when],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    check(session, text)
    one.add(one.rows(90))
    assert " refreshed: " in refreshed(session)
    check(session, text)
