"""The version of all code that decides a result: two processes with the same hash agree."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from cql.base.own_code import code_hash

#: Libraries that parse texts and decide what a kernel computes.
LIBRARIES = ("numba", "llvmlite", "numpy", "pyarrow", "sqlglot")


@cache
def version_hash() -> str:
    """The hash of the package's code, of Python's version and of the versions of the libraries that
    parse and compile, in hexadecimal digits."""
    parts = [code_hash(), f"python {sys.version_info[:2]}", *map(_version, LIBRARIES)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _version(library: str) -> str:
    try:
        return f"{library} {version(library)}"
    except PackageNotFoundError:  # its files came without metadata
        return library
