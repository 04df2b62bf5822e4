"""The sample of a test's cases."""

from __future__ import annotations

import pytest

from tests.support.sampling import PART, drawn

NAMES = [f"file.py::test_{test}[{case}]" for test in "ab" for case in range(40)]


def test_seeds_in_a_row_draw_all_cases() -> None:
    parts = [drawn(NAMES, seed) for seed in range(PART)]
    assert set().union(*parts) == set(NAMES)
    assert sum(len(part) for part in parts) == len(NAMES)


def test_other_cases_do_not_change_the_choice() -> None:
    assert drawn(NAMES[:60], 1) == drawn(NAMES, 1) & set(NAMES[:60])


@pytest.mark.parametrize("seed", range(PART))
def test_each_test_keeps_a_case(seed: int) -> None:
    few = ["file.py::test_c[only]", "file.py::test_d"]
    assert drawn(few, seed) == set(few)


def test_tests_that_are_named_keep_all_cases(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "from tests.support.sampling import ALL_CASES, draw\n"
        "def pytest_addoption(parser):\n"
        "    for name in (ALL_CASES, '--full', '--rewrite'):\n"
        "        parser.addoption(name, action='store_true')\n"
        "    parser.addoption('--seed', type=int, default=1)\n"
        "def pytest_configure(config):\n"
        "    config.addinivalue_line('markers', 'sampled: a part runs')\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    draw(config, items)\n"
    )
    file = pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.sampled\n"
        "@pytest.mark.parametrize('case', range(40))\n"
        "def test_case(case): pass\n"
        "def test_other(): pass\n"
    )
    few = pytester.runpytest().parseoutcomes()
    assert few["passed"] + few["deselected"] == 41
    assert few["passed"] < 21
    whole = ("--all-cases",), ("--full",), ("-k", "case or other"), (f"{file}::test_case", file)
    for options in whole:
        assert pytester.runpytest(*options).parseoutcomes()["passed"] >= 40
