"""Part of the engine; see the README's map of the code."""

if __name__ != "cql.catalog":
    raise ImportError("this folder is the package cql.catalog; import it under that name")
