"""Where the repository and its queries lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
QUERIES = ROOT / "queries"
