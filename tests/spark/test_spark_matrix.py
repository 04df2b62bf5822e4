"""Every feature of Spark in the matrix gives the right result here, or is clearly refused."""

from __future__ import annotations

from typing import Any

import pytest

import cql
from tests.support import spark_matrix as matrix

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_every_feature_is_right_or_refused(spark: Any, rewrite: bool) -> None:
    session = cql.connect(spark)
    session.on_notice = lambda text: None
    faults: list[str] = []
    features: dict[str, list[tuple[str, str, str]]] = {}
    for section, listed in matrix.SECTIONS.items():
        for feature in listed:
            read, written, wrong = matrix.tried(spark, session, feature)
            faults += wrong
            features.setdefault(section, []).append((feature.title, read, written))
    spark.sql(f"CREATE TABLE {matrix.OURS} (k INT, x STRING) USING parquet")
    statements = [(text.format(t="t"), matrix.stated(session, text)) for text in matrix.STATEMENTS]
    matrix.clean(spark)
    assert not faults, "\n".join(faults)
    text = matrix.document(features, statements)
    if rewrite:
        matrix.DOCUMENT.write_text(text, "utf-8")
    assert matrix.DOCUMENT.read_text("utf-8") == text
