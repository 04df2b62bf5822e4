"""Batches of the format ``cql`` as a stream: over any cutting of the files, their rows are those of
a run over all files, but for the windows that are open."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import pytest

from cql.errors import CatalogError, NotSupportedError
from cql.session.session import Session
from tests.support.spark_streams import Batches, closed_rows, registration, watermark
from tests.support.view_tables import GROWING, Base, rows_of

MINUTE = dt.timedelta(minutes=1)
#: Queries by time, each with the end of a row's window, or the time at which its pairs are final.
BY_TIME: dict[str, tuple[str, Callable[[dict[str, Any]], dt.datetime]]] = {
    **{
        name: (GROWING[name], lambda row: row["window_end"])
        for name in GROWING
        if "window_end" in GROWING[name]
    },
    "sliding": (GROWING["sliding"], lambda row: row["window_start"] + 5 * MINUTE),
    # Partners come up to 5 seconds behind a row.
    "band join": (GROWING["band join"], lambda row: row["ts"] + dt.timedelta(microseconds=5000001)),
    "union": (
        "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM (SELECT ts, k, v FROM {s} UNION ALL"
        " SELECT ts, v AS k, k AS v FROM {r}) [RANGE 1 MINUTE SLIDE 30 SECONDS] GROUP BY k",
        lambda row: row["window_end"],
    ),
    "two streams": (
        "SELECT a.ts, a.v, b.v AS w FROM {s} AS a JOIN {r} AS b ON a.k = b.k"
        " AND b.ts BETWEEN a.ts - INTERVAL 3 SECONDS AND a.ts + INTERVAL 2 SECONDS",
        lambda row: row["ts"] + dt.timedelta(microseconds=2000001),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", BY_TIME)
def test_by_time(
    session: Session,
    base: Callable[..., Base],
    name: str,
    full: bool,
) -> None:
    query, closes = BY_TIME[name]
    bases = [base(), base()][: 1 + ("{r}" in query)]
    text = query.format(s=bases[0].stream, r=bases[-1].stream)
    made = Batches(registration(session), text)
    assert made.run() == 0
    rng = random.Random(name)
    for number in range(12 if full else 5):
        for one in bases:
            behind = rng.choice([4, 8, 90])
            one.add(one.rows(rng.choice([1, 40, 200]), behind=behind), files=rng.choice([1, 2]))
        assert made.run(rng.choice([None, 1, 2])) > 0
        if number == 2:
            made.restart()
    assert sorted(map(repr, made.rows)) == closed_rows(session, text, bases, closes)
    made.restart()
    assert made.replayed() == made.rows


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", ["tumbling", "sliding", "cumulating", "windows of windows", "band join"]
)
def test_late_rows_are_counted_once(
    session: Session,
    base: Callable[..., Base],
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    """The logs of all batches have the counts of a run over all files, also of rows that come late
    for windows of batches before. The rows of the last files close the ranges of all late rows."""
    one = base(clause="MAX ADVANCE 30 MINUTES")
    text = one.text(GROWING[name])
    made = Batches(registration(session), text)
    for number in range(4):
        one.add(one.rows(150, behind=(4, 90)[number % 2], ahead=0.01), files=2)
        made.run((None, 1)[number % 2])
    one.add(one.rows(300, behind=0))
    made.run(None)
    query = session.sql(text)
    query.to_arrow()
    kinds = {"pairs": "pairs", "left out": "late"}
    expected = {(e["kind"], e["place"]): e["count"] for e in query.late().to_pylist()}
    found = dict.fromkeys(expected, 0)
    for record in caplog.records:
        place, count, what = record.args
        kind = next(k for k, word in kinds.items() if what.startswith(word))
        found[kind, place] += int(count.replace(",", ""))
    held = {key: count for key, count in expected.items() if key[0] in kinds}
    assert sum(held.values()) > 10
    assert {key: found[key] for key in held} == held


def test_by_rows(session: Session, base: Callable[..., Base]) -> None:
    """Files may come between others. An offset has 16 letters for each of them."""
    one = base()
    text = one.text(GROWING["filter"])
    made = Batches(registration(session), text)
    for name in ("k", "z", "a", "m"):
        one.add(one.rows(60), files=3, name=name)
        assert made.run(2) == 2
        assert sorted(map(repr, made.rows)) == rows_of(session, text)
        made.restart()
    assert made.replayed() == made.rows
    (read,) = made.offsets[-1].values()
    assert (read["files"], len(read["hashes"])) == (12, 12 * 16)


def test_files_between_others(session: Session, base: Callable[..., Base]) -> None:
    """A query to which the order matters refuses them, or takes them as they come."""
    one, clear = base(), base()
    text = one.text(GROWING["rows in time"])
    registered = registration(session)
    made = Batches(registered, text)
    parts = [one.rows(100, behind=30) for _ in range(4)]
    for part, name in zip(parts[:2], ("k", "m"), strict=True):
        one.add(part, name=name)
        made.run()
    (read,) = made.offsets[-1].values()
    assert len(str(read)) < 300
    between = one.add(parts[2], name="l")
    for _ in range(2):
        with pytest.raises(
            CatalogError, match=f"the new file {between} of .* is read before older"
        ):
            made.run()
        made.restart()
    assert made.replayed() == made.rows
    other = Batches(registered, text, arrival=True)
    other.offsets, other.rows = made.offsets, made.rows
    assert other.run() == 1
    one.add(parts[3], name="a")
    assert other.run() == 1
    other.restart()
    assert other.replayed() == other.rows
    for part in parts:
        clear.add(part)
    assert sorted(map(repr, other.rows)) == rows_of(session, clear.text(GROWING["rows in time"]))


@pytest.mark.parametrize("arrival", [False, True])
def test_files_that_are_gone(session: Session, base: Callable[..., Base], arrival: bool) -> None:
    """The message names the file, if this process has seen it or the offset names it."""
    one = base()
    text = one.text(GROWING["tumbling"])
    made = Batches(registration(session), text, arrival=arrival)
    paths = [one.add(one.rows(100)) for _ in range(3)]
    made.run()
    kept = [path.read_bytes() for path in paths]
    hint = "put the file back as it was, or start the stream with another checkpointLocation"

    def fails(message: str) -> None:
        with pytest.raises(CatalogError, match=message) as caught:
            made.run()
        assert hint in str(caught.value)

    paths[1].unlink()
    fails(f"file {paths[1]} of .* was removed, and the stream has read it")
    made.restart()
    fails("a file of .* was removed" if arrival else "1 of the 3 files of .* were removed")
    paths[1].write_bytes(kept[1])
    fails(f"file {paths[1]} of .* was written again")
    one.clear()
    for path, data in zip(paths[:2], kept, strict=False):
        path.write_bytes(data)
    made.restart()
    fails("written again" if arrival else f"file {paths[2]} of .* was removed")


def test_offsets_of_other_streams(session: Session, base: Callable[..., Base]) -> None:
    one, other = base(), base()
    one.add(one.rows(10))
    registered = registration(session)
    made = Batches(registered, one.text(GROWING["filter"]))
    made.run()
    (key,) = made.offsets[-1]
    for offset in ({key: {}}, {key: {"files": 1, "hashes": "AAAA"}}, {key: 7}):
        with pytest.raises(CatalogError, match=r"has an offset of table .* that cannot be read"):
            made.stream.latest(offset, None)
    second = Batches(registered, other.text(GROWING["filter"]))
    with pytest.raises(CatalogError, match="the checkpoint is one of another stream: it has read"):
        second.stream.latest(made.offsets[-1], None)


#: Texts that are no streams, with a part of the message and the words above the caret.
REFUSED = {
    "SELECT k, count(*) AS n FROM {s} [SESSION 30 SECONDS] GROUP BY k": (
        "sessions have no bounds that are known beforehand",
        "[SESSION",
    ),
    "SELECT k, count(*) AS n FROM {s} GROUP BY k": (
        "an aggregate without a window needs",
        "SELECT",
    ),
    "SELECT k, v FROM {s} ORDER BY v LIMIT 3": ("ORDER BY needs all rows", "v LIMIT"),
    "SELECT a.k, b.v FROM {s} AS a JOIN {t} AS b ON a.k = b.v": ("rows are looked up in", "{t}"),
    "SELECT k, count(*) AS n FROM {s} [RANGE 1 MINUTE] GROUP BY k EMIT CHANGES": (
        "the result is a relation that changes",
        "EMIT",
    ),
    "SELECT a.v FROM {s} AS a JOIN {s} WATERMARK ts DELAY OF INTERVAL '9' SECONDS AS b ON a.k = b.k"
    " AND b.ts BETWEEN a.ts - INTERVAL 3 SECONDS AND a.ts + INTERVAL 2 SECONDS": (
        "with two watermarks",
        "{s} WATERMARK",
    ),
    "SELECT 7 AS a": ("the query reads no table", None),
    "SELECT n FROM default.v": ("it is a materialized view", "default.v"),
    "SELECT k FROM {t}_orc": ("it is no table of Parquet files", "{t}_orc"),
}


def test_what_is_refused(spark: Any, session: Session, base: Callable[..., Base]) -> None:
    one = base()
    one.add(one.rows(10))
    session.sql(one.text("CREATE MATERIALIZED VIEW default.v AS SELECT count(*) AS n FROM {t}"))
    spark.sql(f"CREATE TABLE {one.table}_orc (k bigint) USING orc")
    registered = registration(session)
    for query, (message, word) in REFUSED.items():
        with pytest.raises(NotSupportedError) as caught:
            Batches(registered, one.text(query))
        lines = str(caught.value).split("\n")
        assert "spark.readStream.format('cql')" in lines[0]
        assert message in lines[0]
        if word is not None:
            assert lines[1][lines[2].index("^") :].startswith(one.text(word)), lines
    spark.sql(f"DROP TABLE {one.table}_orc")


def test_cumulating_windows_of_values(session: Session, base: Callable[..., Base]) -> None:
    """Windows that begin together leave one by one, also with the values of a median."""
    one = base()
    text = one.text(
        "SELECT k, median(v) AS m, string_agg(w, ',') AS ws, window_end FROM {s}"
        " [RANGE 4 MINUTES CUMULATE 1 MINUTE OFFSET 13 SECONDS] GROUP BY k"
    )
    made = Batches(registration(session), text)
    ends = []
    for number in range(4):
        one.add(one.rows(70, behind=(4, 90)[number % 2]), files=2)
        made.run(1)
        ends.append(max(row["window_end"] for row in made.rows))
    assert watermark([one]) - ends[-1] < MINUTE
    assert sorted(set(ends)) == ends
    expected = closed_rows(session, text, [one], lambda row: row["window_end"])
    assert sorted(map(repr, made.rows)) == expected
