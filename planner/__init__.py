"""Part of the engine; see docs/architecture/overview.md."""

if __name__ != "cql.planner":
    raise ImportError("this folder is the package cql.planner; import it under that name")
