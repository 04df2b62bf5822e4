"""Part of the engine; see docs/architecture/overview.md."""

if __name__ != "cql.executor":
    raise ImportError("this folder is the package cql.executor; import it under that name")
