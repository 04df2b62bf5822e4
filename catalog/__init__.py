"""Part of the engine; see docs/architecture/overview.md."""

if __name__ != "cql.catalog":
    raise ImportError("this folder is the package cql.catalog; import it under that name")
