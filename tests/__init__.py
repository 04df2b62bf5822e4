"""The tests, a folder per subject. ``support`` and ``reference`` hold what tests share: a test
imports from there, never from another test."""
