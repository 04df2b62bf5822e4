"""Texts in snapshots, which hold flat arrays of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.executor.state.store import Snapshot


def saved_texts(texts: Sequence[str | None]) -> Snapshot:
    """A snapshot of ``texts``: their bytes in UTF-8, and the size of each (-1: None)."""
    parts = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    sizes = [-1 if part is None else len(part) for part in parts]
    joined = np.frombuffer(b"".join(filter(None, parts)), np.uint8)
    return Snapshot({"bytes": joined, "sizes": np.array(sizes, np.int64)}, np.zeros(0, np.int64))


def texts_of(saved: Snapshot) -> list[str | None]:
    """The texts of ``saved_texts``."""
    whole, at = saved.arrays["bytes"].tobytes(), 0
    found: list[str | None] = []
    for size in saved.arrays["sizes"].tolist():
        part = whole[at : at + max(size, 0)]
        found.append(None if size < 0 else part.decode("utf-8", "surrogatepass"))
        at += len(part)
    return found
