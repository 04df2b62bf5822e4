"""Compiled library code: takes and returns arrays, addresses and scalars only."""
