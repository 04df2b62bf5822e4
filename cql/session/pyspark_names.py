"""The spelling of names in PySpark."""

from __future__ import annotations

import re
from typing import TypeVar

T = TypeVar("T", bound=type)


def pyspark_names(cls: T) -> T:
    """Adds the PySpark spelling of every public snake_case member to a class: ``to_pandas`` is also
    ``toPandas``, ``await_termination`` also ``awaitTermination``."""
    for name, member in list(vars(cls).items()):
        if "_" in name.strip("_") and not name.startswith("_"):
            setattr(cls, re.sub(r"_([a-z])", lambda m: m.group(1).upper(), name), member)
    return cls
