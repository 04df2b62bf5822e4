"""Compiled library code: takes and returns arrays, addresses and scalars only."""

from cql.executor.numba_cache import make_tolerant

make_tolerant()
