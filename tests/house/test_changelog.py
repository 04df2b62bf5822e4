"""The changelog keeps its form: Keep a Changelog, one line per entry, no duplicates."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

TEXT = (ROOT / "CHANGELOG.md").read_text("utf-8")
VERSIONS = TEXT.split("\n## ")[1:]
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Faster"}


def test_versions_and_kinds() -> None:
    assert [v.splitlines()[0].partition(" ")[0] for v in VERSIONS] == ["[Unreleased]", "[0.1.0]"]
    for version in VERSIONS:
        kinds = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert len(kinds) == len(set(kinds))
        assert set(kinds) <= KINDS | {"Parsed, and not supported yet"}


def test_an_entry_is_one_line_and_stands_once() -> None:
    for version in VERSIONS:
        lines = [line for line in version.splitlines()[1:] if line]
        entries = [line for line in lines if line.startswith("- ")]
        assert len(entries) == len(set(entries))
        for line in lines:
            assert re.match(r"- |### |\*\*[^*]+\*\*$|The first version", line), (
                f"not a line: {line}"
            )
            assert len(line) <= 140, f"an entry is too long: {line}"
