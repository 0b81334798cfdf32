"""Sets of vectors as padded tensors with masks: cosines, means and effect sizes of sets, and words of several rows.

Imports no other subpackage of the domain.
"""
