"""Compiled library code: takes and returns arrays, addresses and scalars only."""

from cql.executor.jit.compile_speed import make_quick
from cql.executor.jit.disk_cache import make_tolerant

make_tolerant()
make_quick()
