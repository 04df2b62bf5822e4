"""The README is true: its snippets run and print what it says, its lists are those of the code."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import readme_tools
from plans import goldens
from readme_tools import README, Block, Runner, comparable

from cql.dialect import ddl
from cql.errors import NotSupportedError

TEXT = README.read_text("utf-8")
BLOCKS = readme_tools.blocks(TEXT)
UPDATE = "python tests/readme_tools.py --spark writes the README anew; read what it changed"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def plans() -> list[str]:
    """Each query of the blocks in ``toured``, with its plan."""
    return []


@pytest.fixture(scope="module")
def toured(folder: Path, plans: list[str]) -> Iterator[tuple[Runner, list[tuple[Block, str]]]]:
    """All blocks but those of Spark have run, in order, in one namespace."""
    runner = Runner()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        goldens.record(patch, plans)
        shown = [(block, runner.run(block)) for block in BLOCKS if not block.spark]
        yield runner, shown
    runner.names["session"].close()


def agree(block: Block, shown: str) -> None:
    if block.output is not None:
        assert comparable(shown) == comparable(block.output), f"line {block.line}; {UPDATE}"
    else:
        assert "error:" not in shown, f"line {block.line}: {shown}"
        assert "Traceback" not in shown, f"line {block.line}: {shown}"


def test_there_is_something_of_each_kind() -> None:
    kinds = {(block.kind, block.spark) for block in BLOCKS}
    assert kinds == {
        ("python", False),
        ("python", True),
        ("sql", False),
        ("console", False),
        ("sh", False),
        ("sh", True),
    }


def test_every_fence_names_its_language() -> None:
    opened = [info for _, _, info in readme_tools._fences(TEXT.split("\n"))]
    assert {info.partition(" ")[0] for info in opened} <= {*readme_tools.RUNS, "text"}


def test_snippets(toured: tuple[Runner, list[tuple[Block, str]]]) -> None:
    _, shown = toured
    for block, output in shown:
        agree(block, output)


@pytest.mark.usefixtures("toured")
def test_plans(plans: list[str], rewrite: bool) -> None:
    goldens.agree("readme.txt", "\n".join(plans), rewrite=rewrite)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_snippets(
    toured: tuple[Runner, list[tuple[Block, str]]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import cql

    runner = Runner()
    runner.names |= toured[0].names
    monkeypatch.chdir(folder)
    # The session of the snippet is "the last one" on Spark; the other tests go on with it.
    monkeypatch.setattr("cql.catalog.spark_session.stop", lambda: None)
    try:
        for block in BLOCKS:
            if block.spark:
                agree(block, runner.run(block))
    finally:
        with cql.connect() as session:
            for stream in ("arrivals", "departures", "observations"):
                session.sql(f"DROP STREAM IF EXISTS default.{stream}")
            for table in ("clicks", "views", "flights", "weather", "delays", "storms"):
                session.sql(f"DROP TABLE IF EXISTS default.{table}")
        runner.names["session"].close()


@pytest.mark.parametrize("name", readme_tools.MADE)
def test_lists_made_from_the_code(name: str) -> None:
    assert readme_tools.part(TEXT, name) == readme_tools.MADE[name](), UPDATE


@pytest.mark.parametrize("example", readme_tools.examples(TEXT, "refused"))
def test_what_the_readme_says_is_refused_is(
    example: str, toured: tuple[Runner, list[tuple[Block, str]]]
) -> None:
    session = toured[0].names["session"]
    with pytest.raises(NotSupportedError) as refusal:
        session.sql(example)
    assert refusal.value.position is not None


@pytest.mark.parametrize("clauses", readme_tools.examples(TEXT, "refused of a stream"))
def test_a_stream_that_asks_for_more_is_refused_where_it_is_read(
    clauses: str, toured: tuple[Runner, list[tuple[Block, str]]]
) -> None:
    session = toured[0].names["session"]
    session.sql(f"CREATE OR REPLACE STREAM declared USING rate ORDERED BY ts {clauses}")
    query = "SELECT count(*) FROM declared [RANGE 1 SECOND SLIDE 1 SECOND]"
    session.sql(f"EXPLAIN LOGICAL {query}")
    with pytest.raises(NotSupportedError) as refusal:
        session.sql(query)
    assert refusal.value.message.startswith(clauses.split(" (")[0].split()[0])
    assert "of stream declared" in refusal.value.message
    assert refusal.value.column == query.index("declared") + 1


@pytest.mark.parametrize(
    "clauses",
    [
        "QUEUE APPEND",
        "WINDOWS EAGER",
        "IDLE AFTER 5 SECONDS HEARTBEAT EVERY 1 SECOND SLACK 2 SECONDS",
    ],
)
def test_a_clause_that_cannot_change_a_result_is_not_refused(
    clauses: str, toured: tuple[Runner, list[tuple[Block, str]]]
) -> None:
    session = toured[0].names["session"]
    session.register_table("plain", toured[0].names["clicks"], replace=True)
    session.sql(f"CREATE OR REPLACE STREAM declared FROM TABLE plain ORDERED BY ts {clauses}")
    assert session.sql("SELECT page FROM declared").to_arrow().num_rows == 7


def test_the_table_of_statements_is_whole() -> None:
    table = TEXT[TEXT.index("### Statements") : TEXT.index("### Declaring a stream")]
    told = set(re.findall(r"`([A-Z]+)\b", table))
    known = set(ddl.STATEMENTS) - {"WITH", "VALUES", "ISTREAM", "DSTREAM", "RSTREAM"}
    assert told == known


def setup_commands() -> list[str]:
    """As ``.ci/run`` finds them."""
    found = subprocess.run(
        r"sed -n '/<!-- setup -->/,/<!-- end setup -->/p' README.md | grep -E '^ {4}'",
        shell=True,
        cwd=README.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.removeprefix("    ") for line in found.stdout.splitlines()]


def test_the_setup_commands() -> None:
    project: Any = tomllib.loads((README.parent / "pyproject.toml").read_text("utf-8"))["project"]
    first, second = setup_commands()
    assert first.startswith("python3 -m venv .venv && .venv/bin/pip install -q -e '.[demo]' && ")
    assert first.endswith(".venv/bin/cql demo")
    install = ".venv/bin/pip install -q -e '.[test]' && "
    assert second == f"{install}.venv/bin/pytest -q -n 2 --dist loadgroup"
    extras = set(re.findall(r"\.\[(\w+)\]", f"{first} {second}"))
    assert extras <= set(project["optional-dependencies"])
    assert project["readme"] == README.name


def test_ci_takes_its_commands_from_here() -> None:
    script = (README.parent / ".ci" / "run").read_text("utf-8")
    assert "<!-- setup -->" in script
    assert "grep -E '^ {4}'" in script


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            heads = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in heads}
            assert target[1:] in anchors, target
        else:
            assert (README.parent / target).exists(), target
