"""Metrics of Python objects: a type becomes a tree of nodes, which reads objects once and scores them as tensors."""
