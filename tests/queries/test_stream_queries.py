"""The queries of ``queries/cql``: each, run from the command line, gives its golden file, and
``stream_queries`` computes the golden files from the data without the engine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cql.repl import cli as command
from tests.reference.naive_compare import difference
from tests.support import stream_queries
from tests.support.stream_queries import table_of

FOLDER = stream_queries.FOLDER
FILES = sorted(FOLDER.glob("*.cql"))
SETTINGS = (
    [],
    ["morsel_rows=7"],
    ["morsel_rows=1", "runtime=fifo_slice"],
    ["morsel_rows=7", "runtime=ordered", "workers=3"],
)


def make_data() -> Any:
    spec = importlib.util.spec_from_file_location("make_data", FOLDER / "make_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_twenty_and_each_has_an_answer() -> None:
    stems = {path.stem for path in FILES}
    assert len(stems) >= 20
    assert stems == set(stream_queries.ANSWERS)
    assert stems == {path.stem for path in (FOLDER / "golden").iterdir()}


def test_the_data_is_what_the_script_makes() -> None:
    made = make_data().files()
    assert set(made) == {path.name for path in (FOLDER / "data").iterdir()}
    for name, text in made.items():
        assert (FOLDER / "data" / name).read_text("utf-8") == text, name


@pytest.mark.parametrize("stem", stream_queries.ANSWERS)
def test_golden_is_worked_out_from_the_data(stem: str) -> None:
    want = (FOLDER / "golden" / f"{stem}.csv").read_text("utf-8")
    assert table_of(stream_queries.golden(stem)) == table_of(want)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_query_gives_its_golden_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER.parent.parent)
    head, want = table_of((FOLDER / "golden" / f"{path.stem}.csv").read_text("utf-8"))
    for settings in SETTINGS:
        options = [word for setting in settings for word in ("--set", setting)]
        run = CliRunner().invoke(command.cli, ["run", str(path), "--format", "csv", *options])
        assert run.exit_code == 0, run.output
        got_head, got = table_of(run.stdout)
        assert got_head == head
        found = difference(want, got)
        assert found is None, f"{settings}: {found}"
        for column in ("_time", "window_end"):
            if column in head:
                times = [row[head.index(column)] for row in got]
                assert times == sorted(times)
    if path.stem == "habitat_in_order":
        assert got == want
