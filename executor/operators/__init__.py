"""Operators: descriptors, state layouts and generated kernels."""
