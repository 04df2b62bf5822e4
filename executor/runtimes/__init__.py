"""Runtimes: who calls an operator, when, and in which order."""
