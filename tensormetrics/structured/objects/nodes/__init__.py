"""One node for each kind of field: it encodes values of its kind as numbers and gives their similarities.

`node` holds the contract of all nodes, the leaves, products and unions.
"""
