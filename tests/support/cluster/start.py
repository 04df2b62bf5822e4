"""A Spark cluster of two executor processes on this machine, driven by a process of its own.

The executors' Python has every installed library but this one, so that they run it only from the
.zip that the driver ships.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark

from cql.catalog.spark import session as spark_session
from cql.catalog.spark.java import java_home
from tests.support.paths import ROOT

MASTER = "local-cluster[2,1,1024]"
#: Addresses of the workers of a cluster in processes of its own.
ADDRESSES = ("127.0.0.2", "127.0.0.1")


def driven(module: str, folder: Path, *args: str) -> list[Any]:
    """Runs ``python -m module FOLDER ARGS`` as a driver; returns the lines of JSON that it prints.
    Raises RuntimeError with the end of its output if it fails."""
    env = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "SPARK_HOME": str(_spark_home(folder / "spark")),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-m", module, str(folder), *args],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} failed\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def session(folder: Path, settings: dict[str, str] | None = None) -> Any:
    """The session of a driver that ``driven`` started."""
    wanted = {"spark.master": MASTER, "spark.executor.memory": "1g", **(settings or {})}
    made = spark_session.start(wanted, warehouse=folder / "warehouse")
    made.sparkContext.pythonExec = str(_python_without_the_library(folder))
    return made


def _spark_home(folder: Path) -> Path:
    """Spark's own folder by links: the executors write their work below it."""
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":  # of a cluster that used Spark's own folder
            (folder / entry.name).symlink_to(entry)
    return folder


def _python_without_the_library(folder: Path) -> Path:
    """A Python with links to all installed libraries but this one; it reads no .pth files, which
    would add an editable installation."""
    libraries = folder / "libraries"
    libraries.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "cql" not in entry.name and entry.suffix != ".pth":
            (libraries / entry.name).symlink_to(entry)
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{libraries}:$PYTHONPATH" exec "{sys.executable}" -S "$@"\n'
    )
    python.chmod(0o755)
    return python


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """The URL of a cluster of two workers of one core with addresses of their own: Spark starts no
    second copy of a task on the address of the first. Raises OSError where 127.0.0.2 is none."""
    for address in ADDRESSES:
        with socket.socket() as tried:
            tried.bind((address, 0))
            port = tried.getsockname()[1]  # of the last one, for the master
    url = f"spark://{ADDRESSES[-1]}:{port}"
    folder.mkdir()
    home, work = _spark_home(folder / "spark"), str(folder / "work")
    env = {**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(java_home())}
    env.pop("PYTHONPATH", None)
    worker = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", work, url]
    commands = [
        ["master.Master", "--host", ADDRESSES[-1], "--port", str(port), "--webui-port", "0"],
        *(["worker.Worker", "--host", address, *worker] for address in ADDRESSES),
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, *rest in commands:
            command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *rest]
            with (folder / f"{name}-{len(started)}.log").open("wb") as log:
                started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
