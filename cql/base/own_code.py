"""This package's own code, from a folder or from a .zip."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable


def code() -> Iterator[tuple[str, bytes]]:
    """The modules of the package: paths below it, and contents."""
    for name, text in _modules(files("cql"), ""):
        yield name.lstrip("/"), text


def code_hash(*parts: str) -> str:
    """The hash of the modules in ``parts``, folders and files below the package (none: the whole
    package), in hexadecimal digits."""
    package = files("cql")
    digest = hashlib.sha256()
    for part in parts or ("",):
        for name, text in _modules(package.joinpath(*part.split("/")), part):
            digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def _modules(entry: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    if entry.is_file():
        yield name, entry.read_bytes()
        return
    for inner in sorted(entry.iterdir(), key=lambda e: e.name):
        if inner.name.endswith(".py") or (inner.is_dir() and inner.name != "__pycache__"):
            yield from _modules(inner, f"{name}/{inner.name}")
