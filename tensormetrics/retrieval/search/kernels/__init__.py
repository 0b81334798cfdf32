"""Triton kernels of the search, which they never import: they take tensors and the records of `tables`."""
