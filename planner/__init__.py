"""Part of the engine; see the README's map of the code."""

if __name__ != "cql.planner":
    raise ImportError("this folder is the package cql.planner; import it under that name")
