"""Lint, format and strict types hold (the three checks that a change must pass), and the tests of a
file run in one process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ids=lambda command: " ".join(command),
)
def test_style(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_of_a_file_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """The scheduler of xdist finds the group behind the @ of a test's name."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@test_style.py")
