"""The README and the pages of ``docs/`` are true: each snippet runs and prints the output shown,
and each list matches the code."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cql.errors
from cql.dialect import statements
from cql.errors import CqlError, NotSupportedError
from tests.support import docs_tools, goldens
from tests.support.docs_tools import README, ROOT, Block, Page, Runner, comparable

PAGES = docs_tools.pages()
UPDATE = "python -m tests.support.docs_tools --spark writes the pages anew; read what it changed"


def agree(page: Page, block: Block, shown: str) -> None:
    where = f"{page.name}, line {block.line}"
    if block.output is not None:
        assert comparable(shown) == comparable(block.output), f"{where}; {UPDATE}"
    else:
        assert "error:" not in shown, f"{where}: {shown}"
        assert "Traceback" not in shown, f"{where}: {shown}"


def test_there_is_something_of_each_kind() -> None:
    kinds = {(block.kind, block.spark) for page in PAGES for block in page.blocks}
    assert kinds >= {
        ("python", False),
        ("python", True),
        ("sql", False),
        ("console", False),
        ("sh", False),
        ("sh", True),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_fence_names_its_language(page: Page) -> None:
    opened = [info for _, _, info in docs_tools._fences(page.text.split("\n"))]
    assert {info.partition(" ")[0] for info in opened} <= {*docs_tools.RUNS, "text"}


def touring(*, spark: bool) -> list[Page]:
    return [page for page in PAGES if any(block.spark is spark for block in page.blocks)]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("page", touring(spark=False), ids=lambda p: p.name)
def test_snippets(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = Runner(page)
    plans: list[str] = []
    goldens.record(monkeypatch, plans)
    try:
        for block in page.blocks:
            if not block.spark:
                agree(page, block, runner.run(block))
    finally:
        runner.close()
    goldens.agree(golden(page), "\n".join(plans), rewrite=rewrite)


def golden(page: Page) -> Path:
    """The golden file with the plans of a page's queries, relative to ``tests/plans``."""
    return Path("docs") / Path(page.name).relative_to(
        "." if page.path == README else "docs"
    ).with_suffix(".txt")


def test_every_golden_has_its_page() -> None:
    held = {p.relative_to(goldens.FOLDER) for p in (goldens.FOLDER / "docs").rglob("*.txt")}
    assert held <= {golden(page) for page in touring(spark=False)}


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", touring(spark=True), ids=lambda p: p.name)
def test_spark_snippets(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The snippet's session is the last one on Spark, but the other tests still need Spark.
    monkeypatch.setattr("cql.catalog.spark.session.stop", lambda: None)
    runner = Runner(page)
    try:
        for block in page.blocks:
            if block.spark:
                agree(page, block, runner.run(block))
    finally:
        with cql.connect() as session:
            session.sql("DROP MATERIALIZED VIEW IF EXISTS default.busy")
            for stream in ("arrivals", "departures", "observations"):
                session.sql(f"DROP STREAM IF EXISTS default.{stream}")
            for table in ("clicks", "views", "flights", "weather", "delays", "storms"):
                session.sql(f"DROP TABLE IF EXISTS default.{table}")
        runner.close()


# --------------------------------------------------------------------------- lists


@pytest.mark.parametrize("name", docs_tools.MADE)
def test_lists_made_from_the_code(name: str) -> None:
    assert docs_tools.part(name) == docs_tools.MADE[name](), UPDATE


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """The session that every page of ``docs/`` starts with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("docs"))
        runner = Runner(Page(docs_tools.DOCS / "none.md", ""))
        yield runner
        runner.close()


@pytest.mark.parametrize("example", docs_tools.examples("refused"))
def test_what_the_documentation_says_is_refused_is(example: str, common: Runner) -> None:
    session = common.names["session"]
    with pytest.raises(NotSupportedError) as refusal:
        session.sql(example)
    assert refusal.value.position is not None


@pytest.mark.parametrize("clauses", docs_tools.examples("refused of a stream"))
def test_a_stream_that_asks_for_more_is_refused_where_it_is_read(
    clauses: str, common: Runner
) -> None:
    session = common.names["session"]
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
def test_a_clause_that_cannot_change_a_result_is_not_refused(clauses: str, common: Runner) -> None:
    session = common.names["session"]
    session.register_table("plain", common.names["clicks"], replace=True)
    session.sql(f"CREATE OR REPLACE STREAM declared FROM TABLE plain ORDERED BY ts {clauses}")
    assert session.sql("SELECT page FROM declared").to_arrow().num_rows == 7


def test_the_table_of_statements_is_whole() -> None:
    told = set(re.findall(r"`([A-Z]+)\b", docs_tools.part("statements")))
    known = set(statements.STATEMENTS) - {"WITH", "VALUES", "ISTREAM", "DSTREAM", "RSTREAM"}
    assert told == known


ERRORS = docs_tools.DOCS / "reference" / "errors.md"
KINDS = [
    kind
    for kind in vars(cql.errors).values()
    if isinstance(kind, type) and issubclass(kind, CqlError) and kind is not CqlError
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_each_kind_of_error_has_its_example(kind: type[CqlError], common: Runner) -> None:
    """The last statement in each kind's section raises exactly that kind."""
    section = ERRORS.read_text("utf-8").split(f"\n## {kind.__name__}\n")[1].split("\n## ")[0]
    *before, refused = (block.text for block in docs_tools.blocks(section))
    session = common.names["session"]
    for text in before:
        session.sql(text)
    with pytest.raises(CqlError) as caught:
        session.sql(refused).to_arrow()
    assert type(caught.value) is kind


# --------------------------------------------------------------------------- set-up and links


def setup_commands() -> list[str]:
    """The commands that ``.ci/run`` extracts from the README."""
    found = subprocess.run(
        r"sed -n '/<!-- setup -->/,/<!-- end setup -->/p' README.md | grep -E '^ {4}'",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.removeprefix("    ") for line in found.stdout.splitlines()]


def test_the_setup_commands() -> None:
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    first, second = setup_commands()
    assert first.startswith("python3 -m venv .venv && .venv/bin/pip install -q -e '.[demo]' && ")
    assert first.endswith(".venv/bin/cql demo")
    install = ".venv/bin/pip install -q -e '.[test]' && "
    assert second == f"{install}.venv/bin/pytest -q -n 3 --dist loadgroup"
    extras = set(re.findall(r"\.\[(\w+)\]", f"{first} {second}"))
    assert extras <= set(project["optional-dependencies"])
    assert project["readme"] == README.name


def test_ci_takes_its_commands_from_here() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "<!-- setup -->" in script
    assert "grep -E '^ {4}'" in script


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(
        r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE
    )
    found = [page.path.relative_to(docs_tools.DOCS).as_posix() for page in PAGES[1:]]
    assert sorted(listed) == sorted(found)


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text("utf-8")
        loaded = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=.?(https?:[^ \">]+)", text)
        assert not loaded, page.name


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 200


def anchors(text: str) -> set[str]:
    """Anchors of the headings, as GitHub and the site make them."""
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", h).strip().lower().replace(" ", "-") for h in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Page) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.text):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = page.path.parent / file if file else page.path
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text("utf-8")), target


#: Paths in backticks, as the pages write them.
PATHS = re.compile(r"`((?:cql|planner|executor|catalog|tests|benchmarks|queries)/[\w./]*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_folders_and_files_that_a_page_names_exist(page: Page) -> None:
    for name in PATHS.findall(page.text):
        assert (ROOT / name).exists(), name
