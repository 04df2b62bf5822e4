"""Registers the format and the table function ``cql`` in a session of Spark."""

from __future__ import annotations

from cql.catalog.spark import data_source
from cql.catalog.spark.session import Session
from cql.spark.job.package import ship
from cql.spark.sql.registration import Registration
from cql.spark.sql.streams import PlannedStream
from cql.spark.sql.texts import PlannedText, rows


def register(session: Session, registration: Registration) -> None:
    """Spark's workers plan the texts with ``registration``."""
    ship(session.sparkContext)
    texts = data_source.Texts(registration.to_json(), PlannedText, PlannedStream, rows)
    data_source.register(session, texts)
