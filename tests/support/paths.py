"""The folders of the repository, its tests and its queries."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
QUERIES = ROOT / "queries"
