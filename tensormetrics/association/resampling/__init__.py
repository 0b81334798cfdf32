"""Null distributions of association scores, exact and Monte Carlo permutation tests, and the bootstrap.

Built on `sets`.
"""
