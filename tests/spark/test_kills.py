"""Processes that die in the middle of a job: no row is lost, none is doubled."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.kills import written
from tests.support.cluster.start import Driver

#: Of each kind.
KILLS = 10
#: Words of the command lines of the processes.
VICTIMS = {"executor": b"CoarseGrainedExecutorBackend", "worker": b"pyspark.daemon"}


def _started(data: Path, n: int) -> Driver:
    return Driver("tests.support.cluster.kills", data / f"driver{n}", str(data))


def _told(driver: Driver, line: str) -> Any:
    """The rows of the table after a job without a kill."""
    driver.tell(line)
    assert driver.told() == "begins"
    return driver.told()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["driver", *VICTIMS])
def test_no_row_is_lost_or_doubled(tmp_path: Path, full: bool, seed: int, victim: str) -> None:
    """Kills the driver, an executor or a Python worker at a random moment of a job. Spark replaces
    an executor and a worker, and the job ends. The table of a job whose driver dies has all rows or
    none, and all after another run."""
    if not full:
        pytest.skip("with --full")
    rng = random.Random(f"{seed} {victim}")
    written(tmp_path)
    driver = _started(tmp_path, KILLS)
    driver.tell("here rows")
    right = driver.told()
    assert _told(driver, "insert default.first") == right  # the executors' Python has started
    began = time.monotonic()
    assert _told(driver, "insert default.calm") == right
    seconds = time.monotonic() - began
    wrong: list[Any] = []
    for n in range(KILLS):
        name = f"default.out{n}"
        how = "insert" if victim == "driver" or n % 2 else "create"
        driver.tell(f"{how} {name}")
        assert driver.told() == "begins"
        time.sleep(rng.random() * seconds)
        if victim == "driver":
            driver.kill()
            driver = _started(tmp_path, n)
            driver.tell(f"read {name}")
            found = driver.told()
            if found[0] == 0:
                found = _told(driver, f"insert {name}")
        else:
            while not (pids := driver.pids(VICTIMS[victim])):
                time.sleep(0.01)  # until one that was killed before is replaced
            os.kill(rng.choice(pids), signal.SIGKILL)
            found = driver.told()
        if found != right:
            wrong.append([n, how, found])
    driver.close()
    assert wrong == []
