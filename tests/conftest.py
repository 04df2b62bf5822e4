"""Options and fixtures that all tests share."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.catalog_tools import blocks_of_eight
from tests.support.fuzz.known_nulls import known_nulls
from tests.support.runtimes import BY_NAME, by_default
from tests.support.sampling import ALL_CASES, draw
from tests.support.spark_fixtures import spark

__all__ = ["spark"]

#: For this process and its children: the output must not depend on which kernels are cached.
os.environ["CQL_COMPILE_NOTICE"] = "off"

#: A shell ignores SIGINT for its background jobs, and their children inherit that; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

_FULL = "--full"
_SEED = "--seed"
_REWRITE = "--rewrite"
_RUNTIME = "--runtime"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_FULL, action="store_true", help="the full random counts")
    parser.addoption(ALL_CASES, action="store_true", help="all cases of the sampled tests")
    parser.addoption(_SEED, type=int, default=1, help="the seed of all random tests")
    parser.addoption(_REWRITE, action="store_true", help="write the files that tests hold")
    parser.addoption(
        _RUNTIME,
        choices=tuple(BY_NAME),
        help="the runtime of every session for which the test chooses none (ordered-4-2: four"
        " partitions, two workers); tests of the choice itself are skipped",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draws the cases of sampled tests, and marks all Spark tests as slow. With ``--runtime``,
    skips the tests of the choice that ``auto`` makes. With several processes (``-n 3 --dist
    loadgroup``), one process runs all Spark tests. The other tests of a file run in one process,
    which compiles each kernel once."""
    draw(config, items)
    if config.getoption(_RUNTIME):
        skip = pytest.mark.skip(reason="is about the runtime that auto takes, or depends on it")
        for item in items:
            if item.get_closest_marker("auto_runtime"):
                item.add_marker(skip)
    for item in items:
        on_spark = "spark" in getattr(item, "fixturenames", ())
        if on_spark:
            item.add_marker(pytest.mark.slow)
        if config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group("spark" if on_spark else item.path.name))


def pytest_report_header(config: pytest.Config) -> str:
    counts = "full" if config.getoption(_FULL) else "default"
    return f"seed: {config.getoption(_SEED)} (repeat with --seed N), counts: {counts}"


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether ``--full`` requests the full random counts."""
    return bool(request.config.getoption(_FULL))


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed in the report header."""
    return int(request.config.getoption(_SEED))


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite the expected files (plan goldens, the matrix of Spark's tables)."""
    return bool(request.config.getoption(_REWRITE))


@pytest.fixture(scope="session", autouse=True)
def _default_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--runtime``, the whole suite runs under it."""
    name = request.config.getoption(_RUNTIME)
    with by_default(BY_NAME[name] if name else {}):
        yield


@pytest.fixture
def small_blocks() -> Iterator[None]:
    with blocks_of_eight():
        yield


@pytest.fixture
def shared_kernels() -> Iterator[None]:
    """Statistics report NULLs in every column: random rows of one schema share their kernels."""
    with known_nulls(frozenset()):
        yield


@pytest.fixture
def stress() -> Iterator[None]:
    """The threads of the ordered runtime yield their core at random points."""
    from cql.executor.kernels.ordered.tables import CALM, YIELDING
    from cql.executor.runtimes.ordered import Ordered

    Ordered.stress = YIELDING
    yield
    Ordered.stress = CALM


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A function that wakes and interrupts the main thread like Ctrl-C, by a KeyboardInterrupt.
    Python drops a KeyboardInterrupt that a callback of the garbage collector raises; the fixture
    then sends the signal again."""

    def press() -> None:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    def dropped(what: Any) -> None:
        if what.exc_type is KeyboardInterrupt:
            _thread.start_new_thread(press, ())
        else:
            report(what)

    report = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", dropped)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield press
    signal.signal(signal.SIGINT, before)
