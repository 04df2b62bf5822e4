"""Random plans under the ordered runtime, whose threads give their cores away at random points,
whose buffers have a slot or a few, and of whose workers one stalls: each gives what depth first
gives, row for row, and its ledgers count the same.

::

    python -m tests.support.fuzz.stress_ordered --plans 10000 --jobs 2 --kernels FOLDER
    python -m tests.support.fuzz.stress_ordered --plan join/3:17        # one again

Shapes and data are those of ``count_cases``, every other join ``forked``; each of them is run under
``TOGETHER`` settings. A process runs some plans and ends, as machine code is only given back then;
without ``--kernels`` each compiles its own.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from threading import Timer
from typing import Any
from unittest import mock

import pyarrow as pa

from cql.errors import CqlError
from cql.executor.codegen import module
from cql.executor.kernels.ordered.tables import CALM, STALLING, YIELDING
from cql.executor.runtimes.ordered import Ordered
from cql.executor.runtimes.tables import Tasks
from tests.support.fuzz import random_cases
from tests.support.fuzz.count_cases import (
    data_set,
    is_sure,
    join_names,
    names,
    profiles,
    sure_columns,
)
from tests.support.fuzz.known_nulls import known_nulls
from tests.support.fuzz.random_cases import MORSELS, Case, run_engine

TOGETHER = 5
#: Plans per process.
PLANS = 100
WORKERS, PARTITIONS, SLOTS = (1, 2, 3, 4, 8), (0, 2, 3, 8, 64), (0, 0, 1, 2, 4)
#: Seconds until a run counts as hanging.
HANGS = 120
#: STALLING is rare, because a run with stalls is slow.
STRESS = (*(YIELDING,) * 15, STALLING)
_SIDES = re.compile(r"\bFROM (\w) l(,| [A-Z ]*JOIN) (\w) r\b")


def drawn(rng: random.Random) -> dict[str, Any]:
    """Settings of the ordered runtime."""
    return {
        "runtime": "ordered",
        "workers": rng.choice(WORKERS),
        "partitions": rng.choice(PARTITIONS),
        "scheduler": rng.choice(("ct", "lp", "et", "qst", "ct_printed")),
        "worklist": rng.choice(("hybrid", "partitioned", "shared")),
        "reorder": rng.choice(("non_blocking", "lock_based")),
    }


def forked(base: Case) -> Case:
    """The case with one union of two parts of a stream as both sides of its join, so that morsels
    of the stream reach the join on two paths, in turns. Other cases stay as they are."""
    sides = _SIDES.search(base.shape.text)
    if sides is None or "greatest" in base.shape.text:  # which has no watermark over the union
        return base
    left, word, _ = sides.groups()
    union = (
        f"WITH u AS (SELECT * FROM {left} WHERE q > 1 UNION ALL "
        f"SELECT * FROM {left} WHERE q <= 1 OR q IS NULL)"
    )
    text = f"{union} {_SIDES.sub(f'FROM u l{word} u r', base.shape.text)}"
    return replace(base, shape=replace(base.shape, text=text))


def outcome(case: Case) -> tuple[Any, ...]:
    """The rows in their order and the counts of late and bad rows, or the name of the error."""
    try:
        return run_engine(case)
    except CqlError as error:
        return (type(error).__name__,)


def shown(outcome: tuple[Any, ...]) -> list[str]:
    """The outcome as texts, in which NaN is equal to itself. Times are numbers, because Python has
    no dates of the year 10,000."""
    return [repr(numbers(part)) if isinstance(part, pa.Table) else repr(part) for part in outcome]


def numbers(table: pa.Table) -> list[dict[str, Any]]:
    """The rows, with times as numbers."""
    fields = [pa.field(f.name, plain(f.type)) for f in table.schema]
    return table.cast(pa.schema(fields)).to_pylist()


def plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.list_(plain(kind.value_type)) if pa.types.is_list(kind) else kind


def hung(what: str) -> None:
    """Ends the process, and the test with it."""
    print("HANGS", what, flush=True)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(2)


def compared(name: str, seed: int, tell: Callable[[str], None]) -> Counter[str]:
    """Compares one plan under ``TOGETHER`` settings of the ordered runtime with depth first; passes
    each difference to ``tell``."""
    counts: Counter[str] = Counter()
    rng = random.Random(f"stress {name} {seed}")
    base = data_set(name, seed)
    if rng.random() < 0.5:
        base = forked(base)
    own = rng.choice(profiles(name, base.shape))
    if (morsel := rng.choice(MORSELS)) is not None:
        own = {**own, "morsel_rows": morsel}
    with known_nulls(sure_columns(name) if is_sure(seed) else frozenset()):
        wanted = outcome(replace(base, settings={**own, "runtime": "depth_first"}))
        for _ in range(TOGETHER):
            settings = {**own, **drawn(rng)}
            Ordered.stress, Tasks.slots = rng.choice(STRESS), rng.choice(SLOTS)
            what = f"{name}:{seed} {settings} stress {Ordered.stress} slots {Tasks.slots}"
            watch = Timer(HANGS, hung, [what])
            watch.start()
            found = outcome(replace(base, settings=settings))
            watch.cancel()
            same = shown(found) == shown(wanted)
            counts["equal" if same else "DIFFERENT"] += 1
            counts["failed as they must"] += same and len(found) == 1
            counts["forked"] += base.shape.text.startswith("WITH u AS")
            if not same:
                tell(what)
    Ordered.stress, Tasks.slots = CALM, 0
    return counts


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plan", help="SHAPE:SEED")
    parser.add_argument("--kernels", type=Path, help="keeps the machine code, all of it")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    given = parser.parse_args(args)
    if given.plan:
        begin(given.kernels)
        name, seed = given.plan.split(":")
        print(dict(compared(name, int(seed), print)))
        return 0
    counts: Counter[str] = Counter()
    started = time.monotonic()
    with ProcessPoolExecutor(
        given.jobs, get_context("spawn"), begin, (given.kernels,), max_tasks_per_child=1
    ) as processes:
        parts = [range(k, min(k + PLANS, given.plans)) for k in range(0, given.plans, PLANS)]
        runs = [processes.submit(several, part, given.seed) for part in parts]
        done = 0
        for run in as_completed(runs):
            found, told = run.result()
            done, counts = done + PLANS, counts + found
            print(*told, sep="\n", end="\n" if told else "")
            print(
                min(done, given.plans),
                dict(counts),
                f"{time.monotonic() - started:.0f} s",
                flush=True,
            )
    print(given.plans, "plans", dict(counts))
    return 1 if counts["DIFFERENT"] else 0


def begin(kernels: Path | None) -> None:
    """Initializes a process: its fault handler and its kernel cache."""
    faulthandler.enable()
    if kernels is not None:
        mock.patch.object(module, "prune", return_value=None).start()
        random_cases.EVERYWHERE["kernel_cache"] = str(kernels)


def several(plans: range, seed: int) -> tuple[Counter[str], list[str]]:
    """Compares the plans of these numbers. Returns the counts and the differences."""
    shapes = [*names(), *join_names()]
    random.Random(seed).shuffle(shapes)
    counts: Counter[str] = Counter()
    told: list[str] = []
    for k in plans:
        # four data sets of a shape follow each other, because each shape compiles its own kernels
        turn, within = divmod(k, 4 * len(shapes))
        counts += compared(shapes[within // 4], seed + 4 * turn + within % 4, told.append)
    return counts, told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
