"""State of the machine: CPU seconds, memory, threads, load, versions."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LIBRARIES = ("numpy", "numba", "pyarrow", "pyspark", "duckdb", "polars", "sqlglot")
_PROC = Path("/proc")


def describe() -> dict[str, Any]:
    """The machine, the versions, and the commit if this is a clone."""
    versions = {}
    for library in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            versions[library] = version(library)
    return {
        "cpu": _cpu_name(),
        "cores": len(_allowed()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": _commit(),
    }


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in (_PROC / "cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() or None


def load() -> float:
    """The mean number of running or runnable processes over the last minute."""
    return os.getloadavg()[0]


# ----------------------------------------------------------------- CPU and memory


def others_cpu_seconds() -> float:
    """User and system time of this process's ended children and (if /proc exists) of its living
    descendants, so that the work of a JVM counts."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(_cpu_of(pid) for pid in _descendants())


def _stat(pid: int) -> list[str] | None:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    if not (_PROC / "self" / "stat").exists():
        return []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        more = children.get(waiting.pop(), [])
        found += more
        waiting += more
    return found


def _cpu_of(pid: int) -> float:
    stat = _stat(pid)
    if stat is None:
        return 0.0
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def give_back() -> None:
    """Returns memory freed by earlier benchmarks to the system (glibc keeps it otherwise)."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def forget_peak() -> None:
    """Resets ``peak_mb``, if the system can; otherwise it stays the peak of the process."""
    with contextlib.suppress(OSError):
        (_PROC / "self" / "clear_refs").write_text("5")


def resident_mb() -> float:
    """Resident memory of this process in MB of 10^6 bytes; its peak if the system does not report
    it."""
    with contextlib.suppress(OSError):
        pages = int((_PROC / "self" / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return peak_mb()


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = (
        *((f"other{k}", ctypes.c_size_t) for k in range(4)),
        ("hblkhd", ctypes.c_size_t),  # bytes of large blocks
        *((f"other{k}", ctypes.c_size_t) for k in range(4, 6)),
        ("uordblks", ctypes.c_size_t),  # bytes of all others in use
        *((f"other{k}", ctypes.c_size_t) for k in range(6, 8)),
    )


def allocated_mb() -> float:
    """MB of 10^6 bytes that C's allocator (numpy's too) has handed out and not got back; NaN if the
    system does not report it."""
    try:
        report = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return math.nan
    report.restype = _MallocInfo
    info = report()
    return float(info.uordblks + info.hblkhd) / 1e6


def peak_mb() -> float:
    """Peak resident memory of this process (without descendants), in MB of 10^6 bytes."""
    with contextlib.suppress(OSError):
        for line in (_PROC / "self" / "status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


# ----------------------------------------------------------------- threads


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def can_pin() -> bool:
    return hasattr(os, "sched_setaffinity") and (_PROC / "self" / "task").exists()


def last_cpu() -> int:
    """The CPU for pinning by default; the first CPU serves most interrupts."""
    return max(_allowed())


@contextlib.contextmanager
def pinned(cpu: int | None) -> Iterator[None]:
    """Confines every thread of this process, also those started meanwhile, to one CPU, so that
    nothing runs in parallel. None changes nothing."""
    if cpu is None:
        yield
        return
    before = _allowed()
    _pin_all({cpu})
    try:
        yield
    finally:
        _pin_all(before)


def _pin_all(cpus: set[int]) -> None:
    for thread in (_PROC / "self" / "task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            os.sched_setaffinity(int(thread.name), cpus)
