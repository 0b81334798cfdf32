"""Metrics of Python objects: a tree of nodes, derived from a type, encodes objects once and scores them as tensors."""
