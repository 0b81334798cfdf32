"""Comparisons of two metrics, of two scores, and of several models.

Stands on `item_scores`, `anytime` and `metrics`.
"""
