"""The shell: prompt, completion, highlighting, live results.

Nothing here imports numba, pyspark, pyarrow or sqlglot before the prompt is drawn.
"""
