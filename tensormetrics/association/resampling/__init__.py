"""Null distributions of association scores, exact and drawn permutation tests, and the bootstrap.

Built on `sets`.
"""
