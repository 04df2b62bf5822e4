"""The one Spark session of the test run; conftest imports the fixture from here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from cql.catalog.spark import session as spark_session

    warehouse = tmp_path_factory.mktemp("warehouse with space%20")
    session = spark_session.start(warehouse=warehouse)
    yield session
    spark_session.stop()
    shutil.rmtree(warehouse, ignore_errors=True)
