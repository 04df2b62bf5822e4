"""Functions over texts give Spark's values over random texts, NULLs and empty texts."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import cql

#: Characters of one to four bytes, with and without case, that combine, and spaces of other kinds.
_PIECES = (
    *"abcXYZ019 %_./=&?-",
    *"éÉßÿŸµσςΣǅ",
    *"漢字ｚＺ",
    *"😀🀄",
    "e\u0301",
    "\n",
    "\t",
    "user=",
    "aa",
)
#: Expressions that both understand: ``s`` and ``t`` are texts, ``n`` is a number.
EXPRESSIONS = (
    "upper(s)",
    "lower(s)",
    "initcap(s)",
    "length(s)",
    "octet_length(s)",
    "ascii(s)",
    "substring(s, n, 3)",
    "substring(s, 2)",
    "left(s, n)",
    "right(s, n)",
    "concat(s, '-', t)",
    "concat_ws('/', s, t, 'x')",
    "trim(s)",
    "ltrim(s)",
    "rtrim(s)",
    "trim(BOTH 'aé' FROM s)",
    "split_part(s, 'a', 2)",
    "split_part(s, ' ', -1)",
    "replace(s, 'a', '漢')",
    "replace(s, 'user=', '')",
    "replace(s, t, '_')",
    "translate(s, 'aé漢', 'x漢')",
    "locate('a', s)",
    "locate(t, s, 2)",
    "lpad(s, 7, 'é-')",
    "rpad(s, 7, 'é-')",
    "repeat(s, n)",
    "reverse(s)",
    "s LIKE '%a%'",
    "s LIKE 'a_%'",
    "s LIKE '_'",
    "s ILIKE '%É%'",
    "contains(s, t)",
    "startswith(s, t)",
    "endswith(s, 'a')",
    "s RLIKE '[0-9]+a'",
    "s RLIKE '^.[0-9]'",
    "regexp_extract(s, '([a-z]+)([0-9])', 1)",
    "regexp_extract(s, '([a-z]+)([0-9])', 2)",
    "regexp_extract(s, 'user=(.)', 0)",
    "regexp_replace(s, '[aé]+', '<$0>')",
    "hex(s)",
    "s = t",
    "s < t",
    "TRY_CAST(s AS INT)",
    "TRY_CAST(s AS DOUBLE)",
    "TRY_CAST(s AS BOOLEAN)",
    "TRY_CAST(d AS BIGINT)",
    "TRY_CAST(d AS DECIMAL(9, 2))",
    "TRY_CAST(d AS DOUBLE)",
    "CAST(TRY_CAST(d AS DATE) AS STRING)",
    "CAST(n AS STRING)",
)


def _texts(rng: random.Random, count: int) -> list[str | None]:
    def one() -> str | None:
        if rng.random() < 0.1:
            return None
        return "".join(rng.choices(_PIECES, k=rng.choice([0, 1, 2, 5, 12, 40])))

    return [one() for _ in range(count)]


def _digits(rng: random.Random, count: int) -> list[str]:
    pieces = (*"0123456789", "-", "+", ".", " ", "e", "12", "2024-02-29", "1e3", "000")
    return ["".join(rng.choices(pieces, k=rng.randrange(5))) for _ in range(count)]


@pytest.mark.spark
def test_random_texts(spark: Any, seed: int, full: bool) -> None:
    rng, count = random.Random(seed), 20_000 if full else 1_500
    table = pa.table(
        {
            "at": range(count),
            "s": pa.array(_texts(rng, count), pa.string()),
            "t": pa.array([t and t[:2] for t in _texts(rng, count)], pa.string()),
            "d": _digits(rng, count),
            "n": pa.array([rng.randrange(-3, 6) for _ in range(count)], pa.int32()),
        }
    )
    spark.createDataFrame(table).createOrReplaceTempView("random_texts")
    named = ", ".join(f"{text} AS c{k}" for k, text in enumerate(EXPRESSIONS))
    query = f"SELECT {named} FROM {{}}"
    theirs = spark.sql(query.format("random_texts ORDER BY at")).toArrow()
    with cql.connect(spark=False) as session:
        session.create_stream("random_texts", table, ordered_by="at")
        ours = session.sql(query.format("random_texts")).to_arrow()
    spark.catalog.dropTempView("random_texts")
    wrong = {}
    for k, text in enumerate(EXPRESSIONS):
        pairs = zip(ours.column(k).to_pylist(), theirs.column(k).to_pylist(), strict=True)
        found = [(i, a, b) for i, (a, b) in enumerate(pairs) if a != b and not (a != a and b != b)]
        if found:
            i, a, b = found[0]
            wrong[text] = [len(found), table.slice(i, 1).to_pylist()[0], a, b]
    assert wrong == {}
