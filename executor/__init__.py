"""Part of the engine; see the README's map of the code."""

if __name__ != "cql.executor":
    raise ImportError("this folder is the package cql.executor; import it under that name")
