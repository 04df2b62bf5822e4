"""The query files: their headers are complete, their statements parse and print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cql.dialect import nodes, parse, parse_one, to_sql
from tests.support import dialect_corpus
from tests.support.query_files import header

FILES = dialect_corpus.query_files()


def test_there_are_query_files() -> None:
    names = {path.stem for path in FILES}
    assert {f"ooo_q{i}" for i in range(1, 10)} <= names
    assert "inorder_window" in names


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_query_file(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head = header(text)
    keys = [key for key, _ in head]
    assert head[0][1].endswith(".")
    assert keys.count("source") == 1
    (expectation,) = [value for key, value in head if key == "expect"]
    assert re.fullmatch(r"runs|refused: .+", expectation)
    for key, value in head:
        if key == "streams":
            for declared in parse(value):
                assert isinstance(declared, nodes.CreateStream | nodes.CreateConstant)
                assert parse_one(to_sql(declared)) == declared
    before, query = dialect_corpus.script(text)
    for tree in (*before, query):
        assert parse_one(to_sql(tree)) == tree
