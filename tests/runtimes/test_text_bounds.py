"""The bound on a query's dictionary over ever-new texts (docs/operations/memory.md): the texts that
its state keeps, as much again, and those of the blocks that are read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from cql.catalog import blocks
from cql.executor.morsel.partitioned_watermark import Values
from cql.executor.operators.contract import Operator
from cql.executor.operators.workspace import Workspace
from cql.executor.run import reading
from cql.executor.strings import compaction
from cql.executor.strings.dictionary import Dictionary
from cql.session.session import Session

ROWS, BLOCK = 4_000, 100
#: Bytes; less than the texts of a block.
LEAST = 4_000
#: Bytes of a line, and of a line and a text that is computed of it, in the dictionary.
LINE = 120
PAIR = 2 * (LINE + 20) + Dictionary.nbytes_of(2)
#: Rows that windows and sessions hold: two rows in each unit of time, for the time of a window and
#: of the slack.
HELD = 2 * (20 + 10)
NUMBER = "regexp_extract(line, '/([0-9]+[?]user=u[0-9]+)', 1)"
RUNTIMES: dict[str, dict[str, Any]] = {
    "depth_first": {"runtime": "depth_first"},
    "ordered": {"runtime": "ordered", "workers": 2},
}
#: Rows of blocks whose texts are encoded when texts are forgotten: the latest block, and one that
#: workers read ahead.
READ = {"depth_first": BLOCK, "ordered": 2 * BLOCK}
#: Queries whose texts need no code.
CARRIED = {
    "upper": "SELECT t, upper(line) AS u FROM a",
    "concat": "SELECT t, concat(line, ' ', k) AS u FROM a",
    "regexp_extract": f"SELECT t, {NUMBER} AS u FROM a",
    "like": "SELECT t, line AS u FROM a WHERE line LIKE '%HTTP%'",
}
#: Queries whose texts get codes; each gives as many rows as there are lines.
CODED = {
    "windows by upper": """SELECT upper(line) AS u, count(*) AS n, window_end
        FROM a [RANGE 20 SLIDE 20] GROUP BY upper(line)""",
    "windows by regexp_extract": f"""SELECT {NUMBER} AS u, max(line) AS high, window_end
        FROM a [RANGE 20 SLIDE 20] GROUP BY {NUMBER}""",
    "windows by split_part": """SELECT split_part(line, ' ', 2) AS u, window_end
        FROM a [RANGE 20 SLIDE 20] GROUP BY split_part(line, ' ', 2)""",
    "sessions by concat": """SELECT concat(line, k) AS u, count(*) AS n, window_end
        FROM a [SESSION 9, WA t] GROUP BY concat(line, k)""",
    "sessions by regexp_extract": f"""SELECT {NUMBER} AS u, last(line) AS l, window_end
        FROM a [SESSION 9, WA t] GROUP BY {NUMBER}""",
    "functions of results": """SELECT upper(high) AS u, window_end FROM (
            SELECT line, max(line) AS high, window_end FROM a [RANGE 20 SLIDE 20] GROUP BY line)""",
    "comparisons": "SELECT upper(line) AS u FROM a WHERE upper(line) < concat(line, 'x')",
}


@pytest.fixture
def session(seed: int, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session with the stream ``a`` of lines that all differ, out of order by up to 4."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(compaction, "LEAST", LEAST)
    r = random.Random(seed)
    lines = [f"GET /item/{n}?user=u{n} HTTP/1.1 ".ljust(LINE, "x") for n in range(ROWS)]
    table = pa.table(
        {
            "t": [n // 2 + r.randrange(5) for n in range(ROWS)],
            "k": [f"k{n % 7}" for n in range(ROWS)],
            "line": lines,
        }
    )
    session = Session(False)
    session.create_stream("a", table, ordered_by="t", slack=4)
    return session


class Watched:
    """The dictionary of a run: ``most`` codes, ``content`` bytes and bytes of its arrays, the most
    before a block; ``kept`` the most bytes after a compaction; ``beyond`` the most bytes over what
    makes a compaction due; and the number of ``compactions``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self.content = self.arrays = self.kept = self.compactions = 0
        self.beyond = -LEAST
        monkeypatch.setattr(reading, "is_due", self._is_due)
        monkeypatch.setattr(reading, "compact", self._compact)

    def _is_due(self, workspace: Workspace) -> bool:
        dictionary = workspace.dictionary
        self.most = max(self.most, len(dictionary))
        self.content = max(self.content, dictionary.content)
        self.arrays = max(self.arrays, dictionary.nbytes)
        due = dictionary.kept + max(dictionary.kept, LEAST)
        self.beyond = max(self.beyond, dictionary.content - due)
        return compaction.is_due(workspace)

    def _compact(
        self, workspace: Workspace, operators: Sequence[Operator], values: Sequence[Values]
    ) -> None:
        compaction.compact(workspace, operators, values)
        self.kept = max(self.kept, workspace.dictionary.kept)
        self.compactions += 1


def run(text: str, session: Session, runtime: str) -> None:
    """The query gives each line once, whatever it makes of it."""
    with session:
        for name, value in RUNTIMES[runtime].items():
            session.set(name, value)
        given = session.sql(text).to_arrow()
    assert given.num_rows == len(set(given["u"].to_pylist())) == ROWS


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("query", CARRIED)
def test_texts_that_only_pass_are_in_no_dictionary(
    session: Session, monkeypatch: pytest.MonkeyPatch, query: str, runtime: str
) -> None:
    watched = Watched(monkeypatch)
    run(CARRIED[query], session, runtime)
    assert watched.most <= 1 + 7  # NULL, and the values of k at most


@pytest.mark.sampled
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("query", CODED)
def test_the_dictionary_is_bounded(
    session: Session, monkeypatch: pytest.MonkeyPatch, query: str, runtime: str
) -> None:
    watched = Watched(monkeypatch)
    run(CODED[query], session, runtime)
    assert watched.compactions > 5
    assert watched.kept <= (HELD + READ[runtime] - BLOCK) * PAIR
    assert watched.beyond <= READ[runtime] * PAIR
    assert watched.arrays <= 4 * watched.content
    assert 3 * watched.content < ROWS * PAIR
