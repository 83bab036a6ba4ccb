"""Compiled kernels: gradients and losses in one read of the records, on CPUs and on GPUs."""
