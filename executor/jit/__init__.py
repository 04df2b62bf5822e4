"""How this library calls numba: decorators, compiler and cache of its own; numba stays as it is."""
