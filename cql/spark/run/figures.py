"""The figures of tasks, summed for EXPLAIN ANALYZE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cql.show.render import duration_text, size_text

#: The metrics of an operator that are sums over tasks, and those of which the highest counts.
_SUMS = ("rows_in", "rows_out", "bad", "late", "nanoseconds", "punctuation_in", "punctuation_out")
_HIGHEST = ("peak_bytes",)


def summed(tasks: Sequence[Sequence[Mapping[str, Any]]], inputs: int) -> list[dict[str, Any]]:
    """The metrics of each operator over all ``tasks``, which list their ``inputs`` first."""
    made: list[dict[str, Any]] = []
    for entries in zip(*(task[inputs:] for task in tasks), strict=False):
        total: dict[str, Any] = {"operator": entries[0]["operator"]}
        for name in (*_SUMS, *_HIGHEST):
            values = [int(entry[name]) for entry in entries if name in entry]
            if values:
                total[name] = sum(values) if name in _SUMS else max(values)
        made.append(total)
    return made


def stage_text(what: str, efforts: Sequence[Mapping[str, float]]) -> str:
    """``4 tasks on Spark ran the query: 8M rows in, …``."""
    rows_in, rows_out, size = (
        int(sum(effort[name] for effort in efforts)) for name in ("rows_in", "rows_out", "bytes")
    )
    cpu = sum(effort["cpu"] for effort in efforts)
    longest = max(effort["seconds"] for effort in efforts)
    many = f"{len(efforts):,} task{'' if len(efforts) == 1 else 's'}"
    return (
        f"{many} on Spark {what}: {rows_in:,} rows in, {rows_out:,} out ({size_text(size)}),"
        f" {duration_text(cpu)} of CPU time, the longest {duration_text(longest)}"
    )
