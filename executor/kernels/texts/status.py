"""The status of a row of a block of texts, for kernels and their callers."""

#: A FAILED row fails only if the code of the query reads the value. Kernels leave a row that they
#: do not compute ODD: Python computes it.
NULL, VALID, FAILED, ODD = 0, 1, 2, 3
