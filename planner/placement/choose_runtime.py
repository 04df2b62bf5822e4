"""Chooses the runtime of a plan, one core or several (ordered-multicore paper), and the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cql.planner.nodes.physical import (
    Physical,
    RuntimeChoice,
    SourceExec,
    live,
)
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.placement.cost import Cost, cost

#: The runtimes in which morsels wait between operators (XStream paper, section III.C).
QUEUED = ("fifo", "fifo_slice", "run_to_completion")
#: Nanoseconds per row under which plans stay on one core; the second figure holds for endless
#: input, where the amount of work is unknown.
LIGHT, HEAVY = 50, 500
#: Least speedup that several workers must give.
FASTER = 1.25
#: Least seconds that several workers must save. They start within milliseconds, but a plan in
#: partitions has kernels of its own, which compile when a query is new.
SAVED = 0.1
#: Partitions per worker, so that a worker with many rows leaves work for the others, if no sample
#: of keys gives a number (``executor.run.partition_sizing``); and the most partitions in all.
_PARTITIONS, _MOST_PARTITIONS = 2, 64
#: Up to this number of partitions each partition of a join finds its rows among all rows, which
#: costs less than listing them first: a row is hashed once more for each partition, and is read by
#: the core that needs it.
LOOKING = 4
#: The chosen worker count may be slower than the best one by this factor.
_GAIN = 1.05
#: Length of CT's window in slices of time, if no setting gives it.
WINDOW_SLICES = 100
#: A worker count at which only the work that one worker does alone limits the speed.
_ALL = 1 << 20


def choose_runtime(
    plans: Sequence[Physical], settings: Mapping[str, Any], cores: int
) -> RuntimeChoice:
    """The runtime for plans that run as one, by the settings runtime, workers and partitions;
    ``cores`` is the number of cores that the process may use."""
    wanted = str(settings["runtime"])
    if wanted not in ("auto", "ordered"):
        told = [f"slices of {_time(settings['slice_us'])}"] if wanted == "fifo_slice" else []
        if settings["tuple_burst"] and wanted in QUEUED:
            told.append(f"bursts of {settings['tuple_burst']:,} rows")
        return RuntimeChoice(wanted, f"SET runtime = '{wanted}'", how=", ".join(told))
    found, requested = cost(plans, read_statistics=False), int(settings["workers"])
    if wanted == "auto" and found.row >= LIGHT:
        found = cost(plans, read_statistics=True)
    workers = requested or (cores if wanted == "ordered" else _workers(found, cores))
    partitions, split = int(settings["partitions"]), None
    many = f"{workers} worker{'' if workers == 1 else 's'}"
    nodes = NodeNumbers(*plans)
    if not any(node.can_split for node in nodes):
        partitions = 0
    if partitions:
        many += f", {partitions} partition{'' if partitions == 1 else 's'}"
    elif workers > 1 and found.keyed:
        keyed = found.split(workers)
        split = frozenset(k.node for k in keyed)
        if not keyed:
            many += ", each operator whole"
        elif any(k.is_join for k in keyed) and workers <= LOOKING:
            partitions = workers
            many += f", {partitions} partitions"
        else:
            partitions = min(_PARTITIONS * workers, _MOST_PARTITIONS)
            many += ", partitions by skew"
    if wanted == "ordered":
        why = f"SET runtime = 'ordered': {many}"
    elif against := _against(plans, found, requested, workers, cores):
        return RuntimeChoice("depth_first", against, text_threads=requested or cores)
    else:
        why = f"{many}: {_about(found)}, {found.row / found.among(workers):.1f} times as fast"
    how = _scheduler(
        settings, workers, splits=any(splits(n, k, partitions, split) for k, n in enumerate(nodes))
    )
    return RuntimeChoice("ordered", why, workers, partitions, split, how, text_threads=workers)


def splits(node: Physical, number: int, partitions: int, split: frozenset[int] | None) -> bool:
    """Whether an operator runs in ``partitions``: it has a PARTITION BY, or its ``number`` is one
    of ``split`` (None: it is one of all that can be split)."""
    if not node.can_split:
        return False
    chosen = bool(partitions) and (split is None or number in split)
    return chosen or node.partitioning is not None


def _scheduler(settings: Mapping[str, Any], workers: int, *, splits: bool) -> str:
    """The workers' scheduling policy, time slices, worklists and reorder buffers, in words."""
    policy, slice_us = str(settings["scheduler"]), int(settings["slice_us"])
    if policy == "lp":
        policy = f"lp from {_inputs(settings['lp_threshold'])} on"
    elif policy == "qst":
        policy = f"qst with a capacity of {int(settings['qst_capacity']):,}"
    elif policy != "et":
        window = int(settings["ct_window_us"]) or WINDOW_SLICES * slice_us
        policy += f" over windows of {_time(window)}"
    requested = int(settings["reorder_buffer"])
    buffers = _inputs(power_of_two(requested) if requested else depth(workers))
    reorder = str(settings["reorder"]).replace("_", "-")
    worklists = f"{settings['worklist']} worklists; " if splits else ""
    slices = f"slices of {_time(slice_us)}"
    return f"{policy}, {slices}; {worklists}{reorder} reorder buffers of {buffers}"


