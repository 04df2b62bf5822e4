"""This library's own decorators, compiler and cache on top of numba, which stays unmodified."""
