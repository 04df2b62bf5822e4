"""Options and fixtures that all tests share."""

from __future__ import annotations

import random

import pytest

_FULL = "--full"
_SEED = "--seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_FULL, action="store_true", help="the full random counts")
    parser.addoption(_SEED, type=int, default=None, help="the seed of all random tests")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(_SEED) is None:
        config.option.seed = random.SystemRandom().randrange(1_000_000_000)


def pytest_report_header(config: pytest.Config) -> str:
    counts = "full" if config.getoption(_FULL) else "default"
    return f"seed: {config.getoption(_SEED)} (repeat with --seed N), counts: {counts}"


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Were the full random counts asked for?"""
    return bool(request.config.getoption(_FULL))


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed in the report header."""
    return int(request.config.getoption(_SEED))
