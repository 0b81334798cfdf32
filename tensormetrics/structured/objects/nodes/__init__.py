"""Nodes, one class for each kind of field, that encode values as tensors and compute their similarities.

`node` defines the interface of all nodes, and the nodes of leaves, products and unions.
"""