def depth(workers: int) -> int:
    """Limit on the inputs of an operator that are taken before the first of them has left, on the
    morsels that wait at a port, and on the morsels of an input. A low limit keeps them in the cache
    (65 -> 9 ns a row)."""
    return 1 << (2 * workers).bit_length()


def power_of_two(least: int) -> int:
    """The smallest power of two that is at least ``least``."""
    return 1 << (least - 1).bit_length()


def _inputs(number: int) -> str:
    return f"{number:,} input{'' if number == 1 else 's'}"


def _time(microseconds: int) -> str:
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if microseconds % size == 0 and microseconds:
            return f"{microseconds // size:,} {unit}"
    return f"{microseconds:,} µs"


def _against(
    roots: Sequence[Physical], found: Cost, requested: int, workers: int, cores: int
) -> str | None:
    """The reason against several workers; None if there is none. Reasons that depend on the machine
    come last. If a setting ``requested`` for workers, the number of rows does not count."""
    if requested == 1:
        return "SET workers = 1"
    about = _about(found)
    if found.row < LIGHT:
        return f"{about}: under {LIGHT}"
    if found.row < FASTER * found.among(_ALL):
        return f"{about}, which workers would not take {FASTER} times as fast"
    if _in_several_ways(roots):
        return f"{about}, but some part of the plan is read by several others"
    if not requested and (short := _short(roots, found, found.row - found.among(_ALL))):
        return short
    if not requested and cores == 1:
        return f"{about}, and one core"
    if found.row < FASTER * found.among(requested or cores):
        return f"{about}, which {requested or cores} workers would not take {FASTER} times as fast"
    return None if requested else _short(roots, found, found.row - found.among(workers))


def _short(roots: Sequence[Physical], found: Cost, spared: float) -> str | None:
    """The reason why too few rows are known to come, if workers spare ``spared`` ns per row."""
    about = _about(found)
    if live(*roots):
        return f"{about}, without an end: under {HEAVY}" if found.row < HEAVY else None
    if found.rows is None:
        return f"{about}, of how many rows is not known"
    soon = found.rows * spared < 1e9 * SAVED
    return f"{about}, {found.rows_text}: soon done" if soon else None


def _about(found: Cost) -> str:
    return f"about {float(f'{found.row:.2g}'):,.0f} ns a row"


def of_many_rows(plan: Physical, found: Cost, settings: Mapping[str, Any], cores: int) -> float:
    """Predicted nanoseconds per row under the runtime auto, if many rows come."""
    requested = int(settings["workers"])
    workers = requested or _workers(found, cores)
    alone = _against([plan], replace(found, rows=_ALL * _ALL), requested, workers, cores)
    return found.among(workers) if alone is None else found.row


def _workers(found: Cost, cores: int) -> int:
    """The smallest worker count whose predicted time is within 5% of the best."""
    best = min(found.among(w) for w in range(1, cores + 1))
    return next(w for w in range(1, cores + 1) if found.among(w) <= _GAIN * best)


def _in_several_ways(roots: Sequence[Physical]) -> bool:
    """Whether several nodes read some node that is not a source: not every order of reading can be
    kept then (``executor.runtimes.paths``)."""
    nodes = NodeNumbers(*roots)
    readers = Counter(nodes[root] for root in roots)
    for node in nodes:
        readers.update(nodes[c] for c in node.inputs if not isinstance(c, SourceExec))
    return max(readers.values()) > 1
