"""Compiled library code: takes and returns arrays, addresses and scalars only."""

from cql.executor.numba_cache import make_tolerant
from cql.executor.numba_speed import make_quick

make_tolerant()
make_quick()
