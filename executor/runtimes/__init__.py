"""Runtimes: they decide which thread calls an operator, when, and in which order."""
