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
import time
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
    done = subprocess.run(
        [sys.executable, "-m", module, str(folder), *args],
        cwd=ROOT,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} failed\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _environment(folder: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "SPARK_HOME": str(_spark_home(folder / "spark")),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class Driver:
    """A driver that takes lines and prints lines of JSON: ``python -m module FOLDER ARGS``. Its
    processes are its own and those of its cluster."""

    def __init__(self, module: str, folder: Path, *args: str) -> None:
        folder.mkdir()
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(folder), *args],
                cwd=ROOT,
                env=_environment(folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def told(self) -> Any:
        """Its next line. Raises RuntimeError with the end of its output if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(self._log.read_text("utf-8", "replace")[-4000:])
        return json.loads(line)

    def pids(self, name: bytes) -> list[int]:
        """The processes below it that have ``name`` in their command lines."""
        parents = {pid: parent for pid, parent in _processes() if parent}
        below: list[int] = []
        for pid in parents:
            above = pid
            while above in parents and above != self._process.pid:
                above = parents[above]
            if above == self._process.pid != pid and name in _command(pid):
                below.append(pid)
        return below

    def kill(self) -> None:
        """Kills it; returns when all processes below it have ended."""
        below = self.pids(b"")
        self._process.kill()
        self._process.communicate()  # waits, and closes the pipes
        while any(_command(pid) for pid in below):
            time.sleep(0.05)

    def close(self) -> None:
        """Ends its input, and waits for its end."""
        self._process.communicate()


def _processes() -> Iterator[tuple[int, int]]:
    """All processes, each with its parent."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                behind_name = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2]
                yield int(entry.name), int(behind_name.split()[1])


def _command(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def session(
    folder: Path, settings: dict[str, str] | None = None, warehouse: Path | None = None
) -> Any:
    """The session of a driver that ``driven`` or ``Driver`` started."""
    wanted = {"spark.master": MASTER, "spark.executor.memory": "1g", **(settings or {})}
    made = spark_session.start(wanted, warehouse=warehouse or folder / "warehouse")
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
