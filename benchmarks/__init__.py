"""Costs of the engine, compared with hand-written kernels and other engines. See README.md."""
