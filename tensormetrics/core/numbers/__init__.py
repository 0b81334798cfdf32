"""Exact sums, random bits by address, quantiles, and the distribution of Student.

Stands on `arguments` and `native`.
"""
