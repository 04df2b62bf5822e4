"""The sample of a test's cases."""

from __future__ import annotations

import pytest

from tests.support.sampling import drawn

NAMES = [f"file.py::test[{case}]" for case in range(80)]


@pytest.mark.parametrize("part", [4, 12])
def test_seeds_in_a_row_draw_all_cases(part: int) -> None:
    samples = [drawn(NAMES, part, seed) for seed in range(part)]
    assert set().union(*samples) == set(NAMES)
    assert sum(len(sample) for sample in samples) == len(NAMES)


def test_other_cases_do_not_change_the_choice() -> None:
    assert drawn(NAMES[:60], 4, 1) == drawn(NAMES, 4, 1) & set(NAMES[:60])


@pytest.mark.parametrize("seed", range(4))
def test_each_test_keeps_a_case(seed: int) -> None:
    assert drawn(NAMES[:1], 4, seed) == set(NAMES[:1])


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
