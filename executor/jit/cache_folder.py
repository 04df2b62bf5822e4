"""The folder where compiled kernels are kept. An import of this module does not import numba."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from cql.base.own_code import code_hash

#: The files of this folder that affect machine code.
COMPILERS = ("compile_speed.py", "decorators.py", "pipeline.py")


@cache
def kernels_digest() -> str:
    """Hash of every kernel file and of the compiler's files. Kernel files import constants and
    functions only from each other."""
    return code_hash("executor/kernels", *(f"executor/jit/{name}" for name in COMPILERS))


@cache
def library_version() -> str:
    """Hash of every kernel file, of the numba that compiles them and of the CPU they run on."""
    import llvmlite.binding as llvm
    import numba

    digest = hashlib.sha256(numba.__version__.encode())
    digest.update(f"{sys.version_info[:2]} {llvm.get_host_cpu_name()}".encode())
    digest.update(kernels_digest().encode())
    return digest.hexdigest()[:16]


def cache_folder(setting: str = "on") -> Path:
    """The folder of generated modules: the user's cache folder, or the folder that the setting
    ``kernel_cache`` names; a temporary folder if the cache is off or cannot be written."""
    if setting not in ("on", "off"):
        wanted = Path(setting).expanduser()
    elif setting == "on":
        import platformdirs

        wanted = Path(platformdirs.user_cache_dir("cql-streams")) / "kernels"
    else:
        return temporary_folder()
    folder = wanted / library_version()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return temporary_folder()
    return folder


@cache
def temporary_folder() -> Path:
    """A folder that the process removes at its exit; forked processes can use it until then."""
    folder, process = Path(tempfile.mkdtemp(prefix="cql-")), os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
