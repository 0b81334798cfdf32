"""Triton kernels of the search; they depend on tensors and the records of `tables` only."""
