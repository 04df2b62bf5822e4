"""Fixtures of the tests of materialized views."""

from __future__ import annotations

from tests.support.view_tables import base, session

__all__ = ["base", "session"]
