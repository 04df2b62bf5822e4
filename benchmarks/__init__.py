"""What the engine costs, beside hand-written kernels and other engines. See README.md."""
