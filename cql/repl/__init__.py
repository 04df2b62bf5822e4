"""The shell: prompt, completion, highlighting, live results.

This package imports numba, pyspark, pyarrow and sqlglot only after it has drawn the prompt.
"""
